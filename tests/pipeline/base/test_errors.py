"""An error is one line and an exit code, without a traceback."""

from __future__ import annotations

import errno
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator

import pytest

from pipeline.base.errors import CheckpointError, ConfigError, DataError, DivergedError, run_command


@pytest.mark.parametrize(
    ("kind", "code"),
    [(ConfigError, 2), (DataError, 2), (CheckpointError, 2), (DivergedError, 3)],
)
def test_an_error_is_one_line_and_its_exit_code(
    kind: type[Exception], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def main() -> None:
        raise kind("batch.sequences=0\nis out of range;  choose 1 or more")

    with pytest.raises(SystemExit) as stop:
        run_command(main)
    assert stop.value.code == code
    out = capsys.readouterr()
    assert out.err == "error: batch.sequences=0 is out of range; choose 1 or more\n"
    assert out.out == ""


def test_what_is_not_printable_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    """A message can quote a damaged file, whose bytes must not command the terminal."""

    def main() -> None:
        raise DataError("type \x0e \x1b[2J\u202e is unknown, unlike é")

    with pytest.raises(SystemExit):
        run_command(main)
    assert capsys.readouterr().err == "error: type \\x0e \\x1b[2J\\u202e is unknown, unlike é\n"


def test_what_only_looks_like_a_space_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    """The file is called so, and not with a plain space."""

    def main() -> None:
        raise DataError("a\u00a0b\u200c.txt is\tempty;\u2028 drop it")

    with pytest.raises(SystemExit):
        run_command(main)
    assert capsys.readouterr().err == "error: a\\xa0b\\u200c.txt is empty;\\u2028 drop it\n"


def test_the_middle_of_a_long_message_is_dropped(capsys: pytest.CaptureFixture[str]) -> None:
    """A damaged file can have names of any length; what is wrong and the remedy stay."""

    def main() -> None:
        raise DataError(f"a.json is damaged: {'9' * 10**6} is unknown; copy it again")

    with pytest.raises(SystemExit):
        run_command(main)
    error = capsys.readouterr().err
    assert len(error) < 4100 and error.startswith("error: a.json is damaged: 999")
    assert "999 ... 999" in error and error.endswith("999 is unknown; copy it again\n")


def test_a_url_has_no_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever argument a message quotes."""

    def main() -> None:
        raise ConfigError("unknown corpus 's3://AKIA:s3cret@b/a', got https://h/a?sig=1; give one")

    with pytest.raises(SystemExit):
        run_command(main)
    said = "error: unknown corpus 's3://b/a', got https://h/a; give one\n"
    assert capsys.readouterr().err == said


def test_several_problems_have_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    """Also if the error was pickled in another process."""

    def main() -> None:
        error = ConfigError("2 problems:", ["steps=0;  choose 1\nor more", "seed=-1; choose 0"])
        raise pickle.loads(pickle.dumps(error))

    with pytest.raises(SystemExit) as stop:
        run_command(main)
    assert stop.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["error: 2 problems:", "  steps=0; choose 1 or more", "  seed=-1; choose 0"]


def test_internal_errors_keep_their_traceback() -> None:
    def main() -> None:
        raise KeyError("ours")

    with pytest.raises(KeyError):
        run_command(main)


def test_a_full_disk_without_a_file_name(capsys: pytest.CaptureFixture[str]) -> None:
    """As raised by numba's cache of compiled code."""

    def main(code: int) -> None:
        raise OSError(code, os.strerror(code))

    with pytest.raises(SystemExit) as stop:
        run_command(lambda: main(errno.ENOSPC))
    assert stop.value.code == 2
    said = "error: No space left on device; fix this and rerun\n"
    assert capsys.readouterr().err == said
    with pytest.raises(OSError, match="Bad file descriptor"):
        run_command(lambda: main(errno.EBADF))


def test_the_file_of_a_full_disk_is_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def main() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "a\u00a0b\u200d\udcff.txt")

    with pytest.raises(SystemExit):
        run_command(main)
    said = "error: a\\xa0b\\u200d\\udcff.txt: No space left on device; fix this and rerun\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("body", "code"),
    [("pass", 0), ("sys.exit(75)", 75), ("raise DataError('x')", 2), ("raise KeyError", 1)],
)
def test_exit_at_once_keeps_the_exit_code(body: str, code: int) -> None:
    script = (
        "import sys, atexit\nfrom pipeline.base.errors import DataError, run_command\n"
        "atexit.register(print, 'clean-up')\n"
        f"def main():\n    print('done')\n    {body}\nrun_command(main, at_once=True)"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (code, "done\n")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(), MemoryError("Unable to allocate 3 GiB"),
        RuntimeError("can't start new thread"), BlockingIOError(errno.EAGAIN, "fork"),
    ],
)  # fmt: skip
def test_memory_and_processes_that_are_not_there(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    def main() -> None:
        raise error

    with pytest.raises(SystemExit) as stop:
        run_command(main)
    said = capsys.readouterr().err
    assert stop.value.code == 2 and said.startswith("error: ") and said.count("\n") == 1
    with pytest.raises(RuntimeError, match="ours"):
        run_command(lambda: next(iter_that_raises()))


def iter_that_raises() -> Iterator[None]:
    raise RuntimeError("ours")
    yield


def test_a_terminal_without_the_letters() -> None:
    code = "from pipeline.base.errors import run_command; run_command(lambda: print('é│█'))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONIOENCODING": "ascii"}, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "\\xe9\\u2502\\u2588\n"), done.stderr
