"""Errors that a user can cause; each ends a command with one line and an exit code."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from pipeline.base.shown_urls import show_text

EXIT_USER_ERROR = 2
EXIT_DIVERGED = 3
"""Training diverged; with the same settings it would again."""
EXIT_BY_USER = 130
"""Ctrl-C, by the convention of shells."""
EXIT_INTERRUPTED = 75
"""Stopped on request after saving; EX_TEMPFAIL, so batch systems can start the run again."""

LONGEST_MESSAGE = 4000
"""Characters of one line of a message."""
_SPACES = re.compile(r"[ \t\n\r\f\v]+")  # others, such as no-break spaces, are part of names
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOMEM, errno.EAGAIN)
"""Errors without a file name that the user can fix; the last is a process too many."""
_NO_THREAD = "can't start new thread"


class PipelineError(Exception):
    """An error in the user's input; the message states the problem, the values and the remedy."""

    exit_code = EXIT_USER_ERROR
    """Exit code of the command that it ends."""

    def __init__(self, message: str, problems: Sequence[str] = ()) -> None:
        """problems: if there are several, each with its values and remedy, one line each."""
        super().__init__("\n  ".join((message, *problems)))
        self.problems = tuple(problems)


class ConfigError(PipelineError):
    """An unusable recipe, `--set` or command-line value."""


class DataError(PipelineError):
    """Unusable input files, tokenizer or shards."""

    def __init__(
        self, message: str, file: Path | None = None, *, problems: Sequence[str] = ()
    ) -> None:
        """file: the only damaged file of a shard."""
        super().__init__(message, problems)
        self.file = file


class CheckpointError(PipelineError):
    """An unusable run directory or checkpoint."""


class DivergedError(PipelineError):
    """Training whose losses or gradients did not stay finite, or whose spikes did not end."""

    exit_code = EXIT_DIVERGED


def run_command(main: Callable[[], None], *, at_once: bool = False) -> None:
    """Run a command's `main`; a PipelineError becomes one `error:` line and its exit code.

    An error with several problems prints one more line for each.

    at_once: exit without the interpreter's clean-up, in which a thread of a process group can still
    abort a finished command and change its exit code.
    """
    if not at_once:
        _run(main)
        return
    try:
        _run(main)
        code = 0
    except SystemExit as stop:
        # As the interpreter would: None is 0, and a text is 1.
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    with contextlib.suppress(OSError, ValueError):  # closed, or its reader is gone
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def escaped(text: str) -> str:
    """Text without what does not print or breaks a line, which is written as in Python: `\\n`."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shown_name(name: str) -> str:
    """A file's name in ids and messages: one line, in which nothing is invisible.

    Ids are printed, pasted, and listed a line each (`takedown --documents`). So what does not print
    (newlines, tabs, no-break spaces, joiners) is written as in Python, `\\n` or `\\u200d`. In such
    a name a backslash is doubled; all others stay as they are.
    """
    return name if name.isprintable() else escaped(name.replace("\\", "\\\\"))


def one_line(message: str) -> str:
    """A message as one line; characters of a damaged file that are not printable are escaped.

    URLs lose what could be a secret: a message may quote any argument. The middle of a long message
    is dropped: names in a damaged file have any length.
    """
    line = escaped(_SPACES.sub(" ", show_text(message)).strip())
    if len(line) <= LONGEST_MESSAGE:
        return line
    return f"{line[: LONGEST_MESSAGE // 2]} ... {line[-LONGEST_MESSAGE // 2 :]}"


def _run(main: Callable[[], None]) -> None:
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr: a terminal may be ASCII
    try:
        main()
    except PipelineError as error:
        lines = str(error).split("\n  ") if error.problems else [str(error)]
        print("error:", "\n  ".join(map(one_line, lines)), file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader of our output (`| head`) closed the pipe; this is not an error.
        sys.stderr.close()  # else the flush at exit reports it
        sys.exit(0)
    except OSError as error:
        # A full, read-only or missing disk. No file is left half-written.
        if error.filename is None and error.errno not in _FULL:
            raise
        where = f"{error.filename}: " if error.filename else ""
        reason = error.strerror or str(error)
        print(one_line(f"error: {where}{reason}; fix this and rerun"), file=sys.stderr)
        sys.exit(EXIT_USER_ERROR)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and str(error) != _NO_THREAD:
            raise
        print(
            f"error: out of memory ({str(error) or 'MemoryError'}); run the same command again "
            "with fewer --workers, or raise the limits on memory and processes (`ulimit -v`, `-u`)",
            file=sys.stderr,
        )
        sys.exit(EXIT_USER_ERROR)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C would print a traceback
        print("interrupted; run the same command again to resume", file=sys.stderr)
        sys.exit(EXIT_BY_USER)
