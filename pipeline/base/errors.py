"""Errors that a user can cause; each ends a command with one line and an exit code."""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import os
import re
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, ClassVar, NoReturn, cast

from pipeline.base.shown_urls import show_text

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

EXIT_USER_ERROR = 2
EXIT_DIVERGED = 3
"""Training diverged; with the same settings it would again."""
EXIT_BY_USER = 130
"""Ctrl-C, by the convention of shells."""
EXIT_NO_READER = 141
"""The reader of the output, as in `| head`, is gone: SIGPIPE, by the same convention."""
EXIT_INTERRUPTED = 75
"""Stopped on request after saving; EX_TEMPFAIL, so batch systems can start the run again."""

LONGEST_MESSAGE = 4000
"""Characters of one line of a message."""
_MOST_LISTED = 200
"""Characters of several names in a message."""
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


class OutputLost(BaseException):
    """The reader, terminal or disk of this process's output is gone.

    Not an Exception: a user's function that prints would fail with it, and only its document be
    lost.
    """

    def __init__(self, reason: OSError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class _StandardStream(io.RawIOBase):
    """Standard output or error of this process; at most its first loss is raised.

    A reader or a terminal that is gone does not come back: the descriptor then leads to the null
    device, also for what writes to it without Python. A full disk may have room later.
    """

    is_needed: ClassVar[bool | None] = None
    """True while a command runs that ends without its output, False in one that continues."""

    def __init__(self, descriptor: int, name: str) -> None:
        self.name = f"<{name}>"
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer, /) -> int:
        """Write all of `data`, or lose what is left of it."""
        left = whole = memoryview(data).cast("B")
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:  # another process made the pipe non-blocking
                select.select([], [self._descriptor], [])
            except OSError as error:
                self._lose(error)
                break
        return len(whole)

    def _lose(self, error: OSError) -> None:
        if error.errno not in _FULL:
            with Path(os.devnull).open("wb") as null:
                os.dup2(null.fileno(), self._descriptor)
        # A thread that only shows progress leaves it to what the command itself prints.
        if _StandardStream.is_needed and threading.current_thread() is threading.main_thread():
            _StandardStream.is_needed = False
            raise OutputLost(OSError(error.errno, error.strerror, self.name))


def guard_outputs() -> None:
    """Make standard output and error streams that never raise, except in `run_command`.

    A stream that leads to memory stays. A closed one leads to the null device; otherwise the next
    file that is opened would take its number, and what libraries print.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # takes the lowest number that is free
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        stream = getattr(sys, name)
        if number == 0 or stream is not getattr(sys, f"__{name}__"):
            continue
        old = stream or io.TextIOWrapper(io.FileIO(number, "w", closefd=False))
        if isinstance(getattr(old.buffer, "raw", old.buffer), _StandardStream):
            continue
        raw = _StandardStream(old.fileno(), name)
        old.flush()
        unbuffered = isinstance(old.buffer, io.RawIOBase)  # python -u
        stream = io.TextIOWrapper(
            cast(BinaryIO, raw) if unbuffered else io.BufferedWriter(raw),
            old.encoding,
            old.errors,
            line_buffering=old.line_buffering,
            write_through=unbuffered,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


@contextlib.contextmanager
def _with_outputs(needed: bool) -> Iterator[None]:
    """Print all of what the block prints, or raise if it is needed; inner blocks change nothing."""
    outer = _StandardStream.is_needed
    _StandardStream.is_needed = needed if outer is None else outer
    try:
        yield
        sys.stdout.flush()
    except SystemExit as stop:
        if not stop.code:  # as after --help
            sys.stdout.flush()
        raise
    finally:
        _StandardStream.is_needed = outer


def run_command(
    main: Callable[[], None], *, at_once: bool = False, outlives_output: bool = False
) -> None:
    """Run a command's `main`; a PipelineError becomes one `error:` line and its exit code.

    An error with several problems prints one more line for each.

    outlives_output: continue without output when its reader, its terminal or its disk is gone, for
    hours of work that is saved to files. Any other command ends, with 141 or an error.

    at_once: exit without the interpreter's clean-up, in which a thread of a process group can still
    abort a finished command and change its exit code.
    """
    if not at_once:
        _run(main, outlives_output)
        return
    try:
        _run(main, outlives_output)
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


def described(error: BaseException) -> str:
    """The class of an error and what it says; that of a user's own class may fail as well."""
    try:
        return f"{type(error).__name__}: {error}"
    except BaseException:
        return type(error).__name__


def listed(names: Iterable[str]) -> str:
    """Names of fields or columns in a message, or the first of them if they are long."""
    shown = ", ".join(map(escaped, itertools.islice(names, _MOST_LISTED)))
    return shown if len(shown) <= _MOST_LISTED else f"{shown[:_MOST_LISTED]} ..."


def escaped(text: str) -> str:
    """Text without what does not print or breaks a line, which is written as in Python: `\\n`."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shown_name(name: str) -> str:
    """A file's name in ids and messages: one line, in which nothing is invisible.

    Ids are printed, pasted, and listed a line each (`prepare --exclude`). So what does not print
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


def _run(main: Callable[[], None], outlives_output: bool) -> None:
    guard_outputs()
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr: a terminal may be ASCII
    try:
        with _with_outputs(needed=not outlives_output):
            main()
    except PipelineError as error:
        lines = str(error).split("\n  ") if error.problems else [str(error)]
        print("error:", "\n  ".join(map(one_line, lines)), file=sys.stderr)
        sys.exit(error.exit_code)
    except OutputLost as lost:
        if lost.reason.errno == errno.EPIPE:
            sys.exit(EXIT_NO_READER)  # without a line: `| head` has all that it wants
        _end_by(lost.reason)
    except OSError as error:
        # A full, read-only or missing disk. No file is left half-written.
        if error.filename is None and error.errno not in _FULL:
            raise
        _end_by(error)
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


def _end_by(error: OSError) -> NoReturn:
    where = f"{error.filename}: " if error.filename else ""
    reason = error.strerror or str(error)
    print(one_line(f"error: {where}{reason}; fix this and rerun"), file=sys.stderr)
    sys.exit(EXIT_USER_ERROR)
