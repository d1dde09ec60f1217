import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline import evaluate
from pipeline.evaluation.reports import print_scores
from pipeline.evaluation.zero_shot.grammar_pairs import pairs_hash, read_paradigms
from pipeline.loading.dataset import Dataset
from pipeline.training.run_directory.metrics_log import read_metrics
from pipeline.training.weights.model_folders import load_run, write_folder
from tests.pipeline.preparing import Call
from tests.pipeline.training.toy_checkpoints import break_weight

Scores = Callable[..., dict[str, Any]]


@pytest.fixture
def scores(call: Call) -> Scores:
    """scores(arguments...): what the command prints with --json."""

    def scores(*arguments: object) -> dict[str, Any]:
        printed = call(evaluate.main, *arguments, "--json")
        found: dict[str, Any] = json.loads(printed, parse_constant=pytest.fail)  # NaN is not JSON
        return found

    return scores


@pytest.mark.parametrize(("name", "rate"), [("2x8", 0), ("init", 0.3)])
def test_a_run_scores_as_it_did_in_training_and_so_does_its_folder(
    name: str, rate: float, trained: Path, lesson: Path, tmp_path: Path, scores: Scores,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    run = trained / name
    found = scores(run, "--data", lesson)
    in_training = read_metrics(run)[-1]
    for name in ("loss", "mask_loss", "accuracy", "perplexity"):
        assert found[name] == pytest.approx(in_training[f"validation_{name}"], rel=1e-5)
    write_folder(load_run(run)[0].model, lesson / "tokenizer", tmp_path / "model")
    words = [tmp_path / "model", "--data", lesson]
    of_folder = scores(*words, "--mask-rate", rate)
    assert of_folder | {"model": ""} == found | {"model": ""}
    assert found.get("mask_rate") == in_training.get("validation_mask_rate") == (rate or None)
    stored = scores(*words)
    assert (stored["predictions"] == found["predictions"]) == (not rate)
    print_scores("run", found)
    assert (" sequences (30 % masked)\n" in capsys.readouterr().out) == bool(rate)


def test_a_perplexity_that_no_float_can_hold_is_null(
    trained: Path, lesson: Path, tmp_path: Path, scores: Scores
) -> None:
    run = Path(shutil.copytree(trained / "1x16", tmp_path / "run"))
    break_weight(run / "checkpoints/step-00000020", "lm_head.bias", 1e6)  # of the last token
    found = scores(run, "--data", lesson, "--pseudo-perplexity", 2)
    assert found["perplexity"] is None and found["pseudo_perplexity"] is None
    assert found["mlm_loss"] > 1e5


def test_sequences_add_up_and_pseudo_perplexity_is_near_perplexity_without_context(
    trained: Path, lesson: Path, tmp_path: Path, scores: Scores
) -> None:
    file = tmp_path / "losses.json"
    more = ("--per-sequence", file, "--pseudo-perplexity", 4)
    found = scores(trained / "2x8", "--data", lesson, *more)
    losses = json.loads(file.read_text())
    held_out = sum(s.sequences for s in Dataset.open(lesson, "validation").shards)
    assert len(losses["mask_loss"]) == len(losses["mask_count"]) == held_out
    mean = sum(losses["mask_loss"]) / sum(losses["mask_count"])
    assert mean == pytest.approx(found["mask_loss"], rel=1e-5)
    assert 0 < sum(losses["mask_count"]) < found["predictions"]  # others are kept or random
    assert found["pseudo_perplexity_sequences"] == 4
    assert found["pseudo_perplexity_tokens"] > 100
    assert 1 < found["pseudo_perplexity"] < 2048


def test_grammar_cloze_and_a_text_need_no_shards(
    trained: Path, lesson: Path, tmp_path: Path, scores: Scores, call: Call
) -> None:
    run, text = trained / "1x16", tmp_path / "text"
    write_folder(load_run(run)[0].model, lesson / "tokenizer", tmp_path / "model")
    (tmp_path / "verbs-run.txt").write_text("he run .\nhe runs .\nwe runs .\nwe run .\n")
    text.write_text("He runs to the [MASK].\n")
    asked = ["--grammar", tmp_path, "--cloze", text, "--pseudo-perplexity", text]
    found = scores(run, *asked)
    assert found["grammar"]["paradigms"]["verbs-run"]["pairs"] == 2
    assert found["grammar"]["phenomena"].keys() == {"verbs"}
    assert found["grammar"]["hash"] == pairs_hash(read_paradigms(tmp_path))
    assert found["pseudo_perplexity_sequences"] == 1 and len(found["cloze"][0]["guesses"][0]) == 5
    of_folder = scores(tmp_path / "model", *asked)
    for name in ("grammar", "cloze", "pseudo_perplexity"):
        assert of_folder[name] == found[name]
    with_data = scores(run, "--grammar", tmp_path, "--data", lesson)
    assert with_data["grammar"]["overall"]["frequency_accuracy"] is not None
    assert with_data["mlm_loss"] > 0
    by_word = scores(run, "--grammar", tmp_path, "--pll", "word")
    assert [by_word["grammar"]["pll"], found["grammar"]["pll"]] == ["word", "token"]
    assert "PLL-word-l2r" in call(evaluate.main, run, "--grammar", tmp_path, "--pll", "word")
    said = call(evaluate.main, run, *asked)
    assert "PLL per token" in said and "PLL-word-l2r" not in said
    assert "all paradigms" in said and "He runs to the [MASK]." in said


def test_the_printed_report(trained: Path, prepared: Path, call: Call) -> None:
    output = call(evaluate.main, trained / "1x16" / "10", "--data", prepared)
    assert "step 10: " in output and "loss at [MASK]" in output and "  stories  " in output


def test_models_and_data_that_cannot_be_scored(
    trained: Path, lesson: Path, tmp_path: Path, call: Call
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "config.json").write_text("{}")
    for model, data, said in (
        (tmp_path / "empty", lesson, "has no checkpoint"),
        (trained / "1x16", tmp_path, "has no manifest.json"),
        (tmp_path, lesson, "no model.safetensors"),
    ):
        assert said in call(evaluate.main, model, "--data", data, code=2)
