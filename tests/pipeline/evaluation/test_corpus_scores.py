"""Scores of corpora and languages are sums, divided once."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from model.objectives.masked_language import LossPart
from pipeline.evaluation import corpus_scores
from pipeline.evaluation.corpus_scores import Scores, corpus_fields, worst_corpora
from pipeline.loading.micro_batch import LossCounts


def scored(mlm_loss: float, correct: float, mask_loss: float, masked: float, n: int) -> Scores:
    values = (mlm_loss, correct, mask_loss, masked)
    names = ("mlm_loss", "mlm_correct", "mask_loss", "mask_count")
    sums = {name: torch.tensor(value) for name, value in zip(names, values, strict=True)}
    return Scores((LossPart(name="mlm", weight=1.0, per="predictions"),), sums, LossCounts(n, 0, 0))


def test_scores_are_sums_divided_once() -> None:
    scores = scored(20.0, 5.0, 12.0, 4.0, 10)
    found = scores.metrics
    assert [found[name] for name in ("loss", "mask_loss", "accuracy")] == [2.0, 3.0, 0.5]
    assert found["perplexity"] == pytest.approx(math.e**2)
    assert scores.fields("validation_")["validation_mask_loss"] == 3.0
    assert math.isnan(scored(20.0, 5.0, 0.0, 0.0, 10).metrics["mask_loss"])
    assert Scores.total([scores, scored(10.0, 1.0, 0.0, 0.0, 20)]).metrics["loss"] == 1.0
    assert scores.metrics["loss"] == 2.0


def test_of_many_corpora_the_mean_and_the_worst_are_fields() -> None:
    """The mean counts each corpus the same, however few tokens it has."""
    scores = {"en": scored(20.0, 5.0, 12.0, 4.0, 10), "yo": scored(50.0, 0.0, 0.0, 0.0, 10)}
    scores["sw"] = scored(3.0, 0.0, 0.0, 0.0, 1)
    assert worst_corpora(scores) == [("yo", 5.0), ("sw", 3.0), ("en", 2.0)]
    said = corpus_scores.describe_worst(worst_corpora(scores))
    assert said == "worst of 3 corpora: yo 5.0000, sw 3.0000, en 2.0000"
    every, few = (corpus_fields(scores, "validation_", {}, most) for most in (3, 2))
    assert every == corpus_fields(scores, "validation_", {})
    assert few["validation_corpora_mlm_loss"] == pytest.approx(10 / 3)
    assert few["validation_worst_mlm_loss"] == 5.0
    assert every["validation_mlm_loss"] == few["validation_mlm_loss"] == pytest.approx(73 / 21)
    assert every["validation_mlm_loss/yo"] == 5.0 and not any("/" in name for name in few)
    table = corpus_scores.corpus_table(scores)
    assert table["yo"]["mlm_loss"] == 5.0 and [*table] == ["en", "yo", "sw"]
    assert [table[corpus]["predictions"] for corpus in table] == [10, 10, 1]
    silent = scores | {"la": scored(0.0, 0.0, 0.0, 0.0, 0)}
    assert [corpus for corpus, _ in worst_corpora(silent)] == ["yo", "sw", "en"]


def test_a_loss_that_is_no_number_is_the_worst_wherever_it_stands() -> None:
    for place in range(3):
        losses = [2.0, 5.0]
        losses.insert(place, math.nan)
        scores = {str(n): scored(loss, 0.0, 0.0, 0.0, 1) for n, loss in enumerate(losses)}
        worst = worst_corpora(scores)
        assert worst[0][0] == str(place) and [loss for _, loss in worst[1:]] == [5.0, 2.0]
    found = scores[str(place)].metrics
    assert math.isnan(found["perplexity"]) and math.isnan(found["mlm_loss"])


def test_a_language_has_the_mean_of_its_corpora_weighed_by_their_predictions() -> None:
    """Where several corpora share it; directories that name two languages give none."""
    scores = {
        "web": scored(20.0, 5.0, 12.0, 4.0, 10), "wiki": scored(9.0, 1.0, 6.0, 2.0, 3),
        "yo": scored(50.0, 0.0, 0.0, 0.0, 10), "news": scored(7.0, 0.0, 0.0, 0.0, 1),
        "mixed": scored(8.0, 0.0, 0.0, 0.0, 1),
    }  # fmt: skip
    datasets: list[Any] = []
    for languages in (
        {"web": "en", "wiki": "en", "yo": "yo", "news": "", "mixed": "en"},
        {"wiki": "", "mixed": "de"},
    ):
        corpora = {name: {"language": code} if code else {} for name, code in languages.items()}
        datasets.append(SimpleNamespace(manifest=SimpleNamespace(corpora=corpora)))
    found = corpus_scores.language_scores(scores, datasets)
    assert [*found] == ["en"]
    parts = [scores[name].metrics for name in ("web", "wiki")]
    mean = (10 * parts[0]["mlm_loss"] + 3 * parts[1]["mlm_loss"]) / 13
    assert found["en"].metrics["mlm_loss"] == pytest.approx(mean) == pytest.approx(29 / 13)
    fields = corpus_fields(scores, "validation_", found)
    own = {name: value for name, value in fields.items() if "/language/" in name}
    metrics = found["en"].metrics
    assert own == {f"validation_{name}/language/en": metrics[name] for name in metrics}
    assert set(fields) - set(own) == set(corpus_fields(scores, "validation_", {}))
    few = corpus_fields(scores, "", found, 4)  # more corpora than that, but not more languages
    assert few["mlm_loss/language/en"] == pytest.approx(mean) and "mlm_loss/web" not in few
    assert not any("/" in name for name in corpus_fields(scores, "", found, 0))
