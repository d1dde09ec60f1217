"""A small torchrun: starts the ranks of one machine by forking them.

    python -m tests.launching.ranks RANKS -m MODULE ARGUMENTS...
    python -m tests.launching.ranks RANKS SCRIPT ARGUMENTS...

Sets the variables that torchrun sets, holds the store at which the ranks meet, ends all ranks with
SIGTERM when one fails or on SIGTERM, and reports a failed rank's exit code in torchrun's words.
torchrun starts each rank as a new Python, which costs seconds.
"""

import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType

import torch.distributed as dist

from tests.launching.main_module import run_as_main

PATIENCE_SECONDS = 30
"""Until ranks that were sent SIGTERM get SIGKILL, as with torchrun."""


class Ranks:
    """The processes of one launch."""

    def __init__(self, count: int, arguments: Sequence[str]) -> None:
        self.arguments = arguments
        self.stopping_since = 0.0
        signal.signal(signal.SIGTERM, self._stop_on_signal)
        doors = [os.pipe() for _ in range(count)]
        self.processes = {self._start(rank, count, doors): rank for rank in range(count)}
        # after the forks, because the store starts threads
        self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        for door, entrance in doors:
            os.close(door)
            os.write(entrance, str(self.store.port).encode())
            os.close(entrance)

    def _start(self, rank: int, count: int, doors: list[tuple[int, int]]) -> int:
        if process := os.fork():
            return process
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for number, (door, entrance) in enumerate(doors):
            os.close(entrance)
            if number != rank:
                os.close(door)
        port = os.read(doors[rank][0], 10).decode()
        os.close(doors[rank][0])
        if not port:
            os._exit(1)  # the launcher is gone
        os.environ.update(
            RANK=str(rank), LOCAL_RANK=str(rank), GROUP_RANK="0", ROLE_RANK=str(rank),
            WORLD_SIZE=str(count), LOCAL_WORLD_SIZE=str(count), ROLE_WORLD_SIZE=str(count),
            MASTER_ADDR="127.0.0.1", MASTER_PORT=port, TORCHELASTIC_USE_AGENT_STORE="True",
            TORCHELASTIC_RUN_ID="ranks", TORCHELASTIC_RESTART_COUNT="0",
        )  # fmt: skip
        run_as_main(self.arguments)

    def wait(self) -> int:
        """The exit code of the launch, once all ranks have ended."""
        failed = False
        while self.processes:
            process, status = os.waitpid(-1, os.WNOHANG)
            if not process:
                if self.stopping_since and self._seconds() > PATIENCE_SECONDS:
                    self._send(signal.SIGKILL)
                time.sleep(0.005)
                continue
            rank, code = self.processes.pop(process), os.waitstatus_to_exitcode(status)
            if code:
                failed = True
                print(f"  rank      : {rank} (local_rank: {rank})", file=sys.stderr)
                print(f"  exitcode  : {code} (pid: {process})", file=sys.stderr, flush=True)
                self._stop()
        return int(failed)

    def _seconds(self) -> float:
        return time.monotonic() - self.stopping_since

    def _stop(self) -> None:
        if not self.stopping_since:
            self.stopping_since = time.monotonic()
            self._send(signal.SIGTERM)

    def _stop_on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stop()

    def _send(self, number: signal.Signals) -> None:
        for process in self.processes:
            with suppress(ProcessLookupError):
                os.kill(process, number)


def main() -> None:
    ranks = Ranks(int(sys.argv[1]), sys.argv[2:])
    sys.exit(ranks.wait())


if __name__ == "__main__":
    main()
