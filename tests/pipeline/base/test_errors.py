"""An error is one line and an exit code, without a traceback."""

import errno
import os
import pickle
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.base.errors import CheckpointError, ConfigError, DataError, DivergedError, run_command
from tests.launching import process

NO_SPACE = "No space left on device"
TWO = ConfigError("2 problems:", ["steps=0;  choose 1\nor more", "seed=-1; choose 0"])
SAID: dict[str, tuple[Exception, str]] = {
    **{
        kind.__name__: (kind("lr=0\nis out of range;  choose 1"), "lr=0 is out of range; choose 1")
        for kind in (ConfigError, DataError, CheckpointError, DivergedError)
    },
    "not printable": (  # a damaged file's bytes must not command the terminal
        DataError("type \x0e \x1b[2J\u202e is unknown, unlike é"),
        "type \\x0e \\x1b[2J\\u202e is unknown, unlike é",
    ),
    "looks like a space": (  # the file is called so, and not with a plain space
        DataError("a\u00a0b\u200c.txt is\tempty;\u2028 drop it"),
        "a\\xa0b\\u200c.txt is empty;\\u2028 drop it",
    ),
    "a URL's secrets": (
        ConfigError("unknown corpus 's3://AKIA:s3cret@b/a', got https://h/a?sig=1; give one"),
        "unknown corpus 's3://b/a', got https://h/a; give one",
    ),
    "a line per problem, also if pickled in another process": (
        pickle.loads(pickle.dumps(TWO)),
        "2 problems:\n  steps=0; choose 1 or more\n  seed=-1; choose 0",
    ),
    "a full disk without a file name, as of numba's cache": (
        OSError(errno.ENOSPC, NO_SPACE), f"{NO_SPACE}; fix this and rerun",
    ),
    "the file of a full disk": (
        OSError(errno.ENOSPC, NO_SPACE, "a\u00a0b\u200d\udcff.txt"),
        f"a\\xa0b\\u200d\\udcff.txt: {NO_SPACE}; fix this and rerun",
    ),
}  # fmt: skip


def raised(error: Exception) -> Iterator[None]:
    """Raises it when it is asked for the next item."""
    raise error
    yield


@pytest.mark.parametrize("name", SAID)
def test_an_error_is_one_line_and_exit_code(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    error, line = SAID[name]
    with pytest.raises(SystemExit) as stop:
        run_command(lambda: next(raised(error)))
    assert stop.value.code == (3 if isinstance(error, DivergedError) else 2)
    assert capsys.readouterr() == ("", f"error: {line}\n")


def test_the_middle_of_a_long_message_is_dropped(capsys: pytest.CaptureFixture[str]) -> None:
    """A damaged file can have names of any length; what is wrong and the remedy stay."""
    error = DataError(f"a.json is damaged: {'9' * 10**6} is unknown; copy it again")
    with pytest.raises(SystemExit):
        run_command(lambda: next(raised(error)))
    said = capsys.readouterr().err
    assert len(said) < 4100 and said.startswith("error: a.json is damaged: 999")
    assert "999 ... 999" in said and said.endswith("999 is unknown; copy it again\n")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(), MemoryError("Unable to allocate 3 GiB"),
        RuntimeError("can't start new thread"), BlockingIOError(errno.EAGAIN, "fork"),
    ],
)  # fmt: skip
def test_memory_that_is_not_there(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        run_command(lambda: next(raised(error)))
    said = capsys.readouterr().err
    assert stop.value.code == 2 and said.startswith("error: ") and said.count("\n") == 1


@pytest.mark.parametrize(
    "error", [KeyError("ours"), RuntimeError("ours"), OSError(errno.EBADF, "")]
)
def test_internal_errors_keep_their_traceback(error: Exception) -> None:
    with pytest.raises(type(error)) as kept:
        run_command(lambda: next(raised(error)))
    assert kept.value is error


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
    result = process.run([sys.executable, "-c", script], cold=True)
    assert (result.returncode, result.stdout) == (code, "done\n")


SAYS = """
import logging, os, subprocess, sys, threading, warnings
from tqdm import tqdm
from pipeline.base.errors import run_command

def work():
    for number in range(3):
        print("a line", number)
        print("a line", number, flush=True)
        print("a line", number, file=sys.stderr)
        logging.warning("a line")
        warnings.warn(f"a line {number}")
        tqdm.write("a line")
        tqdm.write("a line", file=sys.stderr)
        for _ in tqdm(range(2)):
            pass
        thread = threading.Thread(target=print, args=("a line",), kwargs={"flush": True})
        thread.start()
        thread.join()
        subprocess.run([sys.executable, "-S", "-c", "print('a line', flush=True)"])
        os.fstat(1), os.fstat(2)
    open(sys.argv[1], "w").close()

run_command(work, outlives_output=sys.argv[2] == "outlives", at_once=sys.argv[3] == "at once")
"""


def gone(kind: str) -> int:
    """A descriptor whose reader, terminal or disk is gone."""
    if kind == "disk":
        return os.open("/dev/full", os.O_WRONLY)
    reading, writing = os.openpty() if kind == "terminal" else os.pipe()
    os.close(reading)
    return writing


@pytest.mark.parametrize(
    ("kind", "flags"),
    [("reader", []), ("reader", ["-u"]), ("terminal", []), ("disk", []), ("closed", [])],
)
def test_output_that_is_gone(kind: str, flags: list[str], tmp_path: Path) -> None:
    """Hours of training ended with the reader of their output, and `prepare | head` with 0."""
    for mode, how in (("outlives", "at once"), ("outlives", ""), ("needs", "")):
        done = tmp_path / f"{mode} {how}"
        command = [sys.executable, *flags, "-c", SAYS, done, mode, how]
        if kind == "closed":  # from the start, as of a daemon: nobody wants the output
            words = shlex.join(map(str, command))
            result = process.run(["sh", "-c", f"{words} >&- 2>&-"], cwd=process.ROOT, cold=True)
        else:
            given = gone(kind)
            result = process.run(command, stdout=given, stderr=given, cold=True)
            os.close(given)
        ends = mode == "needs" and kind != "closed"
        assert result.returncode == ((141 if kind == "reader" else 2) if ends else 0)
        assert done.exists() is not ends


@pytest.mark.parametrize(("kind", "code"), [("reader", 141), ("disk", 2)])
def test_a_loss_is_none_of_what_users_functions_catch(kind: str, code: int) -> None:
    """A document whose function printed was dropped, and the command ended with 0."""
    text = (
        "from pipeline.base.errors import run_command\n"
        "def main():\n"
        "    try:\n"
        "        print(1, flush=True)\n"
        "    except Exception:\n"
        "        pass\n"
        "run_command(main)"
    )
    given = gone(kind)
    done = process.run([sys.executable, "-c", text], stdout=given, cold=True)
    os.close(given)
    assert done.returncode == code and "Traceback" not in done.stderr


def test_a_full_disk_may_have_room_later(tmp_path: Path) -> None:
    """What does not fit is lost, and what fits is written."""
    code = (
        "import os, resource, signal, sys\n"
        "from pipeline.base.errors import run_command\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "def main():\n"
        "    for size in (20, 10**6):\n"
        "        resource.setrlimit(resource.RLIMIT_FSIZE, (size, 10**6))\n"
        "        print('0123456789' * 5, flush=True)\n"
        "run_command(main, outlives_output=True)"
    )
    with (tmp_path / "log").open("w") as log:
        done = process.run([sys.executable, "-c", code], stdout=log, cold=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "log").read_text() == "0123456789" * 2 + "0123456789" * 5 + "\n"


def test_a_reader_that_leaves_ends_help_as_other_tools() -> None:
    code = "from pipeline.base.errors import run_command; run_command(lambda: print(1))"
    reading, writing = os.pipe()
    os.close(reading)
    done = process.run([sys.executable, "-c", code], stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_terminal_without_the_letters() -> None:
    code = "from pipeline.base.errors import run_command; run_command(lambda: print('é│█'))"
    ascii_only = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = process.run([sys.executable, "-c", code], env=ascii_only)
    assert (done.returncode, done.stdout) == (0, "\\xe9\\u2502\\u2588\n"), done.stderr
