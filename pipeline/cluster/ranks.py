"""The processes of a run: their ranks, and how they report errors.

A run is one process, or is started by torchrun or deepspeed, which set each rank's environment.
An error on one rank ends all of them: `agreed` raises it on every rank at the same place, and the
first rank reports it, so a mistake is one line and never a hang.
"""

from __future__ import annotations

import gc
import os
import re
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.distributed as dist

from pipeline.base.errors import PipelineError
from pipeline.cluster.process_group import TIMEOUT_VARIABLE, init_distributed, timeout
from pipeline.cluster.rendezvous import MissingRanks
from pipeline.cluster.stop_request import StopRequest

EXIT_LOST = 70
"""EX_SOFTWARE of sysexits.h, an internal failure, so that it is not taken for a user's mistake."""
FIRST_RANK_SECONDS = 60.0
"""Delay after which the first rank may find another rank's error: it imports first."""
LOST = re.compile(
    "gloo|NCCL|ncclRemote|Connection (closed|reset) by peer|Broken pipe|timeout caused pair closure"
)
"""Errors of torch when a rank that it waits for has ended or does not answer."""
OWN_ERROR = re.compile("invalid (usage|argument)|unhandled cuda error")
"""Errors of NCCL about this rank's program or device (ncclGetErrorString)."""


class RankGroup(Protocol):
    """What a collective function needs of the processes of a run; `Cluster` has it."""

    @property
    def rank(self) -> int:
        """This process's rank."""

    @property
    def world_size(self) -> int:
        """Number of processes."""

    def gather(self, text: str) -> list[str]:
        """The text of every rank, on every rank; returns once all ranks have called it."""

    def from_first(self, content: bytes) -> bytes:
        """The content of the first rank, on every rank."""

    def total(self, values: torch.Tensor) -> torch.Tensor:
        """The sum of `values` over all ranks, as float64 on the CPU."""


@dataclass(frozen=True, slots=True)
class Alone:
    """The one process of a command that is not distributed."""

    rank: int = 0
    world_size: int = 1

    def gather(self, text: str) -> list[str]:
        """A list of this text only."""
        return [text]

    def from_first(self, content: bytes) -> bytes:
        """The same content."""
        return content

    def total(self, values: torch.Tensor) -> torch.Tensor:
        """The values themselves, as float64 on the CPU."""
        return values.detach().to("cpu", torch.float64)


ONE_PROCESS = Alone()


@contextmanager
def agreed(ranks: RankGroup, kind: type[PipelineError] = PipelineError) -> Iterator[None]:
    """A PipelineError or OSError of any rank inside raises one error on every rank. Collective.

    kind: the class of that error; its message is that of `format_rank_error`.
    """
    mistake: OSError | PipelineError | None = None
    try:
        yield
    except (OSError, PipelineError) as error:
        mistake = error  # any other exception is a bug and ends this rank, as it should
    # Every rank gets here, with or without a mistake: a missing one would hang the others.
    message = format_rank_error(ranks.gather(str(mistake) if mistake else ""))
    if message:
        raise kind(message) from mistake


def format_rank_error(mistakes: Sequence[str]) -> str:
    """The first of the ranks' mistakes, with the ranks that failed; "" if no rank failed.

    mistakes: one per rank, "" from a rank without one. A mistake of all ranks is the run's, so no
    rank is named.
    """
    failed = [rank for rank, mistake in enumerate(mistakes) if mistake]
    if not failed:
        return ""
    first, *others = failed
    message = f"rank {first}: {mistakes[first]}" if first else mistakes[first]
    if others and len(failed) < len(mistakes):
        message += f" (and ranks {', '.join(map(str, others))})"
    return message


@dataclass(frozen=True, slots=True)
class Cluster:
    """This process among those of its run."""

    rank: int
    world_size: int
    device: torch.device
    control: dist.ProcessGroup
    """Gloo, for counts and decisions: on GPUs it does not wait for kernels."""
    stop: StopRequest

    @classmethod
    def join(cls, stop: StopRequest) -> Cluster:
        """Meet the other processes, see `process_group.init_distributed`."""
        # First: a bad value is reported before any rank waits for another.
        with reporting_before_joining(stop):
            longest_wait = timeout()
        try:
            device = init_distributed()
        except MissingRanks as missing:
            print(
                f"error: {missing}; look at the last lines of its log, or set "
                f"{TIMEOUT_VARIABLE} to wait longer",
                file=sys.stderr,
            )
            raise SystemExit(EXIT_LOST) from None
        control = dist.new_group(backend="gloo", timeout=longest_wait)
        return cls(dist.get_rank(), dist.get_world_size(), device, control, stop)

    @property
    def is_first_on_node(self) -> bool:
        """True if this is the process of its node that works for all of them."""
        return os.environ.get("LOCAL_RANK", "0") == "0"

    def leave(self) -> None:
        """Leave the group once all ranks are here; the caller must not hold the model any more."""
        dist.barrier(group=self.control)
        gc.collect()  # DeepSpeed's hooks hold the model in cycles; gloo aborts if it dies later
        dist.destroy_process_group()

    @contextmanager
    def agreed(self) -> Iterator[None]:
        """As `agreed`, but only the first rank raises the error and the others exit silently."""
        with report_once(self.rank):
            try:
                with agreed(self):
                    yield
            except PipelineError:
                self.stop.keep_error()
                # no rank ends, and makes the launcher end the others, before all of them know
                # A rank that is gone breaks the barrier, but the mistake is what the user must see.
                with suppress(RuntimeError):
                    dist.barrier(group=self.control)
                raise

    def gather(self, text: str) -> list[str]:
        """The text of every rank, on every rank."""
        content = text.encode()
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.world_size)]
        dist.all_gather(sizes, torch.tensor([len(content)]), group=self.control)
        # Gloo gathers tensors of one size, so texts are padded to the longest.
        longest = max(1, *(int(size) for size in sizes))
        # A bytearray, because torch warns of buffers that are read-only.
        mine = torch.frombuffer(bytearray(content.ljust(longest, b"\0")), dtype=torch.uint8)
        parts = [torch.empty_like(mine) for _ in range(self.world_size)]
        dist.all_gather(parts, mine, group=self.control)
        return [bytes(part.numpy())[: int(size)].decode() for part, size in zip(parts, sizes)]

    def from_first(self, content: bytes) -> bytes:
        """The content of the first rank, on every rank."""
        size = torch.tensor([len(content)])
        dist.broadcast(size, 0, group=self.control)
        # `frombuffer` refuses an empty buffer.
        found = torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else size[:0]
        if self.rank:
            found = torch.empty(int(size), dtype=torch.uint8)
        if int(size):
            dist.broadcast(found, 0, group=self.control)
        return found.numpy().tobytes()

    def total(self, values: torch.Tensor) -> torch.Tensor:
        """The sum of `values` over all ranks, as float64 on the CPU."""
        summed = values.detach().to("cpu", torch.float64)
        dist.all_reduce(summed, group=self.control)
        return summed

    def each(self, value: float) -> list[float]:
        """The value of every rank, on every rank."""
        # A sum of vectors with one entry each: `gather` would take two collectives.
        values = torch.zeros(self.world_size, dtype=torch.float64)
        values[self.rank] = value
        return self.total(values).tolist()

    def any(self, flag: bool) -> bool:
        """True if the flag is set on any rank."""
        return bool(self.total(torch.tensor([float(flag)])).item())

    def is_first_to_say(self, message: str) -> bool:
        """True if no rank has called this with the same message before; waits for no other rank.

        False if the store of the ranks is gone, with a rank that has said why it ended.
        """
        try:
            # The store adds atomically, so only one rank reads 1.
            return int(dist.distributed_c10d._get_default_store().add(message, 1)) == 1
        except RuntimeError:
            return False

    def was_said(self, message: str) -> bool:
        """True if any rank has called `is_first_to_say` with the message."""
        try:
            return bool(dist.distributed_c10d._get_default_store().check([message]))
        except RuntimeError:
            return False


def launched_rank() -> int:
    """The rank that a launcher gave this process; 0 for a single process."""
    return int(os.environ.get("RANK", "0"))


@contextmanager
def reporting_before_joining(stop: StopRequest) -> Iterator[None]:
    """The first rank raises an error inside; another one only if the first rank has none.

    Ranks that have not met cannot tell each other, so the others wait until the launcher ends them.
    """
    try:
        yield
    except PipelineError as error:
        stop.keep_error()
        rank = launched_rank()
        if rank == 0:
            raise
        # The launcher sends SIGTERM once rank 0 has ended with the same error.
        if stop.wait_for_request(FIRST_RANK_SECONDS):
            raise SystemExit(error.exit_code) from None
        raise type(error)(f"rank {rank}: {error}") from None


@contextmanager
def ending_with_lost_ranks(rank: int) -> Iterator[None]:
    """When another rank ends, end this one too, with one line instead of torch's traceback."""
    try:
        yield
    except RuntimeError as error:  # gloo raises a plain one, NCCL a subclass
        text = str(error)
        first = text.partition("\n")[0]  # below may be the stack of another error, through NCCL
        if not LOST.search(first) or OWN_ERROR.search(first):
            raise
        reason = re.sub(r"^\[\S*\] | This is typically.*", "", first)
        if detail := re.search(r"^Last error:\s*(.+)", text, re.MULTILINE):
            reason += f"; {detail[1]}"
        print(
            f"error: rank {rank} on {socket.gethostname()} lost another rank ({reason}): look at "
            "the last lines of that rank; run the same command again, it resumes from the last "
            "checkpoint",
            file=sys.stderr,
        )
        raise SystemExit(EXIT_LOST) from None


@contextmanager
def report_once(rank: int) -> Iterator[None]:
    """Only the first rank raises an error that all ranks raise inside; the others exit silently."""
    try:
        yield
    except PipelineError as error:
        if rank:  # with the same code: a launcher returns that of any rank
            raise SystemExit(error.exit_code) from None
        raise
