"""Commands of the pipeline as child processes: logged, stopped with their parent, one-line errors.

A child keeps the lock that its parent holds: if the parent is killed, the child finishes or saves,
and nothing else takes the same work meanwhile.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, Any

from pipeline.base.errors import EXIT_INTERRUPTED, PipelineError
from pipeline.base.files import make_directory

STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP)
_TAIL_BYTES = 1 << 16  # logs of days are long, and the reason stands at the end
_PAUSE_SECONDS = 0.5


class ChildError(PipelineError):
    """A command failed; its reason is in the message."""

    def __init__(self, message: str, code: int) -> None:
        """code: the command's exit code, negative for a signal."""
        super().__init__(message)
        self.code = code


class Children:
    """Starts one child at a time; passes requests to stop on to it."""

    def __init__(self) -> None:
        self.stopped = False
        """True once this process was asked to stop."""
        self._child: subprocess.Popen[bytes] | None = None
        self._starting = False

    def listen(self) -> None:
        """Pass SIGTERM, SIGUSR1, SIGHUP and Ctrl-C on as a request to save and end."""
        for number in STOP_SIGNALS:
            # what was ignored stays ignored, such as Ctrl-C in a shell's background job
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._stop)

    def run(
        self,
        words: Sequence[object],
        log: Path,
        lock: IO[Any] | None = None,
        reads: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> str:
        """Run `python -m WORDS...` to its end.

        log: gets what it prints; reads: return its standard output instead; environment: variables
        besides this process's. Raises ChildError if it fails, and ends this process with code 75
        if it was asked to stop.
        """
        self.check_stopped()
        make_directory(log.parent, "name another --output")
        passed = (lock.fileno(),) if lock else ()
        with log.open("ab") as file:
            begin = file.tell()  # the log may hold errors of earlier commands
            # a signal during Popen must not end this process: the child would train on, unwatched
            self._starting = True
            self._child = subprocess.Popen(
                [sys.executable, "-m", *map(str, words)],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE if reads else file, stderr=file,
                pass_fds=passed, env=os.environ | dict(environment or {}),
            )  # fmt: skip
            self._starting = False
            if self.stopped:  # asked between the check and the start
                self._child.send_signal(signal.SIGTERM)
            output, _ = self._child.communicate()
        code, self._child = self._child.returncode, None
        # the child got the signal itself: a terminal and scancel signal whole groups
        if code == EXIT_INTERRUPTED:
            self.stopped = True
        self.check_stopped()
        if code:
            raise ChildError(f"{_reason(log, code, begin)}; full output: {log}", code)
        return output.decode(errors="replace") if reads else ""

    def pause(self) -> None:
        """Wait a moment for other processes."""
        self.check_stopped()
        time.sleep(_PAUSE_SECONDS)

    def check_stopped(self) -> None:
        """End this process if it was asked to stop."""
        if self.stopped:
            print("interrupted; run the same command again to resume", file=sys.stderr)
            sys.exit(EXIT_INTERRUPTED)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.stopped = True
        if self._child is not None:
            self._child.send_signal(signal.SIGTERM)  # nothing happens if it has ended
        elif not self._starting:
            self.check_stopped()  # waiting for another process, for instance


def _reason(log: Path, code: int, begin: int) -> str:
    """The last error line of a child; begin: where its part of the log begins."""
    with log.open("rb") as file:
        file.seek(max(begin, log.stat().st_size - _TAIL_BYTES))
        lines = file.read().decode(errors="replace").splitlines()
    errors = [line for line in lines if line.startswith("error: ")]
    if errors:
        return errors[-1].removeprefix("error: ")
    last = next((line for line in reversed(lines) if line.strip()), "it printed nothing")
    how = f"signal {-code}" if code < 0 else f"code {code}"
    return f"ended with {how} ({last.strip()[:200]})"
