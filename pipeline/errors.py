"""The errors a user can cause, and the one line and exit code that each of them ends in."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

EXIT_USER_ERROR = 2
EXIT_BY_USER = 130
"""Ctrl-C, as shells count it."""
EXIT_INTERRUPTED = 75
"""Asked to stop, saved, and to be started again: what batch systems know as a temporary failure."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Of errors that name no file, those that are the user's to mend."""


class PipelineError(Exception):
    """A mistake in what the user gave us: the message says what, the values, what to do."""


class ConfigError(PipelineError):
    """A recipe, `--set` or command-line value that cannot be used."""

    def __init__(self, message: str, problems: Sequence[str] = ()) -> None:
        """problems: where there are several, each with its values and remedy, for a line of its own
        below the message."""
        super().__init__("\n  ".join((message, *problems)))
        self.problems = tuple(problems)


class DataError(PipelineError):
    """Input files, a tokenizer or shards that cannot be used."""

    def __init__(self, message: str, file: Path | None = None) -> None:
        """file: of a shard, where that file alone is to blame."""
        super().__init__(message)
        self.file = file


class CheckpointError(PipelineError):
    """A run directory or checkpoint that cannot be used."""


def run_command(main: Callable[[], None], *, at_once: bool = False) -> None:
    """Run a command's `main`; a user's mistake ends in one `error:` line and exit code 2.

    A ConfigError with several problems has a line for each of them below the first.

    at_once: leave without the interpreter's clean-up, in which a thread of a process group can
    still abort a command that has done its work, and turn its exit code into another.
    """
    if not at_once:
        _run(main)
        return
    try:
        _run(main)
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _run(main: Callable[[], None]) -> None:
    try:
        main()
    except PipelineError as error:
        problems = error.problems if isinstance(error, ConfigError) else ()
        lines = str(error).split("\n  ") if problems else [str(error)]
        print("error:", "\n  ".join(" ".join(line.split()) for line in lines), file=sys.stderr)
        sys.exit(EXIT_USER_ERROR)
    except BrokenPipeError:
        # The reader of our output (`| head`) went away: not our failure, nothing left to say.
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        # A disk that is full, read-only or gone, wherever it was met; files appear whole or not.
        if error.filename is None and error.errno not in _FULL:
            raise
        where = f"{error.filename}: " if error.filename else ""
        reason = error.strerror or str(error)
        print(f"error: {where}{reason}; mend that and run again", file=sys.stderr)
        sys.exit(EXIT_USER_ERROR)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print("interrupted; run the same command again to go on", file=sys.stderr)
        sys.exit(EXIT_BY_USER)
