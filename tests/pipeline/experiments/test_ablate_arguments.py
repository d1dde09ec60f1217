"""Each --set belongs to the --arm before it; prepare gets the words that name the corpus."""

from pathlib import Path

import pytest

from pipeline.base.errors import ConfigError, PipelineError
from pipeline.experiments.ablate_arguments import chosen_jobs, parse_ablate, read_ablation

CORPUS = ["--corpus", "c", "--output", "o"]
OWN = ["--recipe", "roberta_tiny", *CORPUS]


def test_settings_belong_to_the_arm_before_them_and_the_corpus_to_prepare() -> None:
    found = read_ablation(parse_ablate([
        *OWN, "--set", "encoder.layers=1", "--arm", "a", "--arm", "b", "--set", "encoder.heads=4",
        "--set", "encoder.dropout=0.5", "--arm", "c", "--set", "encoder.heads=8",
    ]))  # fmt: skip
    assert [arm.name for arm in found.arms] == ["a", "b", "c"] and found.baseline.name == "a"
    assert [arm.run.encoder.heads for arm in found.arms] == [2, 4, 8]
    assert [arm.run.encoder.dropout for arm in found.arms][1] == 0.5
    assert {arm.run.encoder.layers for arm in found.arms} == {1}
    assert found.arms[1].arm.changes == ("encoder.heads=4", "encoder.dropout=0.5")
    words = [*OWN, "--arm", "a", "--arm", "b", "--input", "x", "y", "--text-field", "t"]
    inputs = ("--corpus", "c", "--input", "x", "y", "--text-field", "t")
    assert read_ablation(parse_ablate(words)).inputs == inputs


def test_arms_come_from_a_papers_table_or_a_file(tmp_path: Path) -> None:
    found = read_ablation(parse_ablate(["roberta/masking", *CORPUS]))
    assert found.baseline.name == "ten" and found.arms[0].name == "ten" and found.seeds == 5
    assert len(chosen_jobs(parse_ablate(["x", *CORPUS]), found)) == 20
    file = tmp_path / "arms.py"
    file.write_text(
        "from pipeline.experiments.arms import Arm\n"
        'ARMS = [Arm("a", "roberta_tiny", ()), Arm("b", "roberta_tiny", ("encoder.heads=4",))]\n'
    )
    found = read_ablation(parse_ablate(["--arms", str(file), *CORPUS]))
    assert [arm.name for arm in found.arms] == ["a", "b"]


def test_tasks_to_fine_tune_on(tmp_path: Path) -> None:
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / name).touch()
    words = ["roberta/masking", *CORPUS, "--finetune-seeds", "2"]
    tasks = [f"--finetune={task}={tmp_path}" for task in ("sst2", "rte")]
    found = read_ablation(parse_ablate([*words, *tasks]))
    assert found.tasks == (("sst2", tmp_path), ("rte", tmp_path)) and found.finetune_seeds == 2
    with pytest.raises(ConfigError, match="names sst2 twice"):
        read_ablation(parse_ablate([*words, tasks[0], tasks[0]]))
    with pytest.raises(ConfigError, match="modernbert have checkpoint"):
        read_ablation(parse_ablate(["modern/architecture", *words[1:], tasks[0]]))


def test_mistakes() -> None:
    for words, message in (
        (CORPUS, "got none"),
        (["roberta/masking", *OWN], "got TABLE and --recipe"),
        (["roberta/masking", "--arm", "a", *CORPUS], "drop it"),
        (["roberta/making", *CORPUS], "did you mean roberta/masking?"),
        ([*OWN, "--arm", "a"], "1 arms"),
        ([*OWN, "--arm", "a/b", "--arm", "c"], "cannot name a directory"),
        ([*OWN, "--task", "1", "--collect"], "not allowed with"),
        ([*OWN, "--arm", "a", "--arm", "b", "--finetune", "sst3=d"], "sst3=d is not TASK=DIR"),
        ([*OWN, "--arm", "a", "--arm", "b", "--finetune", "sst2"], "sst2 is not TASK=DIR"),
        ([*OWN, "--arm", "a", "--arm", "b", "--finetune", "sst2=no/such"], "no/such has none of"),
        ([*OWN, "--finetune-seeds", "2"], "belongs to --finetune, which is not given"),
        ([*OWN, "--finetune", "sst2=d", "--finetune-seeds", "0"], "--finetune-seeds .*got 0"),
        ([*OWN, "--arm", "a", "--arm", "b", "--scale", "mini"], "belongs to TABLE, not to --rec"),
        ([*OWN, "--by-folder"], "unrecognized arguments: --by-folder"),
        ([*OWN, "--train-steps", "-1"], "--train-steps must be 0 or more, got -1"),
    ):
        with pytest.raises(PipelineError, match=message.replace("?", r"\?")):
            read_ablation(parse_ablate(words))
