from __future__ import annotations

import json
import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from model.objectives.masked_language import MaskedLanguageModel
from pipeline import evaluate
from pipeline.base.errors import CheckpointError, ConfigError, DataError
from pipeline.config.settings import override
from pipeline.evaluation.zero_shot.grammar_pairs import pairs_hash, read_paradigms
from pipeline.loading.dataset import Dataset
from pipeline.planning.build import build_model
from pipeline.planning.plan import encoder_config
from pipeline.recipes import recipe
from pipeline.training.run_directory.metrics import read_metrics
from pipeline.training.weights.folders import load_run, write_folder

GOLDEN = Path(__file__).parents[1] / "golden"


def scores(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object
) -> dict[str, Any]:
    monkeypatch.setattr(sys, "argv", ["evaluate", *map(str, arguments), "--json"])
    evaluate.main()
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


@pytest.mark.parametrize(("name", "rate"), [("2x8", 0), ("init", 0.3)])
def test_a_run_scores_as_it_did_in_training_and_so_does_its_folder(
    name: str, rate: float, trained: Path, lesson: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    run = trained / name
    found = scores(monkeypatch, capsys, run, "--data", lesson)
    in_training = read_metrics(run)[-1]
    for name in ("loss", "mask_loss", "accuracy", "perplexity"):
        assert found[name] == pytest.approx(in_training[f"validation_{name}"], rel=1e-5)
    write_folder(load_run(run)[0].model, lesson / "tokenizer", tmp_path / "model")
    words = [tmp_path / "model", "--data", lesson]
    of_folder = scores(monkeypatch, capsys, *words, "--mask-rate", rate)
    assert of_folder | {"model": ""} == found | {"model": ""}
    assert found.get("mask_rate") == in_training.get("validation_mask_rate") == (rate or None)
    stored = scores(monkeypatch, capsys, *words)
    assert (stored["predictions"] == found["predictions"]) == (not rate)
    evaluate.report("run", found)
    assert (" sequences (30 % masked)\n" in capsys.readouterr().out) == bool(rate)


def test_messages_on_checkpoints_are_not_part_of_the_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    saved, _ = load_run(GOLDEN / "runs/bert")
    monkeypatch.setattr(evaluate, "load_run", lambda _: (saved, ["step 20 is damaged"]))
    evaluate.load_model(GOLDEN / "runs/bert")
    assert capsys.readouterr() == ("", "checkpoints: step 20 is damaged\n")


def test_sequences_add_up_to_the_score(
    trained: Path, lesson: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    file = tmp_path / "losses.json"
    found = scores(monkeypatch, capsys, trained / "2x8", "--data", lesson, "--per-sequence", file)
    losses = json.loads(file.read_text())
    held_out = sum(s.sequences for s in Dataset.open(lesson, "validation").shards)
    assert len(losses["mask_loss"]) == len(losses["mask_count"]) == held_out
    mean = sum(losses["mask_loss"]) / sum(losses["mask_count"])
    assert mean == pytest.approx(found["mask_loss"], rel=1e-5)
    assert 0 < sum(losses["mask_count"]) < found["predictions"]  # others are kept or random
    monkeypatch.setattr(sys, "argv", ["evaluate", "x", "--cloze", "x", "--per-sequence", "f"])
    with pytest.raises(ConfigError, match="give --data"):
        evaluate.main()


@pytest.mark.parametrize(
    "name, settings",
    [
        ("bert_tiny", ["objective.pair_weight=0.5"]),
        ("electra_tiny", ["objective.kind=rtd_masked"]),
        ("electra_tiny", ["objective.kind=replace_mlm", "objective.words_weight=3"]),
        ("electra_tiny", ["objective.kind=all_tokens_mlm", "objective.words_weight=0.1"]),
    ],
)
def test_a_folder_scores_as_its_run_with_every_part_of_the_loss(
    name: str, settings: list[str], lesson: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    vocabulary = Dataset.open(lesson, "validation").manifest.tokenizer["size"]
    sizes = ["encoder.layers=2", f"data.vocab_size={vocabulary}"]
    model = build_model(override(recipe(name), [*sizes, *settings]), seed=0).eval()
    write_folder(model, lesson / "tokenizer", tmp_path / "model")
    datasets = [Dataset.open(lesson, "validation")]
    ours = evaluate.score(model, datasets, 0, "row")
    folder, *_ = evaluate.load_model(tmp_path / "model")
    found = evaluate.score(folder, datasets, 0, "row")
    assert json.dumps(found) == json.dumps(ours)  # NaN, where all judged tokens are replaced, too
    part = model.parts[1]
    assert part == folder.parts[1]
    if part.name == "pair":
        return  # the lesson has no pairs
    weighted = ours["mlm_loss"] + part.weight * ours[f"{part.name}_loss"]
    assert ours["loss"] == pytest.approx(weighted)
    evaluate.report("model", ours)
    said = capsys.readouterr().out
    assert f" nats = loss + {part.weight:g} x {evaluate.PARTS[part.name]}\n" in said
    assert ("accuracy at predicted tokens\n" in said) == (part.per == "predictions")


def test_pseudo_perplexity_is_near_perplexity_for_a_model_that_ignores_context(
    trained: Path, lesson: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    found = scores(
        monkeypatch, capsys, trained / "1x16", "--data", lesson, "--pseudo-perplexity", 4
    )
    assert found["pseudo_perplexity_sequences"] == 4
    assert found["pseudo_perplexity_tokens"] > 100
    assert 1 < found["pseudo_perplexity"] < 2048


def test_grammar_cloze_and_a_text_need_no_shards(
    trained: Path, lesson: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    run, text = trained / "1x16", tmp_path / "text"
    write_folder(load_run(run)[0].model, lesson / "tokenizer", tmp_path / "model")
    (tmp_path / "verbs-run.txt").write_text("he run .\nhe runs .\nwe runs .\nwe run .\n")
    text.write_text("He runs to the [MASK].\n")
    asked = ["--grammar", tmp_path, "--cloze", text, "--pseudo-perplexity", text]
    found = scores(monkeypatch, capsys, run, *asked)
    assert found["grammar"]["paradigms"]["verbs-run"]["pairs"] == 2
    assert found["grammar"]["phenomena"].keys() == {"verbs"}
    assert found["grammar"]["hash"] == pairs_hash(read_paradigms(tmp_path))
    assert found["pseudo_perplexity_sequences"] == 1 and len(found["cloze"][0]["guesses"][0]) == 5
    of_folder = scores(monkeypatch, capsys, tmp_path / "model", *asked)
    for name in ("grammar", "cloze", "pseudo_perplexity"):
        assert of_folder[name] == found[name]
    with_data = scores(monkeypatch, capsys, run, "--grammar", tmp_path, "--data", lesson)
    assert with_data["grammar"]["overall"]["frequency_accuracy"] is not None
    assert with_data["mlm_loss"] > 0
    monkeypatch.setattr(sys, "argv", ["evaluate", str(run), *map(str, asked)])
    evaluate.main()
    said = capsys.readouterr().out
    assert "all paradigms" in said and "He runs to the [MASK]." in said
    for arguments, message in (
        ((), "nothing to score; give --data"),
        (("--mask-rate", 0.3), "--mask-rate 0.3 masks held-out sequences; give --data"),
        (("--mask-rate", 1, "--data", "x"), r"--mask-rate must be in \[0, 1\), got 1"),
        (("--pseudo-perplexity", 3), "--pseudo-perplexity 3 reads held-out sequences"),
        (("--pseudo-perplexity", -1), "--pseudo-perplexity must not be negative, got -1"),
    ):
        with pytest.raises(ConfigError, match=message):
            scores(monkeypatch, capsys, run, *arguments)


def test_the_printed_report(
    trained: Path, prepared: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(
        sys, "argv", ["evaluate", str(trained / "1x16" / "10"), "--data", str(prepared)]
    )
    evaluate.main()
    output = capsys.readouterr().out
    assert "step 10: " in output and "loss at [MASK]" in output and "  stories  " in output


def test_models_and_data_that_cannot_be_scored(
    trained: Path, lesson: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    with pytest.raises(CheckpointError, match="has no checkpoint"):
        scores(monkeypatch, capsys, tmp_path, "--data", lesson)
    with pytest.raises(DataError, match=r"holds no manifest.json"):
        scores(monkeypatch, capsys, trained / "1x16", "--data", tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="no model that can be loaded"):
        scores(monkeypatch, capsys, tmp_path, "--data", lesson)


def test_precision_is_undefined_without_detections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found: dict[str, Any] = {
        "mlm_loss": 1.0,
        "mask_loss": 1.0,
        "accuracy": 0.5,
        "perplexity": 2.7,
        "loss": 26.0,
    }
    found |= {"rtd_loss": 0.5, "rtd_accuracy": 0.75, "predictions": 9}
    found |= {"rtd_precision": float("nan"), "rtd_recall": 0.0, "rtd_auc": 0.5}
    found |= {"loss_parts": {"rtd": {"weight": 50.0, "per": "tokens"}}}
    evaluate.report("model", found)
    said = capsys.readouterr().out
    assert "model: 9 predicted tokens of held-out sequences, by the generator" in said
    assert "  loss                1.0000 nats\n" in said
    assert "  detection           0.5000 nats, 75.00% accuracy\n" in said
    assert "  all parts           26.0000 nats = loss + 50 x detection\n" in said
    assert "replaced tokens     none suspected, 0.00% recall, 0.5000 area under the curve" in said
    for name in ("load_model", "check_datasets", "check_lengths", "score"):
        monkeypatch.setattr(evaluate, name, lambda *_: (None, "model", "", "row", 0.0))
    monkeypatch.setattr(evaluate, "score", lambda *_: found)
    held_out = Namespace(at_rate=lambda _: held_out)
    monkeypatch.setattr(evaluate.Dataset, "open", lambda *_: held_out)
    monkeypatch.setattr(evaluate, "parse_evaluate", lambda: Namespace(
        model=tmp_path, data=[tmp_path], grammar=None, cloze=None, pseudo_perplexity="", json=True,
        per_sequence=None, mask_rate=None,
    ))  # fmt: skip
    evaluate.main()
    assert json.loads(capsys.readouterr().out)["rtd_precision"] is None


def test_a_pair_head_is_scored_on_shards_without_pairs(
    lesson: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = replace(encoder_config(recipe("bert_tiny")), vocab_size=2048, layers=1)
    model = MaskedLanguageModel(config, seed=0, pair_weight=1.0).eval()
    result = evaluate.score(model, [Dataset.open(lesson, "validation")], 0, "row")
    assert result["mlm_loss"] > 0 and not {"pair_loss", "loss"} & result.keys()
    evaluate.report("model", result)
    said = capsys.readouterr().out
    assert f"  loss                {result['mlm_loss']:.4f} nats" in said
    assert "pairs" not in said and "all parts" not in said
