"""What happens when a rank dies or hangs, a disk is full, a shard is damaged, or time is up.

Each answer of the README's table "What happens when" names one of these tests, or another's.
"""

import math
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipeline import export
from pipeline.base.errors import ConfigError
from pipeline.cluster.ranks import Alone
from pipeline.data.shards import arrow_files
from pipeline.downstream.starting_weights import load_start
from pipeline.loading.dataset import Dataset
from pipeline.loading.order import Order, Share
from pipeline.training.checkpoints.data_position import Reading
from pipeline.training.checkpoints.read import open_checkpoint, step_name, verify
from pipeline.training.checkpoints.saver import Saver
from pipeline.training.optimizer.optimizer import FragmentState
from tests.pipeline.conftest import (
    LONG,
    NO_DROPOUT,
    STEPS,
    Arguments,
    forkrun,
    job,
    launch,
    place_of,
    poison,
    started,
    succeed,
    torchrun,
    torchrun_forked,
    train_jobs,
    with_data,
)
from tests.pipeline.preparing import ROOT, Call, children, wait_for_end, wait_until
from tests.pipeline.test_train import assert_same, lines, tensors, wait_for

INTERRUPTIONS = Path(__file__).parents[1] / "end_to_end" / "interruptions.py"


def command(arguments: list[str]) -> list[object]:
    return [sys.executable, "-m", "pipeline.train", *arguments]


def rank_of(process: int) -> str:
    variables = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    return next((v.decode()[5:] for v in variables if v.startswith(b"RANK=")), "")


@pytest.mark.parametrize(
    ("points", "kills", "stops"), [(1, 1, 2), pytest.param(40, 20, 20, marks=pytest.mark.slow)]
)
def test_killed_and_stopped_at_some_moments(
    points: int, kills: int, stops: int, arguments: Arguments, tmp_path: Path
) -> None:
    """Every run ends with the same bits."""
    parts = arguments(tmp_path, checkpoint__every=5)
    place = parts.index("--output")
    del parts[place : place + 2]
    counts = ("--points", points, "--kills", kills, "--stops", stops)
    script = (sys.executable, INTERRUPTIONS, tmp_path, *counts, "--", *parts)
    said = succeed(*script, timeout=7200).stdout
    rows = [line.split(" | ") for line in said.splitlines() if line.startswith("| SIG")]
    signals = ["SIGKILL"] * kills + ["SIGTERM"] * stops + ["SIGINT"] * stops
    assert [row[0] for row in rows] == [f"| {name}" for name in signals]
    assert all(row[-1] == "yes |" for row in rows)


def test_a_killed_rank_is_restarted_and_the_run_ends_the_same(
    trained: Path, arguments: Arguments, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    launcher = torchrun_forked("-m", "pipeline.train", *arguments(run, **LONG))
    launcher.insert(launcher.index("--standalone"), "--max-restarts=1")
    with started(*launcher) as process:
        wait_for(run / "checkpoints" / "step-00000010", process)
        (second,) = [child for child in children(process.pid) if rank_of(child) == "1"]
        os.kill(second, signal.SIGKILL)
        output, errors = process.communicate(timeout=900)
    assert process.returncode == 0, output + errors
    assert "resuming after step 10" in output
    assert re.search(r"error: rank 0 on \S+ lost another rank \(.*\): ", errors), errors
    assert "Traceback" not in errors.split("torch/distributed")[0]
    assert_same(run, trained / "2x8-long")


def wait_for_a_step(run: Path, process: subprocess.Popen[str]) -> None:
    wait_for(run / "metrics.jsonl", process)
    wait_until(lambda: lines(run), process)


def resumes(run: Path, launcher: list[object], trained: Path) -> None:
    """A run that two ranks saved continues with the same training command, to the same bits."""
    assert int((run / "INTERRUPTED").read_text().split()[1]) < STEPS
    assert "lease.json" not in {path.name for path in run.iterdir()}
    assert "resuming after step" in succeed(*launcher).stdout
    assert not (run / "INTERRUPTED").exists()
    assert_same(run, trained / "2x8-long")


def test_ranks_whose_torchrun_was_killed_save_and_the_same_command_resumes(
    trained: Path, arguments: Arguments, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    launcher = torchrun("-m", "pipeline.train", *arguments(run, **LONG))
    with started(*launcher) as process:
        wait_for_a_step(run, process)
        ranks = children(process.pid)
        assert sorted(map(rank_of, ranks)) == ["0", "1"]
        process.kill()
        wait_for_end(*ranks, started_by=process)
        output, errors = process.communicate(timeout=60)
    warning = f"warning: the launcher (process {process.pid}) is gone; saving and stopping\n"
    assert errors.count(warning) == 1 and "Traceback" not in errors, errors
    assert "saved; run the same command again" in output, output + errors
    resumes(run, forkrun("-m", "pipeline.train", *arguments(run, **LONG)), trained)


@pytest.mark.slow
@pytest.mark.parametrize("killed", ["deepspeed", "deepspeed.launcher.launch"])
def test_ranks_whose_deepspeed_was_killed_save_and_the_same_command_resumes(
    killed: str, trained: Path, arguments: Arguments, tmp_path: Path
) -> None:
    """Their output has no reader: in `deepspeed ... | tee log`, tee is killed too."""
    run = tmp_path / "run"
    deepspeed = Path(sys.executable).with_name("deepspeed")
    parts = ["--num_gpus", 2, "--module", "pipeline.train", *arguments(run, **LONG)]
    with started(deepspeed, *parts) as process:
        wait_for_a_step(run, process)
        (launch_process,) = children(process.pid)
        ranks = children(launch_process)
        assert sorted(map(rank_of, ranks)) == ["0", "1"]
        assert process.stdout and process.stderr
        process.stdout.close()
        process.stderr.close()
        os.kill(process.pid if killed == "deepspeed" else launch_process, signal.SIGKILL)
        wait_for_end(*ranks, launch_process)
    resumes(run, [deepspeed, *parts], trained)


def test_a_run_started_alone_outlives_its_shell(arguments: Arguments, tmp_path: Path) -> None:
    run, log = tmp_path / "run", tmp_path / "log"
    in_background = 'nohup "$@" >"$0" 2>&1 & echo $!; wait'
    with started("sh", "-c", in_background, log, *command(arguments(run))) as shell:
        assert shell.stdout
        process = int(shell.stdout.readline())
        wait_for(run / "ready", shell)
        shell.kill()
        wait_for_end(process)
    assert len(tensors(run, STEPS)) == 2, log.read_text()
    assert not (run / "INTERRUPTED").exists() and not (run / "lease.json").exists()


def damage(directory: Path, sequences: int, step: int) -> Path:
    """Break a mask that rank 1 of 2 reads at `step`, and no rank earlier; returns its file."""
    dataset = Dataset.open(directory)
    order = Order(kind="global", seed=0, piece_rows=(dataset.piece_rows,))
    share = Share(sequences=sequences, per_device=8, rank=1, world_size=2)
    used = order.locate(np.arange((step - 1) * sequences)).row
    for row in order.locate(share.positions((step - 1) * sequences, sequences)).row:
        shard, place = place_of(dataset, row)
        block, inside = divmod(place, arrow_files.BATCH_ROWS)
        if inside and not np.isin([row - 1, row], used).any():
            break
    path = directory / dataset.shards[shard].masks[0].file
    offsets = arrow_files.read_table(path).column(2).chunk(block).buffers()[1].to_pybytes()
    content = bytearray(path.read_bytes())
    place = content.index(offsets[:2000]) + 4 * inside
    content[place : place + 4] = (2**30).to_bytes(4, "little")
    path.write_bytes(content)
    return path


def test_damaged_data_end_all_ranks_with_one_line_and_a_checkpoint(
    lesson: Path, arguments: Arguments, tmp_path: Path
) -> None:
    copied = Path(shutil.copytree(lesson, tmp_path / "data"))
    path = damage(copied, 16, step=8)
    run = tmp_path / "run"
    parts = with_data(arguments(run), copied)
    result = launch(*forkrun("-m", "pipeline.train", *parts))
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and f"rank 1: {path} is damaged: row" in errors[0], result.stderr
    assert "Traceback" not in result.stderr.split("torch/distributed")[0]
    assert re.findall(r"exitcode +: (\d+)", result.stderr) in (["2"], ["2", "2"])
    *_, saved = sorted((run / "checkpoints").glob("step-*"))
    verify(saved)
    assert saved.name == "step-00000007"  # the last one with whole data
    assert not (run / "INTERRUPTED").exists()


SPIKES = {
    "spikes__deviations": 3, "spikes__window": 6, "spikes__rollbacks": 2,
    "spikes__skip_before": 1, "spikes__skip_after": 2, **NO_DROPOUT,
    "checkpoint__every": 5, "checkpoint__keep": 9, "batch__sequences": 32,
}  # fmt: skip


def from_step(original: Path, step: int, run: Path, **changes: object) -> None:
    """A copy of a run that has just saved `step`, optionally with another state."""
    shutil.copytree(original, run, ignore=shutil.ignore_patterns("checkpoints"))
    found = open_checkpoint(original / "checkpoints" / step_name(step))
    shapes = found.state.shapes.items()
    parts = [FragmentState(n, 0, *found.read(n, 0, math.prod(shape))) for n, shape in shapes]
    state = replace(found.state, world_size=1, **changes)  # type: ignore[arg-type]
    Saver(run, Alone(), keep=9, keep_every=0).save(parts, state)


@pytest.fixture(scope="module")
def recovered(
    lesson: Path, arguments: Arguments, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    """Runs with a spike or a damaged shard, runs that skip them from the start, and warnings.

    Noise in the data of step 12, a broken mask in step 8; two launches for all runs.
    """
    folder = tmp_path_factory.mktemp("recovered")
    noisy = Path(shutil.copytree(lesson, folder / "noisy"))
    poison(noisy, range(11 * 32, 12 * 32))
    broken = Path(shutil.copytree(lesson, folder / "broken"))
    (folder / "file").write_text(str(damage(broken, 16, step=8)))

    def spiky(run: str) -> list[str]:
        return with_data(arguments(folder / run, "--ds", "zero3", **SPIKES), noisy)

    def skips(run: str) -> list[str]:
        settings = {"data__damaged": "skip", "checkpoint__keep": 9}
        return with_data(arguments(folder / run, **settings), broken)

    jobs = folder / "jobs.json"
    said = train_jobs(jobs, [spiky("spiky"), skips("skips")], count=2).stderr
    skipped = (Reading(32, 5 * 32, ((320, 448),)),)
    from_step(folder / "spiky", 5, folder / "spiky-skips", readings=skipped)
    from_step(folder / "spiky", 10, folder / "spiky-killed")  # just after it went back
    from_step(folder / "skips", 7, folder / "skips-killed")
    shard = Path((folder / "file").read_text()).name.split(".")[0]
    (broken / "rows" / f"{shard}.arrow").unlink()
    train_jobs(jobs, [spiky("spiky-skips"), spiky("spiky-killed"), skips("skips-killed")], count=2)
    return folder, said


def test_a_run_goes_back_before_a_spike_and_every_resume_skips_the_same(
    recovered: tuple[Path, str],
) -> None:
    """Like a run that skips steps 11 to 14 from the start, to the bit."""
    folder, said = recovered
    found = folder / "spiky"
    assert said.count("warning: the loss of step 12 is") == 1, said
    assert said.count("back to step 10, rollback 1 of 2; skipped so far: 128 sequences") == 1
    reference = lines(found)
    assert [line["step"] for line in reference] == list(range(1, STEPS + 1))
    assert reference[-1]["rollbacks"] == 1 and reference[-1]["skipped_sequences"] == 128
    assert lines(folder / "spiky-killed") == reference
    for name in ("spiky-killed", "spiky-skips"):
        assert tensors(folder / name, STEPS) == tensors(found, STEPS), name
    skipping = lines(folder / "spiky-skips")
    assert [line["loss"] for line in skipping] == [line["loss"] for line in reference]


def test_a_damaged_shard_is_excluded_if_asked_and_every_resume_excludes_the_same(
    recovered: tuple[Path, str],
) -> None:
    """Even if the file of rows is missing by then."""
    folder, said = recovered
    file = Path((folder / "file").read_text())
    shard = file.name.split(".")[0] + ".arrow"
    assert said.count(f"{file} is damaged: row") == 1, said
    rows = f"the rows of shard {shard} of {file.parents[1]} are skipped (data.damaged=skip)"
    assert said.count(f"warning: from step 8 on {rows}") == 1, said
    found = lines(folder / "skips")
    assert [line["step"] for line in found] == list(range(1, STEPS + 1))
    assert [line.get("left_out") for line in found] == [None] * 7 + [shard] * 13
    assert [line["sequences"] for line in found] == [16 * step for step in range(1, STEPS + 1)]
    dataset = Dataset.open(folder / "noisy")
    owner = [part.name for part in dataset.shards].index(shard)
    order = Order(kind="global", seed=0, piece_rows=(dataset.piece_rows,))
    starts = np.cumsum([0, *(shard.sequences for shard in dataset.shards)])
    places = np.arange(STEPS * 16)
    row = order.locate(places).row
    gone = (row >= starts[owner]) & (row < starts[owner + 1]) & (places >= 7 * 16)
    whole = dataset.records(row, 0).fields["predictions"]
    assert found[-1]["predictions"] == int(whole[~gone].sum()) < int(whole.sum())
    assert_same(folder / "skips-killed", folder / "skips")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("cannot mount a small disk here; test_saving.py plays a full one")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk_is_reported_and_training_continues(
    arguments: Arguments, small_disk: Path
) -> None:
    run, filler = small_disk / "run", small_disk / "filler"
    parts = arguments(run, **LONG, checkpoint__every=2, checkpoint__keep=1)
    with started(*command(parts)) as process:
        wait_for(run / "checkpoints" / "latest", process)
        free = os.statvfs(small_disk)
        filler.write_bytes(bytes(free.f_bavail * free.f_frsize - 400_000))
        assert process.stderr
        warning = next(line for line in process.stderr if "was not saved" in line)
        filler.unlink()
        _, errors = process.communicate(timeout=900)
    assert process.returncode == 0, errors
    expected = r"warning: step \d+ was not saved: .*(MB free|No space left).* training continues"
    assert re.search(expected, warning)
    assert len(tensors(run, STEPS)) == 2
    assert [line["step"] for line in lines(run)] == list(range(1, STEPS + 1))
    names = sorted(path.name for path in (run / "checkpoints").iterdir())
    assert names == ["latest", "step-00000020"]


def test_hours_end_a_run_as_a_signal_does(
    arguments: Arguments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    """Before the first step, too: that checkpoint can be exported and fine-tuned."""
    run = tmp_path / "run"
    result = launch(*command(arguments(run, "--hours", 0.001)))
    assert result.returncode == 75, result.stderr
    assert (run / "INTERRUPTED").read_text() == "step 0\n"
    assert tensors(run, 0)
    said = call(export.main, run, "--output", tmp_path / "model")
    assert "exported step 0 of roberta_tiny" in said
    assert load_start(run).length == 32
    with pytest.raises(ConfigError, match="--hours must be positive, got 0"):
        job(monkeypatch, arguments(run, "--hours", 0))


def test_every_answer_of_the_page_names_a_test() -> None:
    """tests/test_readme.py checks, for all pages, that these tests exist."""
    page = ROOT / "pipeline" / "training" / "run_directory" / "README.md"
    text = page.read_text(encoding="utf-8")
    answers = re.findall(r"^- \*\*.*?(?=^- \*\*|^[^ -]|\Z)", text, re.M | re.S)
    assert len(answers) > 12
    for answer in answers:
        assert re.search(r"`tests/[\w/]+\.py::test_\w+`", answer), answer
