"""Scores of finetune and of evaluate are read; other files are refused in one line."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.base.errors import DataError
from pipeline.reporting.score_files import read_scores, scored_encoder

FINE_TUNED: dict[str, Any] = {
    "schema_version": 1, "task": "sst2", "metric": "accuracy", "model": {"origin": "runs/a"},
    "grid": {"name": "none", "points": 0}, "kind": "classification",
    "protocol": {"source": "Devlin", "peak_lr": 2e-5, "rows": 32, "epochs": 3, "max_steps": 0},
    "scores": {"accuracy": {"median": 0.8, "n": 5, "low": 0.78, "high": 0.82}},
    "baselines": {"majority": {"accuracy": 0.51}, "bag": {"accuracy": {"median": 0.7}},
                  "tfidf": {"accuracy": 0.75}},
}  # fmt: skip
PAIR = {"accuracy": 0.7, "standard_error": 0.01, "frequency_accuracy": 0.5, "pairs": 2000}
ZERO_SHOT: dict[str, Any] = {
    "model": "runs/a", "validation_mask_loss": 3.2,
    "grammar": {"overall": PAIR, "phenomena": {"case": PAIR | {"frequency_accuracy": None}}},
}  # fmt: skip


def read(path: Path, content: object) -> list[Any]:
    path.write_text(json.dumps(content))
    return read_scores(path)


def test_the_encoder_that_a_score_began_from(tmp_path: Path) -> None:
    for model, encoder in (
        ({"origin": "runs/a", "encoder_hash": "d"}, "d"),
        ({"origin": "runs/a through scores/mnli", "encoder_hash": "d"}, ""),
        ({"origin": "runs/a"}, ""),
        ("runs/a step 3", ""),
    ):
        (tmp_path / "scores.json").write_text(json.dumps({"model": model}))
        assert scored_encoder(tmp_path / "scores.json") == encoder


def test_fine_tuned_scores_and_their_baselines(tmp_path: Path) -> None:
    found = read(tmp_path / "scores.json", FINE_TUNED)
    assert [(s.model, s.name, s.value) for s in found] == [
        ("runs/a", "sst2: accuracy", 0.8), ("the commonest class", "sst2: accuracy", 0.51),
        ("a bag of word embeddings", "sst2: accuracy", 0.7),
        ("TF-IDF of words and word pairs", "sst2: accuracy", 0.75),
    ]  # fmt: skip
    note = "fine-tuned, median of 5 seeds; Devlin: rate 2e-05, 32 rows, 3 epochs"
    assert (found[0].low, found[0].high, found[0].note) == (0.78, 0.82, note)
    assert [score.kind for score in found] == ["classification", "", "", ""]


def test_grammar_and_the_rate_of_masks(tmp_path: Path) -> None:
    found = read(tmp_path / "a.json", ZERO_SHOT)
    names = ["validation mask loss", "grammar: all paradigms", "grammar: case"]
    assert [score.name for score in found] == names
    assert found[1].low == pytest.approx(0.7 - 0.0196)
    assert "word frequencies alone 50.0%" in found[1].note
    assert "frequencies" not in found[2].note
    assert "PLL-word-l2r" in found[1].note  # written before the measure was named
    tied = PAIR | {"ties": 20, "ties_right": 0.705}
    named = {"model": "runs/a", "grammar": {"overall": tied, "phenomena": {}, "pll": "token"}}
    (score,) = read(tmp_path / "a.json", named)
    assert score.note == (
        "2,000 pairs, PLL per token, without training; 20 ties count half, as right: 70.5%; "
        "word frequencies alone 50.0%"
    )
    scores = {"model": "runs/a", "perplexity": 9.0, "pseudo_perplexity": 4.0, "mask_rate": 0.15}
    found = read(tmp_path / "a.json", scores)
    assert [score.note for score in found] == ["15 % masked", ""]


def test_other_files_are_refused(tmp_path: Path) -> None:
    huge = {"accuracy": FINE_TUNED["scores"]["accuracy"] | {"median": 10**400}}
    for content, message in (
        ([], "not an object"), ({}, "has no scores"), (FINE_TUNED | {"scores": 3}, "is damaged"),
        ({"model": "a", "grammar": {"overall": 1}}, "damaged"),
        (FINE_TUNED | {"scores": huge}, "is damaged: OverflowError"),
    ):  # fmt: skip
        with pytest.raises(DataError, match=message):
            read(tmp_path / "a", content)
    assert read(tmp_path / "a", {"model": "a", "grammar": {}}) == []
