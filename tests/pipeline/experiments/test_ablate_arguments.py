"""Each --set belongs to the --arm before it; prepare gets the words that name the corpus."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.base.errors import ConfigError, PipelineError
from pipeline.experiments.ablate_arguments import chosen_jobs, parse_ablate, read_ablation

OWN = ["--recipe", "roberta_tiny", "--corpus", "c", "--output", "o"]


def test_settings_belong_to_the_arm_before_them() -> None:
    found = read_ablation(parse_ablate([
        *OWN, "--set", "encoder.layers=1", "--arm", "a", "--arm", "b", "--set", "encoder.heads=4",
        "--set", "encoder.dropout=0.5", "--arm", "c", "--set", "encoder.heads=8",
    ]))  # fmt: skip
    assert [arm.name for arm in found.arms] == ["a", "b", "c"] and found.baseline.name == "a"
    assert [arm.run.encoder.heads for arm in found.arms] == [2, 4, 8]
    assert [arm.run.encoder.dropout for arm in found.arms][1] == 0.5
    assert {arm.run.encoder.layers for arm in found.arms} == {1}
    assert found.arms[1].arm.changes == ("encoder.heads=4", "encoder.dropout=0.5")


def test_a_papers_table() -> None:
    found = read_ablation(parse_ablate(["roberta/masking", "--corpus", "c", "--output", "o"]))
    assert found.baseline.name == "ten" and found.arms[0].name == "ten" and found.seeds == 5
    assert len(chosen_jobs(parse_ablate(["x", "--corpus", "c", "--output", "o"]), found)) == 20


def test_a_file_of_arms(tmp_path: Path) -> None:
    file = tmp_path / "arms.py"
    file.write_text(
        "from pipeline.experiments.arms import Arm\n"
        'ARMS = [Arm("a", "roberta_tiny", ()), Arm("b", "roberta_tiny", ("encoder.heads=4",))]\n'
    )
    words = ["--arms", str(file), "--corpus", "c", "--output", "o"]
    assert [arm.name for arm in read_ablation(parse_ablate(words)).arms] == ["a", "b"]


def test_prepare_gets_what_names_the_corpus() -> None:
    words = [*OWN, "--arm", "a", "--arm", "b", "--input", "x", "y", "--text-field", "t"]
    assert read_ablation(parse_ablate(words)).inputs == (
        "--corpus", "c", "--input", "x", "y", "--text-field", "t",
    )  # fmt: skip


def test_tasks_to_fine_tune_on(tmp_path: Path) -> None:
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / name).touch()
    words = ["roberta/masking", "--corpus", "c", "--output", "o", "--finetune-seeds", "2"]
    tasks = [f"--finetune={task}={tmp_path}" for task in ("sst2", "rte")]
    found = read_ablation(parse_ablate([*words, *tasks]))
    assert found.tasks == (("sst2", tmp_path), ("rte", tmp_path)) and found.finetune_seeds == 2
    with pytest.raises(ConfigError, match="names sst2 twice"):
        read_ablation(parse_ablate([*words, tasks[0], tasks[0]]))
    with pytest.raises(ConfigError, match="modernbert have checkpoint"):
        read_ablation(parse_ablate(["modern/architecture", *words[1:], tasks[0]]))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--corpus", "c", "--output", "o"], "got none"),
        (["roberta/masking", *OWN], "got TABLE and --recipe"),
        (["roberta/masking", "--arm", "a", "--corpus", "c", "--output", "o"], "drop it"),
        (["roberta/making", "--corpus", "c", "--output", "o"], "did you mean roberta/masking?"),
        ([*OWN, "--arm", "a"], "1 arms"),
        ([*OWN, "--arm", "a/b", "--arm", "c"], "cannot name a directory"),
        ([*OWN, "--task", "1", "--collect"], "not allowed with"),
        ([*OWN, "--arm", "a", "--arm", "b", "--finetune", "sst3=d"], "sst3=d is not TASK=DIR"),
        ([*OWN, "--arm", "a", "--arm", "b", "--finetune", "sst2"], "sst2 is not TASK=DIR"),
        ([*OWN, "--arm", "a", "--arm", "b", "--finetune", "sst2=no/such"], "no/such has none of"),
        ([*OWN, "--finetune-seeds", "2"], "belongs to --finetune, which is not given"),
        (
            [*OWN, "--finetune", "sst2=d", "--finetune-seeds", "0"],
            "--finetune-seeds must be 1 or more, got 0",
        ),
        ([*OWN, "--arm", "a", "--arm", "b", "--scale", "mini"], "belongs to TABLE, not to --rec"),
        ([*OWN, "--by-folder"], "unrecognized arguments: --by-folder"),
        ([*OWN, "--train-steps", "-1"], "--train-steps must be 0 or more, got -1"),
    ],
)
def test_mistakes(words: list[str], message: str) -> None:
    with pytest.raises(PipelineError, match=message.replace("?", r"\?")):
        read_ablation(parse_ablate(words))
