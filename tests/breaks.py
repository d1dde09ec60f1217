"""Plants plausible mistakes in copies of the product, and shows that a test notices each of them.

    python tests/breaks.py                 every mistake, a quarter of an hour on two cores
    python tests/breaks.py seek kernels/   those whose name or file contains one of these words

The mistakes are in `tests/faults/*.txt`, by file of the product: after what a mistake would do to a
user, the text that occurs once in the file (-), what replaces it (+), and the tests that have to
notice (@), each in a line: a file, or a test by its name in pytest. ` -k WORD` chooses among the
parameters of a test, and then it is the only one. These run, and one has to fail.
A mistake that nothing catches, or whose tests take over `MOST_SECONDS` of CPU, is an error: the
exit code counts them.

Tests that notice look from outside, or compare numbers (`CATCHERS`). Those of a module's inner
parts do not count: they change when code moves, and say nothing about what users see.
"""

import multiprocessing
import os
import re
import resource
import select
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from threading import Timer
from types import SimpleNamespace
from typing import NamedTuple, NoReturn

import pytest
from numba.core.caching import _CacheLocator
from numba.core.config import reload_config as reload_numba_config

ROOT = Path(__file__).parents[1]
MOST_SECONDS = 60
"""Of CPU, for the tests of one mistake."""
PATIENCE = 8
"""Seconds of the clock per second of CPU, on slow machines."""
OURS = ("pipeline", "model", "tests")
SERVER = multiprocessing.get_context("forkserver")
"""Starts each pytest from a process that has imported libraries, which take longer than tests."""
SERVER.set_forkserver_preload(["tests.launching.libraries"])
AFTER_SHARDS = (
    "model/", "pipeline/loading/", "pipeline/planning/", "pipeline/cluster/", "pipeline/training/",
    "pipeline/evaluation/", "pipeline/downstream/", "pipeline/experiments/", "pipeline/reporting/",
    "pipeline/diagnosis/",
)  # fmt: skip
"""Rooms that tokenizers and shards are made without: their mistakes share those of the tables."""


NUMERIC = (
    # masks, rows, bits and permutations beside slow references
    "tests/pipeline/data/rows/", "tests/pipeline/kernels/",
    # words, near-copies and rules beside other implementations; ids beside the library's
    "tests/pipeline/data/selection/test_words.py", "tests/pipeline/data/selection/test_minhash.py",
    "tests/pipeline/data/selection/test_rule_sets.py", "tests/pipeline/data/tokenizers/",
    "tests/pipeline/ingest/compression/test_codecs.py", "tests/pipeline/data/text/test_excluded.py",
    # sentences, encodings and wikitext: texts in, texts out
    "tests/pipeline/data/text/test_sentences.py", "tests/pipeline/data/text/test_giants.py",
    "tests/pipeline/ingest/encodings/", "tests/pipeline/ingest/wikitext/",
    # order, mixtures, seeks, decoding and dropout keys of what a run reads
    "tests/pipeline/loading/test_order.py", "tests/pipeline/loading/test_loader.py",
    "tests/pipeline/loading/test_decode.py", "tests/pipeline/loading/test_micro_batch.py",
    "tests/pipeline/loading/test_proportions.py", "tests/pipeline/loading/test_resolve.py",
    # the model and its objectives beside formulas, autograd and transformers
    "tests/model/", "tests/pipeline/training/weights/test_token_pieces.py",
    # the optimizer beside its formula, at every stage; rates beside published ones; sums of ranks
    "tests/pipeline/training/optimizer/", "tests/pipeline/planning/test_schedule.py",
    "tests/pipeline/training/test_step_count.py", "tests/pipeline/training/test_loss_watch.py",
    # checkpoints: killed at every point, synced, as safetensors writes them
    "tests/pipeline/training/checkpoints/test_saver.py",
    "tests/pipeline/training/checkpoints/test_weight_file.py",
    # scores beside scikit-learn, scipy, seqeval, SQuAD's script and minicons
    "tests/pipeline/evaluation/", "tests/pipeline/experiments/test_significance.py",
    "tests/pipeline/downstream/test_features.py", "tests/pipeline/downstream/test_tfidf.py",
    # recipes and tables beside their papers
    "tests/pipeline/recipes/", "tests/pipeline/experiments/tables/",
)  # fmt: skip
"""Tests that compare what public functions compute with a reference, a peer or published numbers.

They may have the name of a module; what is listed here asks for results, not for inner parts."""
EXAMPLES = (
    "tests/pipeline/base/test_durations.py", "tests/pipeline/base/test_progress.py",
    "tests/pipeline/config/test_training_settings.py", "tests/pipeline/execution/test_workers.py",
    "tests/pipeline/costs/", "tests/pipeline/downstream/reading/test_division.py",
    "tests/pipeline/experiments/test_measures.py", "tests/pipeline/experiments/test_results.py",
    "tests/pipeline/released/test_folder.py", "tests/pipeline/reporting/",
    "tests/pipeline/data/selection/test_contamination.py",
    "tests/pipeline/data/selection/test_sample.py", "tests/pipeline/data/shards/",
    "tests/pipeline/ingest/corpora/", "tests/pipeline/ingest/documents/",
    "tests/pipeline/ingest/extraction/",
)  # fmt: skip
"""Tests of public functions by examples, for what no row shows yet; a list that only shrinks."""
CATCHERS = ("tests/end_to_end/", "tests/golden/", *NUMERIC, *EXAMPLES)
"""How names of tests begin that may notice a mistake."""


class Fault(NamedTuple):
    """A plausible mistake."""

    file: str
    """In which it is planted."""
    name: str
    """What it would do to a user."""
    old: str
    new: str
    tests: tuple[str, ...]
    """That notice it: files, or names in pytest."""


def _read_faults(path: Path) -> Iterator[Fault]:
    for block in path.read_text(encoding="utf-8").rstrip().split("\n\n")[1:]:
        file, *entries = re.split(r"\n  (?=\S)", block)
        for entry in entries:
            name, *lines = entry.split("\n")
            marks = [line[4:5] for line in lines]
            assert {*marks} <= {*"-+@"}, entry
            old, new, tests = ([line[6:] for line in lines if line[4] == mark] for mark in "-+@")
            yield Fault(file, name, "\n".join(old), "\n".join(new), tuple(tests))


FAULTS = [fault for path in sorted(ROOT.glob("tests/faults/*.txt")) for fault in _read_faults(path)]


class Outcome(NamedTuple):
    """Of the tests of a mistake."""

    code: int
    """pytest's exit code."""
    seconds: float
    """Of CPU, with children."""
    failed: str
    """The test that noticed."""

    @property
    def problem(self) -> str:
        """What is wrong with the tests; empty if they notice the mistake in time."""
        if self.code != 1:
            return "is NOT noticed" if self.code == 0 else f"breaks its tests with code {self.code}"
        return f"takes {self.seconds:.0f} s of CPU" if self.seconds > MOST_SECONDS else ""


def outcome(fault: Fault, checkout: Path) -> Outcome:
    """Plant a mistake in this copy, and run its tests."""
    source = checkout / fault.file
    before, about = source.read_text(), source.stat()
    assert before.count(fault.old) == 1, fault
    source.write_text(before.replace(fault.old, fault.new))
    try:
        return _in_a_process(_run_tests, checkout, fault, patience=PATIENCE * MOST_SECONDS)
    finally:
        source.write_text(before)
        os.utime(source, ns=(about.st_atime_ns, about.st_mtime_ns))  # its kernels are not stale


def _in_a_process(target: Callable[..., None], *arguments: object, patience: float) -> Outcome:
    """patience: seconds until it is killed."""
    ours, theirs = SERVER.Pipe(duplex=False)
    process = SERVER.Process(target=target, args=(*arguments, theirs))
    process.start()
    theirs.close()
    timer = Timer(patience, os.killpg, [process.pid, signal.SIGKILL])
    timer.start()  # a mistake may make a test wait forever
    try:
        result = Outcome(*ours.recv())
    except EOFError:
        result = Outcome(-signal.SIGKILL, 0.0, "")
    process.join()
    timer.cancel()
    return result


def _run_tests(checkout: Path, fault: Fault, answer: Connection) -> None:
    """In a child of SERVER, which has imported libraries and nothing of the product."""
    _enter(checkout)
    with _folder() as folder:
        kernels = Path(f"{checkout}-kernels")
        if stale := _stale_kernels(checkout, fault.file):
            names = [f"{stem}.*" for stem in stale]
            shutil.copytree(kernels, f"{folder}/kernels", ignore=shutil.ignore_patterns(*names))
            kernels = Path(f"{folder}/kernels")
        os.environ["NUMBA_CACHE_DIR"] = str(kernels)
        reload_numba_config()
        shared = Path(folder) / "shared"
        shared.mkdir()
        if fault.file.startswith(AFTER_SHARDS):
            for made in Path(f"{checkout}-shared").glob("*"):
                (shared / made.name).symlink_to(made)
        with _launcher():
            notes = _Failures()
            words = ["-x", "-q", "-p", "no:cacheprovider", "--basetemp", f"{folder}/tests"]
            chosen = [word for test in fault.tests for word in re.split(" (-k) ", test)]
            code = pytest.main([*words, *chosen], plugins=[notes])
    answer.send((int(code), _cpu_seconds(), notes.first))


def _stale_kernels(checkout: Path, file: str) -> set[str]:
    """Stems of the files whose kernels a mistake in this one changes; the others stay compiled.

    numba itself looks only at a kernel's own file. A mistake in a constant that a kernel imports
    from a file without numba would stay compiled: plant none.
    """
    if "numba" not in (checkout / file).read_text():
        return set()
    found, texts = {file}, {}
    for path in checkout.glob("pipeline/**/*.py"):
        if "numba" in (text := path.read_text()):
            texts[path.relative_to(checkout).as_posix()] = text
    while True:
        names = [name.removesuffix(".py").replace("/", ".") for name in found]
        more = {
            path
            for path, text in texts.items()
            if any(f"from {name} import" in text for name in names)
        }
        if more <= found:
            return {Path(name).stem for name in found}
        found |= more


def _make_shards(checkout: Path, answer: Connection) -> None:
    """Make the tokenizers and shards of the tables of commands, in a child of SERVER."""
    _enter(checkout)
    os.environ["NUMBA_CACHE_DIR"] = f"{checkout}-kernels"
    reload_numba_config()
    shared = Path(f"{checkout}-shared")
    with _folder() as folder, _launcher():
        from tests.end_to_end.commands import Commands
        from tests.end_to_end.features import PREPARATIONS

        (Path(folder) / "shared").symlink_to(shared)
        factory = SimpleNamespace(getbasetemp=lambda: Path(folder) / "tests")
        names = [name for name in PREPARATIONS if name.endswith(("tokenizer", "shards"))]
        Commands(factory, PREPARATIONS).link(" ".join(names), checkout.parent)
    answer.send((0, _cpu_seconds(), ""))


def _enter(checkout: Path) -> None:
    """Leave the checkout without a mistake, and the terminal."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    for name in [name for name in sys.modules if name.partition(".")[0] in OURS]:
        del sys.modules[name]
    os.chdir(checkout)
    sys.path.insert(0, str(checkout))
    os.environ["PYTHONPATH"] = str(checkout)


@contextmanager
def _folder() -> Iterator[str]:
    """A temporary one that the exit of a forked child leaves alone, unlike tempfile's."""
    folder = tempfile.mkdtemp()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def _launcher() -> Iterator[None]:
    """The fork server of commands, itself forked from here, where libraries are imported."""
    from tests.launching import process  # of the copy
    from tests.launching.shared import WORKER

    class Owner(process.ForkServerOwner):
        def _start_when_asked(self) -> None:
            """Forked below instead."""

    owner = Owner()
    os.environ[WORKER] = "breaks"  # so that pytest starts no other, and shares our folder
    reading, writing = os.pipe()
    server = os.fork()
    if not server:
        os.close(writing)
        os.dup2(reading, sys.stdin.fileno())
        _serve_commands(owner.listener.fileno())
    os.close(reading)
    yield
    os.close(writing)
    os.waitpid(server, 0)  # counts its seconds
    owner.close()


def _serve_commands(listener: int) -> NoReturn:
    """Import the product at the first request; returns in no process."""
    select.select([listener, sys.stdin], [], [])
    # Its children are processes of their own, not of multiprocessing.
    resource_tracker._resource_tracker.__init__()
    multiprocessing.process._parent_process = None
    try:
        from tests.launching import fork_server  # of the copy
        from tests.launching.main_module import run_as_main

        fork_server.import_modules()
        request = fork_server.ForkServer(socket.socket(fileno=listener)).serve()
        run_as_main(request["arguments"])
    except SystemExit as end:
        if "mpi4py.MPI" in sys.modules:
            sys.modules["mpi4py.MPI"].Finalize()
        os._exit(int(end.code or 0))
    except BaseException:
        os._exit(1)
    os._exit(0)


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


class _Failures:
    """A plugin of pytest that keeps the name of the first test that fails."""

    first = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called by pytest."""
        if report.failed and not self.first:
            self.first = report.nodeid


@contextmanager
def copies(count: int, *, are_ready: bool = False) -> Iterator[SimpleQueue[Path]]:
    """Copies of the checkout, each for one mistake at a time.

    are_ready: with compiled kernels, tokenizers and shards, which tests make otherwise.
    """
    with tempfile.TemporaryDirectory() as folder:
        copies = [Path(folder) / f"checkout-{number}" for number in range(count)]
        shared = Path(folder) / "shared"
        shared.mkdir()
        for copy in copies:
            shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "__pycache__", "build"))
            Path(f"{copy}-kernels").mkdir()
            Path(f"{copy}-shared").symlink_to(shared)
        if are_ready:
            made = _in_a_process(_make_shards, copies[0], patience=3600)
            assert made.code == 0, made
            for copy in copies[1:]:
                _lend_kernels(copies[0], copy)
        free: SimpleQueue[Path] = SimpleQueue()
        for copy in copies:
            free.put(copy)
        yield free


def _lend_kernels(owner: Path, copy: Path) -> None:
    """Copy compiled kernels to where numba looks for those of another copy of the sources."""
    for file in owner.glob("pipeline/**/__init__.py"):
        names = [
            _CacheLocator.get_suitable_cache_subpath(str(path))
            for path in (file, copy / file.relative_to(owner))
        ]
        if (kernels := Path(f"{owner}-kernels") / names[0]).exists():
            shutil.copytree(kernels, Path(f"{copy}-kernels") / names[1])


def main() -> None:
    """Plant every chosen mistake; exit with the number of those that are not noticed."""
    words = sys.argv[1:]
    chosen = [
        fault
        for fault in FAULTS
        if not words or any(word in f"{fault.file} {fault.name}" for word in words)
    ]
    workers = os.cpu_count() or 1
    wrong, seconds = 0, 0.0
    with copies(workers, are_ready=True) as free, ThreadPoolExecutor(workers) as pool:

        def tried(fault: Fault) -> Outcome:
            checkout = free.get()
            try:
                return outcome(fault, checkout)
            finally:
                free.put(checkout)

        for fault, found in zip(chosen, pool.map(tried, chosen), strict=True):
            wrong += bool(found.problem)
            seconds += found.seconds
            noticed = f"noticed by {found.failed} in {found.seconds:.0f} s"
            print(f"{fault.file}: {fault.name}: {found.problem or noticed}", flush=True)
    print(f"{len(chosen) - wrong} of {len(chosen)} mistakes are noticed in {seconds:.0f} s of CPU")
    sys.exit(min(wrong, 100))


if __name__ == "__main__":
    main()
