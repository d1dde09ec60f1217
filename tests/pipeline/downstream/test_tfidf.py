"""TF-IDF under a linear model: what it learns from words and pairs, and when it cannot be had."""

import sys

import pytest

from pipeline.base.errors import ConfigError
from pipeline.downstream.jobs import choose_arms
from pipeline.downstream.reading.examples import Example, Gold
from pipeline.downstream.tfidf import fit_predict, why_not


def example(gold: Gold, *texts: str) -> Example:
    return Example("", texts, gold)


def test_words_and_pairs_of_words_decide() -> None:
    """`not good` and `good not` have the same words."""
    texts = {"not good , bad": "0", "good , not bad": "1", "so good": "1", "so bad": "0"}
    training = [example(label, text) for text, label in texts.items()] * 5
    unseen = [example(None, text) for text in ("NOT good", "good", "film not bad", "", "\u6771")]
    given = [*training, example(None, "x")]
    dev, other = fit_predict(given, [unseen, training[:2]], "classification")
    assert dev[:3] == ["0", "1", "1"] and len(dev) == 5 and other == ["0", "1"]


def test_pairs_have_features_of_each_text_and_choices_are_ranked() -> None:
    """Examples may have different numbers of choices."""
    training = [example("a", "x", "y"), example("b", "y", "x")] * 3
    assert fit_predict(training, [training[:2]], "classification") == [["a", "b"]]
    blank = [example("a", "x", ""), example("b", "y", "")] * 3
    assert fit_predict(blank, [blank[:2]], "classification") == [["a", "b"]]
    training = [example("1", "he", "bad end", "good end"), example("0", "she", "good", "bad")] * 4
    dev = [example(None, "it", "a bad", "bad", "good"), example(None, "it", "bad one", "good one")]
    assert fit_predict(training, [dev], "choices") == [["2", "1"]]
    single = [example("0", "he", "only")]
    assert fit_predict(single, [single], "choices") == [["0"]]


def test_numbers_by_ridge_regression() -> None:
    training = [example(float(n), " ".join(["good"] * n + ["bad"] * (4 - n))) for n in range(5)] * 9
    ((low, high),) = fit_predict(training, [[training[0], training[4]]], "regression")
    assert isinstance(low, float) and low < 1 and isinstance(high, float) and high > 3


def test_without_scikit_learn_it_is_passed_over_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert why_not("classification") == ""
    assert why_not("tags").endswith("predicts from whole texts, and tags are places in them")
    monkeypatch.setitem(sys.modules, "sklearn", None)  # so that importing it fails
    missing = why_not("choices")
    assert choose_arms("all", missing) == ("model", "bag", "random")
    assert choose_arms("all", "") == ("model", "bag", "random", "tfidf")
    with pytest.raises(ConfigError, match=r"scikit-learn: pip install '\.\[baselines\]'"):
        choose_arms("tfidf", missing)
