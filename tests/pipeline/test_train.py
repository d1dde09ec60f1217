import json
import re
import shutil
import signal
import subprocess
import sys
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipeline import evaluate
from pipeline.base.errors import CheckpointError
from pipeline.cluster.ranks import Alone
from pipeline.loading.dataset import Dataset
from pipeline.loading.order import Order
from pipeline.training import start
from pipeline.training.run_directory.layout import claim
from pipeline.training.run_directory.metrics_log import read_metrics
from pipeline.training.run_directory.run_status import read_status
from pipeline.training.validation.before_after import change
from pipeline.training.weights.initial_weights import folder_hash
from tests.pipeline import preparing
from tests.pipeline.conftest import (
    LONG,
    NO_DROPOUT,
    STEPS,
    Arguments,
    deepspeed_forked,
    environment,
    forkrun,
    job,
    launch,
    run_unheard,
    started,
    succeed,
    torchrun_forked,
    with_data,
)
from tests.pipeline.training.toy_checkpoints import break_weight

TIMES = {
    "step_seconds", "data_seconds", "tokens_per_second", "time", "memory_gb",
    "slowest_rank", "slowest_host", "slowest_ratio",
}  # fmt: skip


class AloneCluster(Alone):
    device = torch.device("cpu")


def alone() -> Any:
    """The cluster of a process that has not joined others."""
    return AloneCluster()


def lines(run: Path) -> list[dict[str, Any]]:
    """Metrics without what a clock says."""
    return [
        {name: value for name, value in line.items() if name not in TIMES}
        for line in read_metrics(run)
    ]


def tensors(run: Path, step: int) -> dict[str, bytes]:
    folder = run / "checkpoints" / f"step-{step:08d}"
    return {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}


def assert_same(run: Path, reference: Path) -> None:
    """Two finished runs have the same weights, moments and metrics, to the bit."""
    assert tensors(run, STEPS) == tensors(reference, STEPS)
    assert lines(run) == lines(reference)


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    preparing.wait_until(path.exists, process)


def test_the_loss_curve_does_not_depend_on_ranks_micro_batches_or_stage(trained: Path) -> None:
    reference = lines(trained / "1x16")
    assert [line["step"] for line in reference] == list(range(1, STEPS + 1))
    assert reference[-1]["loss"] < reference[0]["loss"] - 0.3
    for other in ("1x8", "1x5", "2x8", "2x4-zero3", "2x3-zero0", "moved"):
        for expected, found in zip(reference, lines(trained / other), strict=True):
            assert found["loss"] == pytest.approx(expected["loss"], rel=1e-5), other
            assert found["mask_loss"] == pytest.approx(expected["mask_loss"], rel=1e-5), other
            assert found["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-3), other
            for count in ("sequences", "tokens", "predictions", "epoch", "learning_rate"):
                assert found[count] == expected[count], other


def test_a_batch_that_grows_does_so_across_ranks_stages_and_a_resume(trained: Path) -> None:
    once, moved = lines(trained / "grown"), lines(trained / "grown-moved")
    sizes = [4] * 3 + [8] * 3 + [12] * 3 + [16] * 11
    assert [line["sequences"] for line in moved] == list(accumulate(sizes))
    assert [line["predictions"] for line in once] == [line["predictions"] for line in moved]
    losses = [[line["loss"] for line in run] for run in (once, moved)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


def test_a_run_outlives_the_reader_of_its_output(arguments: Arguments, tmp_path: Path) -> None:
    """`train ... | head` ended it without a checkpoint."""
    command = ("-m", "pipeline.train", *arguments(tmp_path, "--stop-at", 2))
    assert run_unheard(*forkrun(*command)) == 0
    assert (tmp_path / "checkpoints/latest").read_text() == "step-00000002\n"


def test_a_run_has_what_it_promises(trained: Path) -> None:
    run = trained / "2x8"
    names = {
        "run.json", "metrics.jsonl", "checkpoints", "tensorboard", "loss.png", "history.tsv",
        "plan.json",
    }  # fmt: skip
    assert {path.name for path in run.iterdir()} == names
    assert (run / "checkpoints" / "latest").read_text() == "step-00000020\n"
    record = json.loads((run / "run.json").read_text())
    assert record["run"]["batch"]["sequences"] == record["run"]["batch"]["per_device"] == 16
    assert record["plans"][0]["world_size"] == 2 and record["plans"][0]["rows"] == 8
    assert record["attention"] == "row_attention"
    assert record["versions"]["deepspeed"] and record["data"][0]["fingerprint"]
    last = read_metrics(run)[-1]
    assert last["validation_loss"] == pytest.approx(last["loss"], abs=1)
    assert last["validation_mask_loss"] > 0 and 0 <= last["validation_accuracy"] <= 1
    assert last["tokens"] > last["sequences"] == 20 * 16
    assert list((run / "tensorboard").iterdir())
    (trace,) = (trained / "1x8" / "profile").iterdir()
    assert trace.name == "step-00000004.json.gz"
    assert [read_status(trained / name).state for name in ("2x8", "stopped")] == [
        "finished", "stopped",
    ]  # fmt: skip
    assert len(read_status(trained / "moved").restarts) == 1
    assert (
        f"{trained}/1x16 is at step 20 already; nothing to do" in (trained / "one.txt").read_text()
    )


def test_a_fork_continues_another_run_under_its_own_schedule(trained: Path) -> None:
    forked, source = lines(trained / "fork"), lines(trained / "1x16")
    assert [line["step"] for line in forked] == [11, 12]
    assert forked[0]["loss"] == source[10]["loss"]  # the same weights and the same data
    assert forked[0]["learning_rate"] != source[10]["learning_rate"]
    begun_from = json.loads((trained / "fork" / "run.json").read_text())["begun_from"]
    assert begun_from.endswith("1x16/checkpoints/step-00000010")


def test_a_fork_with_grown_data_reads_it_from_the_start(
    trained: Path, lesson: Path, arguments: Arguments, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run itself refuses the data and prints the command for a fork."""
    forked, source = lines(trained / "fork-grown"), lines(trained / "1x16")
    assert [line["step"] for line in forked] == [11, 12]
    assert [line["sequences"] for line in forked] == [16, 32]
    dataset = Dataset.open(lesson)
    order = Order(kind="global", seed=0, piece_rows=(dataset.piece_rows, dataset.piece_rows))
    read = dataset.records(order.locate(np.arange(32)).row, 0).fields["predictions"]
    assert forked[-1]["predictions"] - source[9]["predictions"] == read.sum()
    parts = with_data(arguments(trained / "1x16", **NO_DROPOUT), lesson, lesson)
    line = re.escape(f"the same command with --from {trained}/1x16 --output {trained}/1x16-2")
    with pytest.raises(CheckpointError, match=line):
        start.open_run(job(monkeypatch, parts), alone())


def test_grammar_changes_no_weight_and_scores_as_evaluate(
    trained: Path, call: preparing.Call
) -> None:
    """On two ranks whose weights are nowhere whole, and on one with dropout."""
    for name, without in (("2x4-grammar", "2x4-zero3"), ("1x16-grammar", "1x16-dropout")):
        run = trained / name
        assert tensors(run, STEPS) == tensors(trained / without, STEPS), name
        curve = [line for line in read_metrics(run) if "validation_grammar" in line]
        assert [line["step"] for line in curve] == [10, 20]
        printed = call(evaluate.main, run, "--grammar", trained / "pairs", "--json")
        found, last = json.loads(printed)["grammar"], curve[-1]
        assert last["validation_grammar"] == found["overall"]["accuracy"]
        for phenomenon in ("ellipsis", "quantifiers"):
            expected = found["phenomena"][phenomenon]["accuracy"]
            assert last[f"validation_grammar/{phenomenon}"] == expected
        assert read_status(run).progress.validation_grammar == last["validation_grammar"]
        assert "validation_loss" in last and 0 < last["validation_grammar"] < 1


def test_phases_resumed_around_their_boundary_are_bit_identical(trained: Path) -> None:
    """A run that stopped before, at and after it, in fp32 with dropout; the first one mixes."""
    assert_same(trained / "phased-stops", trained / "phased")
    assert "mixture: 2 corpora by batch.mixture" in (trained / "one.txt").read_text()


def test_phases_do_not_depend_on_ranks_micro_batches_or_stage(trained: Path) -> None:
    once, moved = lines(trained / "phased-exact"), lines(trained / "phased-moved")
    assert [line["sequence_length"] for line in moved] == [16] * 10 + [32] * 10
    assert [line["sequences"] for line in moved] == list(accumulate([24] * 10 + [16] * 10))
    losses = [[line["loss"] for line in run] for run in (once, moved)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    for count in ("tokens", "predictions", "epoch", "duplicate", "learning_rate"):
        assert [line[count] for line in once] == [line[count] for line in moved]


def test_a_run_from_given_weights_is_scored_before_and_after(trained: Path) -> None:
    """On its own held-out rows and on the general sample, on any ranks and stage; a resume, which
    has no --init, reads the first line, and gives the same ones."""
    assert lines(trained / "1x16")[0]["step"] == 1 and not (trained / "1x16" / "general").exists()
    once, moved = lines(trained / "init"), lines(trained / "init-moved")
    losses = [[line["loss"] for line in run[1:]] for run in (once, moved)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert losses[0][0] != pytest.approx(lines(trained / "1x16")[0]["loss"], rel=1e-3)
    for name in ("init", "init-moved"):
        initial = json.loads((trained / name / "run.json").read_text())["initial_weights"]
        assert initial == {"folder": "model", "sha256": folder_hash(trained / "model"), "new": []}
    assert lines(trained / "init-stops") == once
    assert [line["step"] for line in once] == [*range(STEPS + 1)]
    ends = ("general_mlm_loss", "general_mask_loss", "validation_loss")
    assert all((name in line) == (line["step"] in (0, STEPS)) for line in once for name in ends)
    assert [line["validation_mask_rate"] for line in (once[0], once[-1])] == [0.3, 0.3]
    for name in ends:
        figures = [[run[0][name], run[-1][name]] for run in (once, moved)]
        assert figures[1] == pytest.approx(figures[0], rel=1e-5)
    said = (trained / "one.txt").read_text().splitlines()
    for name in ("init", "init-stops", "init-moved"):
        first, *_, last = lines(trained / name)
        place = said.index(f"{trained / name} is at step {STEPS} of {STEPS}")
        assert said[place + 1] == change(first, last)
    plain = said.index(f"{trained / '1x16'} is at step {STEPS} of {STEPS}")
    assert said[plain + 1].startswith("next: ")
    before = [line for line in said if line.startswith("before the first step: ")]
    assert len(before) == 3  # the rest of `init-moved` and of `init-stops` resumes


def test_forgetting_shows(trained: Path) -> None:
    """After training on a text of one word."""
    first, *_, last = lines(trained / "init-river")
    assert last["validation_mlm_loss"] < first["validation_mlm_loss"] - 1
    assert last["general_mlm_loss"] > first["general_mlm_loss"] + 0.05
    assert "(forgetting: +" in change(first, last)


def test_several_micro_batches_with_dropout_resume_bit_identically(trained: Path) -> None:
    assert_same(trained / "1x6-resumed", trained / "1x6-dropout")
    assert lines(trained / "1x6-dropout")[-1]["update_rms_max_embedding"] > 0  # of StableAdamW


def test_a_damaged_checkpoint_is_reported_and_the_one_before_is_used(
    trained: Path, arguments: Arguments, tmp_path: Path
) -> None:
    run, original = tmp_path / "run", trained / "1x16-dropout"
    shutil.copytree(original, run)
    damaged = run / "checkpoints" / "step-00000020" / "weights-00000.safetensors"
    content = bytearray(damaged.read_bytes())
    content[-1000] ^= 1
    damaged.write_bytes(content)
    result = succeed(sys.executable, "-m", "pipeline.train", *arguments(run))
    assert f"{damaged} is damaged" in result.stderr
    assert "resuming after step 10" in result.stdout
    assert_same(run, original)


def test_a_run_that_breaks_in_its_last_steps_says_so(arguments: Arguments, tmp_path: Path) -> None:
    run = tmp_path / "run"
    parts = arguments(run, steps=5, optimizer__peak_lr=1e30, checkpoint__every=1)
    result = launch(sys.executable, "-m", "pipeline.train", *parts)
    assert result.returncode == 3, result.stdout + result.stderr
    assert "Traceback" not in result.stderr and "pipeline.export" not in result.stdout
    assert result.stderr.count("error:") == 1
    found = read_status(run)
    assert (found.state, found.checkpoint and found.checkpoint.step) == ("failed", 1)
    assert (found.progress.loss_nan_since, found.progress.validation_loss_nan_since) == (2, 5)


def test_a_checkpoint_that_is_not_finite_is_said_to_be_that(
    trained: Path, arguments: Arguments, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained / "1x16", run)
    shutil.rmtree(run / "checkpoints" / "step-00000020")
    (run / "checkpoints" / "latest").write_text("step-00000010\n")
    break_weight(run / "checkpoints" / "step-00000010", "lm_head.bias")
    result = launch(sys.executable, "-m", "pipeline.train", *arguments(run, **NO_DROPOUT))
    assert result.returncode == 2
    *_, line = result.stderr.splitlines()
    assert "step-00000010 has weights that are not finite: lm_head.bias" in line


def test_sigterm_saves_and_the_same_command_resumes(
    trained: Path, arguments: Arguments, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    parts = ["-m", "pipeline.train", *arguments(run, **LONG)]
    with started(*torchrun_forked(*parts)) as process:
        wait_for(run / "metrics.jsonl", process)
        assert (run / "ready").exists()
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=120)
    assert (run / "INTERRUPTED").exists(), errors
    assert "pipeline/" not in errors, "a rank ended with a traceback"
    succeed(*deepspeed_forked("--num_gpus", 2, "--module", *parts[1:]))
    assert not (run / "INTERRUPTED").exists() and not (run / "ready").exists()
    assert_same(run, trained / "2x8-long")


def test_a_board_that_is_not_installed_is_refused_before_anything_is_written(
    arguments: Arguments, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    (tmp_path / "wandb").mkdir()  # as wandb leaves one where it was used
    parts = arguments(run, "--set", 'logging.to=["wandb"]')
    elsewhere = ("env", "-C", tmp_path, f"PYTHONPATH={Path(__file__).parents[2]}")
    result = launch(*elsewhere, sys.executable, "-m", "pipeline.train", *parts)
    assert result.returncode == 2 and "pip install '.[wandb]'" in result.stderr
    assert result.stderr.count("\n") == 1 and not run.exists()


def test_a_live_run_is_refused_with_one_line(arguments: Arguments, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with claim(run):
        result = launch(sys.executable, "-m", "pipeline.train", *arguments(run))
    assert result.returncode == 2
    assert re.fullmatch(r"error: \S+ belongs to a live job .*\n", result.stderr), result.stderr


def test_a_second_start_in_the_same_slurm_job_is_refused_and_the_first_ends_as_if_alone(
    trained: Path, arguments: Arguments, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    command = [sys.executable, "-m", "pipeline.train", *arguments(run)]
    in_job = environment() | {"SLURM_JOB_ID": "77"}
    with preparing.started(*command, **in_job) as first:
        wait_for(run / "ready", first)
        first.send_signal(signal.SIGSTOP)  # else it may end before the second has started
        second = preparing.finish(*command, **in_job)
        first.send_signal(signal.SIGCONT)
        output, errors = first.communicate(timeout=120)
    assert second.returncode == 2
    expected = rf"error: {run} is in use by an earlier start in this Slurm job, 77 \(process .*\n"
    assert re.fullmatch(expected, second.stderr), second.stderr
    assert first.returncode == 0, output + errors
    assert tensors(run, STEPS) == tensors(trained / "1x16-dropout", STEPS)


def test_an_unusable_output_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot write to"), claim(tmp_path / "file" / "run"):
        pass
