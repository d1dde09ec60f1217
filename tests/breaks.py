"""Plants plausible mistakes in copies of the product, and shows that a test notices each of them.

    python tests/breaks.py                 every mistake, a quarter of an hour on two cores
    python tests/breaks.py seek kernels/   those whose name or file contains one of these words

The mistakes are in `tests/faults/*.txt`, by file of the product: after what a mistake would do to a
user, the text that occurs once in the file (-), what replaces it (+), and the tests that have to
notice (@), if they are not those of the file itself. These run, and one has to fail. A mistake that
nothing catches, or whose tests take over `MOST_SECONDS` of CPU, is an error: the exit code counts
them.
"""

import multiprocessing
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from threading import Timer
from typing import NamedTuple

import pytest
from numba.core.config import reload_config as reload_numba_config

ROOT = Path(__file__).parents[1]
MOST_SECONDS = 120
"""Of CPU, for the tests of one mistake."""
PATIENCE = 8
"""Seconds of the clock per second of CPU, on slow machines."""
OURS = ("pipeline", "model", "tests")
SERVER = multiprocessing.get_context("forkserver")
"""Starts each pytest from a process that has imported libraries, which take longer than tests."""
SERVER.set_forkserver_preload(["pandas", "pytest", "sklearn.metrics", "torch", "transformers"])


class Fault(NamedTuple):
    """A plausible mistake."""

    file: str
    """In which it is planted."""
    name: str
    """What it would do to a user."""
    old: str
    new: str
    tests: str
    """File or folder of the tests that notice it."""


def _read_faults(path: Path) -> Iterator[Fault]:
    for block in path.read_text(encoding="utf-8").rstrip().split("\n\n")[1:]:
        file, *entries = re.split(r"\n  (?=\S)", block)
        folder, _, stem = file.rpartition("/")
        for entry in entries:
            name, *lines = entry.split("\n")
            marks = [line[4:5] for line in lines]
            assert {*marks} <= {*"-+@"}, entry
            old, new, tests = (
                "\n".join(line[6:] for line in lines if line[4] == mark) for mark in "-+@"
            )
            yield Fault(file, name, old, new, tests or f"tests/{folder}/test_{stem}")


FAULTS = [fault for path in sorted(ROOT.glob("tests/faults/*.txt")) for fault in _read_faults(path)]


def notices(fault: Fault, checkout: Path) -> str:
    """Plant a mistake in this copy; returns what is wrong with its tests, empty if they fail."""
    source = checkout / fault.file
    before = source.read_text()
    assert before.count(fault.old) == 1, fault
    source.write_text(before.replace(fault.old, fault.new))
    try:
        code, seconds = _run_tests(checkout, fault)
    finally:
        source.write_text(before)
    if code != 1:
        return "is NOT noticed" if code == 0 else f"breaks its tests with code {code}"
    return f"takes {seconds:.0f} s of CPU" if seconds > MOST_SECONDS else ""


def _run_tests(checkout: Path, fault: Fault) -> tuple[int, float]:
    """pytest's exit code, and the CPU seconds of it with its children."""
    ours, theirs = SERVER.Pipe(duplex=False)
    process = SERVER.Process(target=_pytest, args=(checkout, fault, theirs))
    process.start()
    theirs.close()
    patience = Timer(PATIENCE * MOST_SECONDS, os.killpg, [process.pid, signal.SIGKILL])
    patience.start()  # a mistake may make a test wait forever
    try:
        result: tuple[int, float] = ours.recv()
    except EOFError:
        result = -signal.SIGKILL, 0.0
    process.join()
    patience.cancel()
    return result


def _pytest(checkout: Path, fault: Fault, answer: Connection) -> None:
    """In a child of SERVER, which has imported libraries and nothing of the product."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    for name in [name for name in sys.modules if name.partition(".")[0] in OURS]:
        del sys.modules[name]  # of this module, from the checkout without a mistake
    os.chdir(checkout)
    sys.path.insert(0, str(checkout))
    os.environ["PYTHONPATH"] = str(checkout)
    if "numba" not in (checkout / fault.file).read_text():
        # No kernel changes, so this copy's mistakes share them: the usual cache has a directory per
        # state of the product, and would compile them anew for each mistake. A mistake in a
        # constant that a kernel imports from a file without numba would stay compiled: plant none.
        os.environ["NUMBA_CACHE_DIR"] = f"{checkout}-kernels"
        reload_numba_config()
    code = pytest.main(["-x", "-q", fault.tests, "-p", "no:cacheprovider"])
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    answer.send((int(code), sum(one.ru_utime + one.ru_stime for one in used)))


@contextmanager
def copies(count: int) -> Iterator[SimpleQueue[Path]]:
    """Copies of the checkout, each for one mistake at a time."""
    with tempfile.TemporaryDirectory() as folder:
        free: SimpleQueue[Path] = SimpleQueue()
        for number in range(count):
            copy = Path(folder) / f"checkout-{number}"
            shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "__pycache__", "build"))
            free.put(copy)
        yield free


def main() -> None:
    """Plant every chosen mistake; exit with the number of those that are not noticed."""
    words = sys.argv[1:]
    chosen = [
        fault
        for fault in FAULTS
        if not words or any(word in f"{fault.file} {fault.name}" for word in words)
    ]
    workers = os.cpu_count() or 1
    wrong = 0
    with copies(workers) as free, ThreadPoolExecutor(workers) as pool:

        def tried(fault: Fault) -> str:
            checkout = free.get()
            try:
                return notices(fault, checkout)
            finally:
                free.put(checkout)

        for fault, problem in zip(chosen, pool.map(tried, chosen), strict=True):
            wrong += bool(problem)
            print(f"{fault.file}: {fault.name}: {problem or 'noticed'}", flush=True)
    print(f"{len(chosen) - wrong} of {len(chosen)} mistakes are noticed")
    sys.exit(min(wrong, 100))


if __name__ == "__main__":
    main()
