"""SQuAD's scores equal those of the official scorers."""

import json
from pathlib import Path

import pytest

from pipeline.downstream.reading.examples import Answer
from pipeline.downstream.reading.published import read_squad
from pipeline.evaluation.scoring import squad
from pipeline.evaluation.scoring.squad import answer_f1, best_threshold, exact_match, squad_scores


def test_rules_and_the_best_threshold_of_all() -> None:
    assert squad.normalize_answer("The  U.S. an Army's") == "us armys"
    assert exact_match(["the cat", "dog"], "Dog!") == 1
    assert answer_f1(["black cat"], "a black dog") == 0.5
    assert answer_f1(["black cat", "dog"], "a black dog") == pytest.approx(2 / 3)  # the best
    assert answer_f1([], "") == 1 and answer_f1([], "cat") == 0 and answer_f1(["cat"], "") == 0
    assert answer_f1(["the"], "") == 1  # nothing of the answer remains
    scores = squad_scores({"a": ["cat"], "b": []}, {"a": "cat", "b": "dog"})
    assert scores == {
        "f1": 0.5, "exact": 0.5, "answered_f1": 1, "answered_exact": 1, "unanswered_f1": 0,
        "unanswered_exact": 0,
    }  # fmt: skip
    gold = {"a": ["x"], "b": [], "c": ["y"], "d": []}
    texts = {"a": "x", "b": "q", "c": "z", "d": "q"}
    null = {"a": -1.0, "b": 2.0, "c": 1.0, "d": -1.0}
    assert best_threshold(gold, texts, null) == (0.5, float("-inf"))
    null["d"] = 0.0
    assert best_threshold(gold, texts, null) == (0.75, -1.0)


@pytest.mark.parametrize(
    ("key", "file", "predictions"),
    [
        (
            "XQuAD/xquad.en.json + 1.1_BERT_ensemble", "XQuAD/xquad.en.json",
            "1.1_BERT_ensemble_Google_AI_Language_.json",
        ),
        (
            "SQuAD2_cs224n/dev-v2.0.json + cs224n_dev_synthetic_predictions",
            "SQuAD2_cs224n/dev-v2.0.json", "cs224n_dev_synthetic_predictions.json",
        ),
    ],
)  # fmt: skip
def test_official_figures(real_data: Path, key: str, file: str, predictions: str) -> None:
    golden = real_data / "golden/squad"
    expected = json.loads((golden / "expected_scores.json").read_text())[key]
    found = json.loads((golden / predictions).read_text())
    gold = {
        example.id: [part.text for part in example.gold if isinstance(part, Answer)]
        for example in read_squad(real_data / "eval" / file)
        if isinstance(example.gold, tuple)
    }
    scores = squad_scores(gold, found)
    assert len(gold) == expected["total"]
    names = {"exact": "exact", "f1": "f1"}
    if "NoAns_f1" in expected:
        names |= {"HasAns_exact": "answered_exact", "HasAns_f1": "answered_f1"}
        names |= {"NoAns_exact": "unanswered_exact", "NoAns_f1": "unanswered_f1"}
    for theirs, ours in names.items():
        assert 100 * scores[ours] == pytest.approx(expected[theirs]), theirs
