"""The metrics equal scikit-learn, scipy and seqeval on random cases with ties and empty classes."""

import math

import numpy as np
import pytest
import sklearn.metrics as theirs
from scipy import stats
from seqeval.metrics import f1_score

from pipeline.evaluation.scoring import metrics

CASES = 400
pytestmark = pytest.mark.filterwarnings("ignore")
"""Of peers, about classes that are empty."""


def test_labels() -> None:
    rng = np.random.default_rng(0)
    for _ in range(CASES // 4):  # scikit-learn takes 9 ms for each
        names = np.array(["0", "1", "2", "3"])[: rng.integers(1, 5)]
        gold, found = (rng.choice(names, rng.integers(1, 25)) for _ in range(2))
        size = min(len(gold), len(found))
        gold, found = gold[:size].tolist(), found[:size].tolist()
        for ours, expected in (
            (metrics.accuracy(gold, found), theirs.accuracy_score(gold, found)),
            (metrics.f1(gold, found, "1"),
             theirs.f1_score(gold, found, labels=["1"], average="macro", zero_division=0)),
            (metrics.macro_f1(gold, found),
             theirs.f1_score(gold, found, average="macro", zero_division=0)),
        ):  # fmt: skip
            assert ours == pytest.approx(expected)
        expected = theirs.matthews_corrcoef(gold, found)
        assert metrics.matthews(gold, found) == pytest.approx(expected, abs=1e-12)


def test_numbers() -> None:
    rng = np.random.default_rng(1)
    constant = 0
    for _ in range(CASES):
        size = rng.integers(2, 25)
        gold = rng.integers(0, 5, size).astype(float)  # many ties
        found = rng.normal(size=size) if rng.random() < 0.5 else rng.integers(0, 3, size) * 1.0
        expected = stats.pearsonr(gold, found).statistic, stats.spearmanr(gold, found).statistic
        both = (metrics.pearson, metrics.spearman)
        results = tuple(ours(gold.tolist(), found.tolist()) for ours in both)
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
        expected = f1_score(gold, found, zero_division=0)
        assert metrics.entity_f1(gold, found) == pytest.approx(expected)
    assert metrics.entity_f1([["O"]], [["O"]]) == 0
    found = metrics.entities(["I-X", "I-X", "B-X", "O", "I-Y"])
    assert found == {("X", 0, 1), ("X", 2, 2), ("Y", 4, 4)}
