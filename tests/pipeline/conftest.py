"""Small runs on the sample corpus that several tests share."""

import errno
import fcntl
import functools
import json
import multiprocessing.spawn
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from multiprocessing import resource_tracker
from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline import prepare
from pipeline.base.errors import run_command
from pipeline.config.settings import override
from pipeline.data.shards import arrow_files
from pipeline.data.shards.corpus_spans import corpus_spans
from pipeline.data.shards.manifest import read_manifest
from pipeline.evaluation import zero_shot
from pipeline.loading.dataset import Dataset
from pipeline.loading.order import Order
from pipeline.planning.build import build_model
from pipeline.planning.deepspeed_config import FOLDER
from pipeline.recipes import recipe
from pipeline.training.job import Job, read_job
from pipeline.training.network_arguments import parse_train
from pipeline.training.run_directory.run_status import PLAN
from pipeline.training.weights.model_folders import write_folder
from tests.launching import process
from tests.launching.process import quick_python
from tests.launching.shared import build_once
from tests.pipeline import preparing
from tests.pipeline.data.small_shards import edited, prepare_here
from tests.pipeline.phase_data import linked

PYTHON = sys.executable
PAIRS_SHIPPED = Path(zero_shot.__file__).with_name("zorro")
WORKER = Path(__file__).with_name("train_worker.py")
STEPS = 20
SETTINGS = {
    "encoder.layers": 1, "encoder.width": 32, "encoder.feed_forward": 64,
    "encoder.dropout": 0.1, "encoder.attention_dropout": 0.1,
    "encoder.initializer_range": 0.2,
    "batch.sequences": 16, "batch.per_device": 16,
    "steps": STEPS, "schedule.warmup_steps": 2, "optimizer.peak_lr": 0.02,
    "validation.every": STEPS, "checkpoint.every": 10, "logging.every": 1,
}  # fmt: skip
"""A run of a second or two; with dropout unless a test says otherwise."""

NO_DROPOUT: dict[str, object] = {"encoder__dropout": 0, "encoder__attention_dropout": 0}
LONG = {"batch__sequences": 64, "batch__per_device": 8}
"""For a run of some seconds, which can be interrupted."""

Arguments = Callable[..., list[str]]


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Threads do not speed up toy sizes, and slow them down on a busy machine."""
    torch.set_num_threads(1)


def started(*command: object) -> AbstractContextManager[subprocess.Popen[str]]:
    """`preparing.started` with one thread per process."""
    return preparing.started(*command, **environment())


def run_unheard(*command: object) -> int:
    """The exit code of a command whose output has no reader, as after `| head` has ended."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        return process.run(command, stdout=writing, stderr=writing, env=environment()).returncode
    finally:
        os.close(writing)


def launch(*command: object, timeout: int = 900) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    with started(*command) as process:
        output, errors = process.communicate(timeout=timeout)
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def succeed(*command: object, timeout: int = 900) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, which must be good."""
    result = launch(*command, timeout=timeout)
    assert result.returncode == 0, result.stdout + result.stderr
    return result


def train_jobs(
    path: Path, jobs: Sequence[list[str]], count: int = 1
) -> subprocess.CompletedProcess[str]:
    """Run training commands one after the other on the same ranks; path: a file for the jobs."""
    path.write_text(json.dumps(jobs))
    return succeed(*(forkrun(WORKER, path, count=count) if count > 1 else (PYTHON, WORKER, path)))


def with_data(arguments: list[str], *directories: Path) -> list[str]:
    """A training command with other data."""
    place = arguments.index("--data") + 1
    return [*arguments[:place], *map(str, directories), *arguments[place + 1 :]]


def environment() -> dict[str, str]:
    """A user's environment with one thread per process."""
    beside = str(Path(sys.executable).parent)  # ninja, torchrun and deepspeed are there
    return os.environ | {"OMP_NUM_THREADS": "1", "PATH": f"{beside}:{os.environ['PATH']}"}


def forkrun(*arguments: object, count: int = 2) -> list[object]:
    """The command that starts ranks quickly, see `tests.launching.ranks`."""
    return [PYTHON, "-m", "tests.launching.ranks", count, *arguments]


def torchrun(*arguments: object) -> list[object]:
    """The command that starts two ranks as users do."""
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2)
    return [PYTHON, *launcher, *arguments]


def torchrun_forked(*arguments: object) -> list[object]:
    """The same with ranks that start quickly; torchrun sees their stand-ins."""
    return torchrun("--no-python", *preparing.FORKED, *arguments)


def deepspeed_forked(*arguments: object) -> list[object]:
    """`deepspeed ARGUMENTS...`, whose processes start quickly."""
    program = (
        f"import sys; sys.executable = {str(quick_python())!r}\n"
        "from deepspeed.launcher.runner import main; main()"
    )
    return [PYTHON, "-c", program, *arguments]


@pytest.fixture
def quick_workers() -> Iterator[None]:
    """Worker processes of this process start quickly."""
    resource_tracker.ensure_running()  # lives longer than this
    usual = multiprocessing.spawn.get_executable()
    multiprocessing.set_executable(str(quick_python()))
    yield
    multiprocessing.set_executable(usual)


def poison(directory: Path, positions: range, seed: int = 0) -> None:
    """Bytes that hardly occur, in the rows at `positions` of a run's order of one dataset.

    seed: the run's. The shards stay valid: lengths, special ids and sizes do not change.
    """
    dataset = Dataset.open(directory)
    order = Order(kind="global", seed=seed, piece_rows=(dataset.piece_rows,))
    rng = np.random.default_rng(0)
    for row in order.locate(np.arange(positions.start, positions.stop)).row:
        shard, inside = place_of(dataset, row)
        path = directory / dataset.shards[shard].file
        ids = arrow_files.read_table(path)["input_ids"][inside].values.to_numpy()
        content = bytearray(path.read_bytes())
        place = content.index(ids.tobytes()) + ids.itemsize
        damaged = rng.integers(200, 260, ids.size - 2).astype(ids.dtype).tobytes()
        content[place : place + len(damaged)] = damaged
        path.write_bytes(content)


def place_of(dataset: Dataset, row: int) -> tuple[int, int]:
    """The number of a row's shard, and of the row inside it."""
    ends = np.cumsum([shard.sequences for shard in dataset.shards])
    shard = int(np.searchsorted(ends, row, side="right"))
    return shard, int(row - ends[shard] + dataset.shards[shard].sequences)


def hold_out_less(directory: Path, target: Path, most: int = 2) -> Path:
    """The same train rows under `target`, and the `most` smallest shards of held-out rows.

    Validating on a held-out book would take a small run longer than its steps.
    """
    keep_held_out(linked(directory, target), most)
    return target


def keep_held_out(directory: Path, most: int) -> None:
    """Keep the `most` smallest shards of held-out rows in the manifest."""
    whole = read_manifest(directory)
    held_out = whole.of("validation")
    gone = sorted(held_out, key=lambda shard: shard.sequences)[most:]
    with edited(directory) as manifest:
        for corpus, span in corpus_spans(directory, whole, held_out).items():
            rows = sum(shard.sequences for shard in held_out[span] if shard in gone)
            manifest["corpora"][corpus]["validation_sequences"] -= rows
            manifest["corpora"][corpus]["sequences"] -= rows
        names = {shard.file for shard in gone}
        manifest["shards"] = [shard for shard in manifest["shards"] if shard["file"] not in names]


@pytest.fixture(scope="session")
def lesson(tmp_path_factory: pytest.TempPathFactory, prepared: Path) -> Path:
    """`prepared` for runs that train: with little held out."""

    def build(folder: Path) -> None:
        hold_out_less(prepared, folder / "sample")

    return build_once(tmp_path_factory, "lesson", build) / "sample"


@pytest.fixture(scope="session")
def arguments(lesson: Path) -> Arguments:
    """arguments(run, extra..., **settings): of pipeline.train for a small run, dots as `__`."""

    def build(run: Path, *extra: object, **settings: object) -> list[str]:
        chosen = SETTINGS | {name.replace("__", "."): value for name, value in settings.items()}
        parts = ["roberta_tiny", "--data", lesson, "--output", run, *extra]
        for name, value in chosen.items():
            parts += ["--set", f"{name}={value}"]
        return list(map(str, parts))

    return build


@pytest.fixture(scope="session")
def short(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Path) -> Path:
    """The sample corpus as `lesson`, in sequences of 16."""

    def build(folder: Path) -> None:
        words = ("--corpus", "sample", "--set", "data.sequence_length=16")
        shards = prepare_here(tiny_tokenizer, folder / "sample", *words)
        hold_out_less(shards, folder / "lesson")

    return build_once(tmp_path_factory, "short", build) / "lesson"


PHASE = {"steps": 10, "sequence_length": 16, "sequences": 24}
"""Of a run over `lesson` and `short`."""


@pytest.fixture(scope="session")
def trained(
    tmp_path_factory: pytest.TempPathFactory, arguments: Arguments, lesson: Path, short: Path
) -> Path:
    """A folder of finished runs, named for their ranks, micro-batches and peculiarity."""

    def build(folder: Path) -> None:
        train_runs(folder, arguments, lesson, short)

    return build_once(tmp_path_factory, "runs", build)


def train_runs(folder: Path, arguments: Arguments, lesson: Path, short: Path) -> None:
    """The runs of `trained`, in two launches."""
    sixes: dict[str, object] = {"batch__per_device": 6, "optimizer__kind": "stable_adamw"}
    mixture = [{"corpus": "news", "weight": 3}, {"corpus": "web", "weight": 1}]
    other = ["encoder.dropout=0.3", f"batch.mixture={json.dumps(mixture)}"]
    grows = NO_DROPOUT | {"batch__warmup_steps": 9, "batch__first_sequences": 4}

    def phased(name: str, *extra: object, own: Sequence[str] = (), **settings: object) -> list[str]:
        """A command for a run of two phases; own: settings of the first."""
        phases = json.dumps([PHASE | {"settings": own}])
        return with_data(arguments(folder / name, *extra, **settings, phases=phases), short, lesson)

    river = ["river " * (100 + number) for number in range(40)]
    prepare_texts(lesson / "tokenizer", folder / "river", river)
    run = override(recipe("roberta_tiny"), [f"{name}={value}" for name, value in SETTINGS.items()])
    model = build_model(run, seed=5)
    write_folder(model, lesson / "tokenizer", folder / "model")
    again = NO_DROPOUT | {"validation__mask_rate": 0.3}
    begins = ("--init", folder / "model", "--set", "validation.mask_rate=0.3")
    whole = json.loads((FOLDER / "zero3.json").read_text())
    whole["zero_optimization"]["stage3_param_persistence_threshold"] = 0
    (folder / "zero3-small.json").write_text(json.dumps(whole))
    (folder / "pairs").mkdir()
    for name in ("ellipsis-n_bar.txt", "quantifiers-superlative.txt"):
        lines = (PAIRS_SHIPPED / name).read_text().splitlines(keepends=True)
        (folder / "pairs" / name).write_text("".join(lines[:20]))
    grammar = {"validation__grammar": folder / "pairs", "validation__every": 10}
    (folder / "1x6-resumed").mkdir()
    (folder / "1x6-resumed" / PLAN).write_text("{}")  # a comparison that the run must keep
    fork = ("--from", folder / "1x16" / "10")

    def run_of(name: str, *extra: object, **settings: object) -> list[str]:
        return arguments(folder / name, *extra, **settings)

    def exact(name: str, *extra: object, **settings: object) -> list[str]:
        return run_of(name, *extra, **NO_DROPOUT, **settings)

    two = [
        exact("2x8"),
        exact("2x4-zero3", "--ds", "zero3", batch__per_device=4),
        exact("2x4-grammar", "--ds", folder / "zero3-small.json", **grammar, batch__per_device=4),
        exact("2x3-zero0", "--ds", "zero0", batch__per_device=3),
        exact("moved", "--ds", "zero2", "--stop-at", 7),
        run_of("grown-moved", "--ds", "zero2", "--stop-at", 5, **grows, batch__per_device=3),
        run_of("2x8-long", **LONG),
        phased("phased-moved", "--ds", "zero3", "--stop-at", 12, **NO_DROPOUT, batch__per_device=3),
        exact("init-moved", "--ds", "zero3", "--stop-at", 3, *begins),
    ]
    one = [
        exact("1x16"),
        exact("1x8", "--profile", batch__per_device=8),
        exact("1x5", batch__per_device=5),
        exact("moved", "--ds", "zero0"),
        exact("stopped", "--stop-at", 7),
        run_of("grown", **grows),
        run_of("grown-moved", "--ds", "zero0", **grows),
        run_of("1x16-dropout"),
        run_of("1x16-grammar", **grammar),
        exact("init", *begins),
        run_of("init-moved", "--ds", "zero0", **again),
        exact("init-stops", "--stop-at", 3, *begins),
        run_of("init-stops", **again),
        with_data(exact("init-river", *begins, optimizer__peak_lr=0.1), folder / "river"),
        phased("phased-exact", **NO_DROPOUT),
        phased("phased-moved", **NO_DROPOUT),
        phased("phased", own=other, batch__per_device=6),
        *[
            phased("phased-stops", "--stop-at", stop, own=other, batch__per_device=6)
            for stop in (9, 10, 11, STEPS)  # the second is the boundary
        ],
        run_of("1x6-dropout", **sixes),
        run_of("1x6-resumed", "--stop-at", 7, **sixes),
        run_of("1x6-resumed", **sixes),
        exact("fork", *fork, steps=12),
        with_data(exact("fork-grown", *fork, steps=12), lesson, lesson),
        exact("1x16"),  # has nothing to do
    ]
    for name, jobs in (("two", two), ("one", one)):
        result = train_jobs(folder / f"{name}.json", jobs, count=1 + (name == "two"))
        (folder / f"{name}.txt").write_text(result.stdout)


def prepare_texts(tokenizer: Path, output: Path, texts: Sequence[str], *settings: str) -> Path:
    """roberta_tiny's shards; the corpus is named as their directory."""
    output.parent.mkdir(exist_ok=True)
    text = preparing.write_jsonl(output.with_suffix(".jsonl"), texts)
    chosen = [word for setting in settings for word in ("--set", setting)]
    return prepare_here(tokenizer, output, "--corpus", output.name, "--input", text, *chosen)


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of this process, as on a file system without them."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> preparing.Said:
    def said(main: Callable[[], None], *arguments: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["command", *map(str, arguments)])
        code = 0
        interrupt = signal.getsignal(signal.SIGINT)
        try:
            run_command(main)
        except SystemExit as stop:
            code = int(stop.code or 0)
        finally:  # a command that was interrupted ignores Ctrl-C while it ends
            signal.signal(signal.SIGINT, interrupt)
        out = capsys.readouterr()
        return code, out.err if code else out.out

    return said


@pytest.fixture
def call(said: preparing.Said) -> preparing.Call:
    def call(main: Callable[[], None], *arguments: object, code: int = 0) -> str:
        found, text = said(main, *arguments)
        assert found == code, text
        return text

    return call


@pytest.fixture
def run(call: preparing.Call) -> preparing.Prepare:
    return functools.partial(call, prepare.main)


@pytest.fixture
def make(run: preparing.Prepare, tiny_tokenizer: Path, tmp_path: Path) -> preparing.Prepare:
    """`run` for roberta_tiny with the tiny tokenizer and one worker, into a folder of tmp_path."""

    def make(*arguments: object, output: str = "out", code: int = 0) -> str:
        into = preparing.tiny(tiny_tokenizer, tmp_path / output)
        return run("--workers", 1, *into, *arguments, code=code)

    return make


def job(monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> Job:
    """The job of a pipeline.train command line."""
    monkeypatch.setattr(sys, "argv", ["train", *arguments])
    return read_job(parse_train())
