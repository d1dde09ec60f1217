"""Helpers for tests of `pipeline.prepare`: small inputs, arguments, and its output."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import xxhash

from pipeline.cluster import processes
from pipeline.data.shards import arrow_files
from tests.launching.process import ROOT, run, start

HANGS = 600
"""Seconds after which a command of a test is taken to hang."""
SMALL_SPLITS = ROOT / "tests" / "end_to_end" / "small_splits.py"
FORKED = (sys.executable, "-S", "-E", ROOT / "tests" / "launching" / "stand_in.py")
"""Python for mpiexec, torchrun or deepspeed to start: forked, see stand_in.py."""
MPIEXEC = Path(sys.executable).parent / "mpiexec"
"""mpiexec of the MPI in the environment, which mpi4py finds too."""
Said = Callable[..., tuple[int, str]]
"""Runs a command in this process; returns its exit code, and its output or error line."""
Call = Callable[..., str]
"""The same, which must end with `code`, by default 0; returns only the text."""
Prepare = Callable[..., str]
"""Runs `pipeline.prepare` in this process; returns its output, or with code=2 its error line."""


def contents(directory: Path) -> dict[str, str]:
    """Hash of every file below a directory, without the file times of the inputs."""
    return {
        file.relative_to(directory).as_posix(): xxhash.xxh3_64_hexdigest(file.read_bytes())
        for file in sorted(directory.rglob("*"))
        if file.is_file() and file.name != ".inputs.json"
    }


def tiny(tokenizer: Path, output: Path) -> list[object]:
    return ["--recipe", "roberta_tiny", "--tokenizer", tokenizer, "--output", output]


def rewrite(path: Path, table: pa.Table) -> dict[str, Any]:
    """Replace the rows of a shard file; returns the changes to the manifest's entry."""
    tables = arrow_files.regroup([table])
    entry = arrow_files.write_tables(path, table.schema, tables, "none")
    return {name: value for name, value in entry.items() if name != "file"}


def write_jsonl(path: Path, texts: Sequence[object]) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def many_documents(path: Path, count: int = 700) -> Path:
    """Documents of about 500 bytes; with splits of 8 KB about 44 splits."""
    texts = [f"Document {i} begins. " + f"It says {i} again. " * (i % 50) for i in range(count)]
    return write_jsonl(path, texts)


@contextmanager
def started(*command: object, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A running command; it and its children are killed at the end."""
    process = start(
        command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=os.environ | environment,
    )  # fmt: skip
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@contextmanager
def small_disk(size: int) -> Iterator[None]:
    """No file can grow beyond `size` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def at_once_without_locks(
    place: Path, *commands: Sequence[object], **environment: str
) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of commands that publish a folder at the same moment, on a file
    system whose locks exclude nobody; place: a new folder."""
    place.mkdir()
    script = (sys.executable, ROOT / "tests" / "pipeline" / "without_locks.py")
    return at_once(*[(*script, place, len(commands), *each) for each in commands], **environment)


def at_once(*commands: Sequence[object], **environment: str) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of commands that run at the same time; none may hang."""
    with ExitStack() as running:
        all_of = [running.enter_context(started(*each, **environment)) for each in commands]
        said = [process.communicate(timeout=HANGS) for process in all_of]
        return [(process.returncode, *texts) for process, texts in zip(all_of, said)]


def finish(*command: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; one that hangs fails the test."""
    ((code, out, errors),) = at_once(command, **environment)
    return subprocess.CompletedProcess(command, code, out, errors)


def printed_without(modules: Sequence[str], name: str, *words: object) -> str:
    """What a command prints in a process that cannot import some modules."""
    code = (
        f"import sys; sys.modules |= dict.fromkeys({[*modules]})\n"
        f"from pipeline.{name} import main; sys.argv = {[name, *map(str, words)]}; main()"
    )
    result = run([sys.executable, "-c", code], cold=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


def children(process: int) -> list[int]:
    """Process ids; none if the process has ended."""
    try:
        found = Path(f"/proc/{process}/task/{process}/children").read_text()
    except OSError:
        return []
    return [int(child) for child in found.split()]


def wait_until(
    happened: Callable[[], object], running: subprocess.Popen[str] | None = None, seconds: int = 120
) -> None:
    """Look every few milliseconds; the process that makes it happen must not end before."""
    deadline = time.monotonic() + seconds
    while not happened():
        assert running is None or running.poll() is None, f"it ended: {running.communicate()}"
        assert time.monotonic() < deadline, f"has not happened within {seconds} s"
        time.sleep(0.003)


def wait_for_end(
    *given: int, started_by: subprocess.Popen[str] | None = None, seconds: float = 120
) -> None:
    """Wait until these processes are gone; kill them if they do not end.

    started_by: has their stderr, with the stacks of those that are left.
    """
    left = {process: began for process in given if (began := processes.read_start_time(process))}
    deadline = time.monotonic() + seconds
    while left and time.monotonic() < deadline:
        left = {p: began for p, began in left.items() if processes.read_start_time(p) == began}
        time.sleep(0.01)
    for number in (signal.SIGUSR2, signal.SIGKILL) if left else ():
        for process in left:
            os.kill(process, number)
        time.sleep(1)
    stacks = started_by.communicate(timeout=60)[1] if left and started_by else ""
    assert not left, f"still there after {seconds} s: {sorted(left)}; {stacks}"
