"""The processes of a run: who they are, how they agree, and when they are asked to stop.

Started alone, or by torchrun or deepspeed, which say rank and world size in the environment. What
one process finds wrong ends all of them: `Cluster.agreed` makes every rank leave at the same place,
the first one with the error, the others silently, so a mistake is one line and never a hang.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

import torch
import torch.distributed as dist

from pipeline.errors import EXIT_USER_ERROR, DataError, PipelineError
from pipeline.training.cluster.engine import init_distributed, timeout
from pipeline.training.deadline import Deadline

EXIT_LOST = 70
"""An internal failure, as batch systems count exit codes: not to be taken for a user's mistake."""
LOST = re.compile(
    "gloo|NCCL|ncclRemote|Connection (closed|reset) by peer|Broken pipe|timeout caused pair closure"
)
"""What torch says when a rank that it waits for is gone, or was silent for too long."""
STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


class StopRequest:
    """Why this process wants all to save and end: a signal, its time is up, or damaged data."""

    def __init__(self) -> None:
        self.signalled = False
        self.deadline: Deadline | None = None
        self.mistake: DataError | None = None
        """What this rank found in its data; all ranks end by it once they have saved."""

    @property
    def requested(self) -> bool:
        """To be asked once between two steps, which is how the deadline knows their length."""
        late = self.deadline is not None and self.deadline.reached()
        return late or self.signalled or self.mistake is not None

    def listen(self) -> None:
        """From now on a signal asks for a stop instead of killing the process."""
        for number in STOP_SIGNALS:
            signal.signal(number, self._request)

    def _request(self, number: int, frame: FrameType | None) -> None:
        self.signalled = True


@dataclass(frozen=True, slots=True)
class Cluster:
    """This process among those of its run."""

    rank: int
    world_size: int
    device: torch.device
    control: dist.ProcessGroup
    """Gloo, for counts and decisions: on GPUs it waits for no kernel."""

    @classmethod
    def join(cls) -> Cluster:
        """Meet the other processes, see `engine.init_distributed`."""
        with spoken_once(launched_rank()):
            longest_wait = timeout()
        device = init_distributed()
        control = dist.new_group(backend="gloo", timeout=longest_wait)
        return cls(dist.get_rank(), dist.get_world_size(), device, control)

    def leave(self) -> None:
        """Part from the others once all are here; whoever holds the model must have let go."""
        dist.barrier(group=self.control)
        gc.collect()  # DeepSpeed's hooks hold the model in cycles; gloo aborts if it dies later
        dist.destroy_process_group()

    @contextmanager
    def agreed(self) -> Iterator[None]:
        """A PipelineError of any rank inside ends all ranks here; the first rank raises it."""
        mistake: PipelineError | None = None
        try:
            yield
        except PipelineError as error:
            mistake = error
        messages = self.gather(str(mistake) if mistake else "")
        for rank, message in enumerate(messages):
            if message:
                with spoken_once(self.rank):
                    if mistake and messages[0]:
                        raise mistake
                    raise PipelineError(f"rank {rank}: {message}" if rank else message)

    def gather(self, text: str) -> list[str]:
        """The text of every rank, on every rank."""
        content = text.encode()
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.world_size)]
        dist.all_gather(sizes, torch.tensor([len(content)]), group=self.control)
        longest = max(1, *(int(size) for size in sizes))
        mine = torch.frombuffer(bytearray(content.ljust(longest, b"\0")), dtype=torch.uint8)
        parts = [torch.empty_like(mine) for _ in range(self.world_size)]
        dist.all_gather(parts, mine, group=self.control)
        return [bytes(part.numpy())[: int(size)].decode() for part, size in zip(parts, sizes)]

    def total(self, values: torch.Tensor) -> torch.Tensor:
        """The sum of `values` over all ranks, as float64 on the CPU."""
        summed = values.detach().to("cpu", torch.float64)
        dist.all_reduce(summed, group=self.control)
        return summed

    def each(self, value: float) -> list[float]:
        """The value of every rank, on every rank."""
        values = torch.zeros(self.world_size, dtype=torch.float64)
        values[self.rank] = value
        return self.total(values).tolist()

    def any(self, flag: bool) -> bool:
        """Whether any rank says so."""
        return bool(self.total(torch.tensor([float(flag)])).item())


def launched_rank() -> int:
    """The rank that a launcher gave this process; 0 when it is alone."""
    return int(os.environ.get("RANK", "0"))


@contextmanager
def outlived(rank: int) -> Iterator[None]:
    """The end of another rank, inside, ends this one with a line instead of torch's traceback."""
    try:
        yield
    except RuntimeError as error:  # gloo has no class of its own for it, NCCL's is one of these
        if not LOST.search(str(error)):
            raise
        reason = re.sub(r"^\[\S*\] | This is typically.*", "", str(error).splitlines()[0])
        print(
            f"error: rank {rank} on {socket.gethostname()} lost another rank ({reason}): look at "
            "what that one said last; run the same command again, it goes on from the last "
            "checkpoint",
            file=sys.stderr,
        )
        raise SystemExit(EXIT_LOST) from None


@contextmanager
def spoken_once(rank: int) -> Iterator[None]:
    """A mistake that every rank finds is raised by the first; the others exit without a word."""
    try:
        yield
    except PipelineError:
        if rank:
            raise SystemExit(EXIT_USER_ERROR) from None
        raise
