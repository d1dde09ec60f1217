"""The metrics equal scikit-learn, scipy and seqeval on random cases with ties and empty classes."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import sklearn.metrics as theirs
from scipy import stats
from seqeval.metrics import f1_score

from pipeline.evaluation.scoring.metrics import (
    accuracy,
    entities,
    entity_f1,
    f1,
    macro_f1,
    matthews,
    pearson,
    spearman,
)

CASES = 1000


def test_labels() -> None:
    rng = np.random.default_rng(0)
    for _ in range(CASES):
        names = np.array(["0", "1", "2", "3"])[: rng.integers(1, 5)]
        gold, found = (rng.choice(names, rng.integers(1, 25)) for _ in range(2))
        size = min(len(gold), len(found))
        gold, found = gold[:size].tolist(), found[:size].tolist()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert accuracy(gold, found) == pytest.approx(theirs.accuracy_score(gold, found))
            expected = theirs.f1_score(gold, found, labels=["1"], average="macro", zero_division=0)
            assert f1(gold, found, "1") == pytest.approx(expected)
            expected = theirs.f1_score(gold, found, average="macro", zero_division=0)
            assert macro_f1(gold, found) == pytest.approx(expected)
            expected = theirs.matthews_corrcoef(gold, found)
            assert matthews(gold, found) == pytest.approx(expected, abs=1e-12)


def test_numbers() -> None:
    rng = np.random.default_rng(1)
    constant = 0
    for _ in range(CASES):
        size = rng.integers(2, 25)
        gold = rng.integers(0, 5, size).astype(float)  # many ties
        found = rng.normal(size=size) if rng.random() < 0.5 else rng.integers(0, 3, size) * 1.0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = stats.pearsonr(gold, found).statistic, stats.spearmanr(gold, found).statistic
        results = pearson(gold.tolist(), found.tolist()), spearman(gold.tolist(), found.tolist())
        constant += math.isnan(expected[0])
        assert results == pytest.approx(expected, abs=1e-9, nan_ok=True)
    assert constant > 10


def test_entities() -> None:
    rng = np.random.default_rng(2)
    tags = ["O", "O", "B-X", "I-X", "B-Y", "I-Y", "E-X", "S-Y", "I-Z"]
    for case in range(CASES):
        own = tags if case % 2 else tags[:4]
        sizes = rng.integers(1, 9, rng.integers(1, 5))
        gold, found = ([rng.choice(own, size).tolist() for size in sizes] for _ in range(2))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = f1_score(gold, found, zero_division=0)
        assert entity_f1(gold, found) == pytest.approx(expected)
    assert entity_f1([["O"]], [["O"]]) == 0
    assert entities(["I-X", "I-X", "B-X", "O", "I-Y"]) == {("X", 0, 1), ("X", 2, 2), ("Y", 4, 4)}
