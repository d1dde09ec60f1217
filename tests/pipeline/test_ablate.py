"""The command: interrupted or in an array it gives what it gives at once; errors in one line."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline import ablate as command_of_ablate
from tests.cluster.stand_ins import StandIns
from tests.conftest import Command
from tests.launching import process
from tests.pipeline.experiments import small_ablation
from tests.pipeline.experiments.small_ablation import STEPS, environment, words
from tests.pipeline.preparing import Call, wait_until


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, sample_text: list[str]) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "text.jsonl"
    return small_ablation.write_corpus(path, sample_text, documents=60)


@pytest.fixture(scope="module")
def whole(
    tmp_path_factory: pytest.TempPathFactory, corpus: Path, tiny_tokenizer: Path, command: Command
) -> Path:
    """A finished ablation, and what it printed in printed.txt."""
    output = tmp_path_factory.mktemp("ablation") / "out"
    found = command("ablate", *words(corpus, tiny_tokenizer, output), **environment())
    assert found.returncode == 0, found.stderr
    (output / "printed.txt").write_text(found.stdout)
    return output


@pytest.fixture
def ablate(command: Command, corpus: Path, tiny_tokenizer: Path) -> Callable[..., str]:
    """Runs the command with more arguments; returns its output, or with code=2 its error line."""

    def run(output: Path, *more: object, code: int = 0, corpus: Path = corpus) -> str:
        given = words(corpus, tiny_tokenizer, output, *more)
        found = command("ablate", *given, **environment())
        assert found.returncode == code, found.stderr
        assert not code or found.stderr.count("\n") == 1
        return found.stderr if code else found.stdout

    return run


def table(output: Path) -> object:
    return small_ablation.without_times(json.loads((output / "ablation.json").read_text()))


def test_the_table(whole: Path, ablate: Callable[..., str]) -> None:
    found = json.loads((whole / "ablation.json").read_text())
    low, high = found["arms"]
    assert found["baseline"] == "low" and found["equal_tokens"] and not found["tuned"]
    assert [run["seed"] for run in found["runs"] if run["arm"] == "low"] == [0, 1, 2, 3]
    assert [run["seed"] for run in found["runs"] if run["arm"] == "high"] == [0, 1]
    assert all(run["wall_seconds"] > run["seconds"] for run in found["runs"])
    for arm in (low, high):
        assert arm["measures"]["mask_loss"]["n"] == 2 and arm["cost"]["steps"] == STEPS
    # twice the rate learns faster in a few steps
    assert high["differences"]["mask_loss"]["mean"] < 0
    assert low["initial_weights"] == high["initial_weights"] == "all"
    assert len(list((whole / "shards").glob("*/manifest.json"))) == 1
    dry = ablate(whole, "--dry-run")
    assert "low: 4 runs of 8 steps, 4 done" in dry and "\n0 s left" in dry
    printed = (whole / "printed.txt").read_text()
    assert "the same, other seeds" in printed and "peak learning rates are not tuned" in printed
    assert printed.index("the same, other seeds") < printed.index("\n  high ")


def test_killed_then_continued_in_an_array_it_gives_the_same(
    whole: Path, corpus: Path, tiny_tokenizer: Path, tmp_path: Path, ablate: Callable[..., str]
) -> None:
    output = tmp_path / "out"
    given = [sys.executable, "-m", "pipeline.ablate", *words(corpus, tiny_tokenizer, output)]
    running = process.start(given, env=os.environ | environment())
    wait_until((output / "runs/high/seed-0/checkpoints/latest").exists, running, seconds=300)
    running.kill()  # its child trains on, and keeps the lock
    running.wait()
    first = output / "runs/low/seed-0/result.json"
    before = first.stat().st_mtime_ns
    assert "low:1" in ablate(output, "--collect", code=2)
    ablate(output, "--only", "high:0")
    resumed = json.loads((output / "runs/high/seed-0/result.json").read_text())
    assert "wall_seconds" not in resumed, "the time before the kill is not known"
    for task in (5, 2):
        ablate(output, "--task", task)
        assert not (output / "ablation.json").exists()
    ablate(output)  # does what is left, tasks 3 and 4
    assert first.stat().st_mtime_ns == before
    assert table(output) == table(whole)


@pytest.mark.slow
def test_finished_runs_are_fine_tuned(
    whole: Path, tmp_path: Path, ablate: Callable[..., str]
) -> None:
    """Asked for after they are done; nothing is trained again, and seeds are paired."""
    output, task = tmp_path / "out", tmp_path / "SST-2"
    shutil.copytree(whole, output)
    task.mkdir()
    words_of = ("a bad film", "a good film", "no fun", "much fun")
    lines = [f"{words_of[i % 4]} {i}\t{i % 2}" for i in range(48)]
    for name, some in (("train.tsv", lines[:32]), ("dev.tsv", lines[32:])):
        (task / name).write_text("\n".join(["sentence\tlabel", *some]) + "\n")
    given = ("--finetune", f"sst2={task}")
    before = (output / "runs/low/seed-0/result.json").stat().st_mtime_ns
    ablate(output, *given, "--only", "high:1")
    found = ablate(output, *given)
    again = ablate(output, "--collect")
    assert again == found[-len(again) :]
    assert (output / "runs/low/seed-0/result.json").stat().st_mtime_ns == before
    assert "Fine-tuned: sst2 accuracy; higher is better" in found
    content = json.loads((output / "ablation.json").read_text())
    assert content["fine_tuning"] == {"tasks": ["sst2"], "protocol": "small", "seeds": 1}
    low, high = (arm["measures"]["fine-tuned/sst2 accuracy"] for arm in content["arms"])
    assert low["n"] == high["n"] == 2 and all(0 <= value <= 1 for value in low["values"])
    row = content["arms"][1]["differences"]["fine-tuned/sst2 accuracy"]
    assert row["mean"] == pytest.approx(high["mean"] - low["mean"]) and row["p_holm"] <= 1
    assert "fine-tuned/sst2 accuracy" in content["noise"]
    jobs = sorted(path.name for path in output.glob("runs/low/*/finetune-sst2/jobs/*"))
    assert jobs == ["model-0-0", "model-0-1", "model-0-2", "model-0-3"]


def test_an_element_of_a_slurm_array_has_a_number(tmp_path: Path) -> None:
    stand_ins = StandIns.write(tmp_path)
    stand_ins.site()
    given = {"TENFOLD_ABLATION": str(tmp_path), "TENFOLD_ABLATE_ARGS": "roberta/masking"}
    for element, said in (("$(x)", "is not a number"), ("", "as an array")):
        errors = stand_ins.fail("ablate.sbatch", **given, SLURM_ARRAY_TASK_ID=element)
        assert said in errors and errors.count("\n") == 1


def test_mistakes_are_one_line(whole: Path, corpus: Path, tiny_tokenizer: Path, call: Call) -> None:
    for more, message in (
        (["--task", 6], "there are 6 runs, 0 to 5"),
        (["--only", "low:9"], "low:9 is not a run; they are low:0, high:0"),
        (["--seeds", 0], "--seeds must be 1 or more, got 0"),
        (["--grammar", "no/such/pairs"], "no/such/pairs does not exist"),
        (["--train-steps", 10], "was made with other arms"),
    ):
        error = call(command_of_ablate.main, *words(corpus, tiny_tokenizer, whole, *more), code=2)
        assert error.startswith("error: ") and message in error and error.count("\n") == 1


def test_a_mistake_of_a_child_ends_the_command_with_its_line(
    corpus: Path, tmp_path: Path, command: Command, tiny_tokenizer: Path,
    ablate: Callable[..., str],
) -> None:  # fmt: skip
    """It says where the rest is."""
    output = tmp_path / "contradiction"
    more = ("--arm", "third", "--set", "data.vocab_size=300")  # fewer ids than the tokenizer has
    found = command("ablate", *words(corpus, tiny_tokenizer, output, *more), **environment())
    assert found.returncode == 2 and found.stderr.count("\n") == 1
    assert found.stderr.startswith("error: third: tokenizer ") and "has 2,048 ids" in found.stderr
    assert "add --set data.vocab_size=2048" in found.stderr
    assert "high: optimizer.peak_lr=0.02\nthird: data.vocab_size=300\n" in found.stdout
    assert not [*output.glob("shards/*/manifest.json")] and not (output / "runs").exists()
    error = ablate(tmp_path / "o", corpus=corpus.with_name("none.jsonl"), code=2)
    assert "none.jsonl" in error and "/logs/" in error
