"""Accuracy, F1, Matthews' and other correlations, F1 of entities; no scorer is downloaded.

Each equals its counterpart in scikit-learn, scipy or seqeval, empty classes and ties included. A
correlation with a constant input is NaN, as theirs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

CHUNK_TAG = re.compile(r"O|[BIES](-.*)?", re.DOTALL)
"""A tag that entities are made of."""
Floats = npt.NDArray[np.float64]


def accuracy(gold: Sequence[object], predicted: Sequence[object]) -> float:
    """The share of equal entries."""
    return sum(left == right for left, right in zip(gold, predicted, strict=True)) / len(gold)


def f1(gold: Sequence[str], predicted: Sequence[str], positive: str) -> float:
    """F1 of one label; 0 if it neither occurs nor is predicted."""
    pairs = list(zip(gold, predicted, strict=True))
    hits = sum(left == right == positive for left, right in pairs)
    total = sum((left == positive) + (right == positive) for left, right in pairs)  # 2 TP + FP + FN
    return 2 * hits / total if total else 0.0


def macro_f1(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """The mean F1 of all labels that occur or are predicted."""
    labels = sorted({*gold, *predicted})
    return sum(f1(gold, predicted, label) for label in labels) / len(labels)


def matthews(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """Matthews' correlation of any number of labels (Gorodkin 2004); 0 if one side is constant."""
    labels = {label: index for index, label in enumerate(sorted({*gold, *predicted}))}
    table = np.zeros((len(labels), len(labels)))  # floats: the spread grows with count^4
    for left, right in zip(gold, predicted, strict=True):
        table[labels[left], labels[right]] += 1
    count, right_count = table.sum(), np.trace(table)
    of_gold, of_predicted = table.sum(1), table.sum(0)
    covariance = right_count * count - of_gold @ of_predicted
    spread = (count**2 - of_predicted @ of_predicted) * (count**2 - of_gold @ of_gold)
    return float(covariance / math.sqrt(spread)) if spread else 0.0


def pearson(gold: Sequence[float], predicted: Sequence[float]) -> float:
    """Pearson's correlation; NaN if one side is constant."""
    left, right = np.asarray(gold, float), np.asarray(predicted, float)
    # Compared exactly: the norm of a constant may round to a little above 0.
    if (left == left[0]).all() or (right == right[0]).all():
        return math.nan
    left, right = left - left.mean(), right - right.mean()
    left, right = left / np.linalg.norm(left), right / np.linalg.norm(right)
    return float(np.clip(left @ right, -1, 1))  # rounding may exceed 1


def spearman(gold: Sequence[float], predicted: Sequence[float]) -> float:
    """Pearson's correlation of ranks, where equal values share their mean rank."""
    return pearson(_ranks(gold).tolist(), _ranks(predicted).tolist())


def _ranks(values: Sequence[float]) -> Floats:
    _, places, counts = np.unique(
        np.asarray(values, float), return_inverse=True, return_counts=True
    )
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2)[places], float)


def entities(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """(type, first word, last word) of the entities in a sentence, as conlleval finds them.

    A tag is O, or B, I, E or S, a hyphen and a type. I starts an entity if none of its type is
    open.
    """
    found: set[tuple[str, int, int]] = set()
    open_type, first, before = "", 0, "O"
    for index, tag in enumerate([*tags, "O"]):  # O: closes the last entity
        # A tag without a type has the type _, as in seqeval.
        part, type_ = tag[0], tag[1:].split("-", maxsplit=1)[-1] or "_"
        starts = part != "O" and (part in "BS" or before in "OES" or type_ != open_type)
        if before != "O" and (starts or part == "O"):
            found.add((open_type, first, index - 1))
        if starts:
            first = index
        open_type, before = type_, part
    return found


def entity_f1(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> float:
    """F1 of entities over all sentences; 0 if there are none."""
    hits = total = 0
    for left, right in zip(gold, predicted, strict=True):
        ours, theirs = entities(left), entities(right)
        hits += len(ours & theirs)
        total += len(ours) + len(theirs)
    return 2 * hits / total if total else 0.0
