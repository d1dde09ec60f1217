"""The baseline `tfidf`: TF-IDF of words and word pairs under a linear model, by scikit-learn.

Each text of an example has features of its own. Labels are predicted by logistic regression,
numbers by ridge regression, and of choices the one that a logistic regression of right and wrong
ones ranks first. It has no seed: one fit per output.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.downstream.finetune_tasks import TaskKind
from pipeline.downstream.reading.examples import Example

KINDS: tuple[TaskKind, ...] = ("classification", "regression", "choices")
"""Kinds of tasks that predict from whole texts; spans and tags are places in them."""
STRENGTH = 10.0
"""Inverse strength of the penalty on logistic regression's weights (C): SST-2's dev
with its first 10,000 training phrases has 80.8 % with it, and 79.7 % with scikit-learn's 1."""
ITERATIONS = 1_000
TOKEN = re.compile(r"\w+|[^\w\s]")  # scikit-learn's own drops punctuation and single letters


def why_not(kind: TaskKind) -> str:
    """Reason why the baseline cannot run for a kind of task, in a line; empty if it can."""
    if kind not in KINDS:
        return f"the baseline tfidf predicts from whole texts, and {kind} are places in them"
    try:
        import sklearn  # noqa: F401
    except ImportError:
        return "the baseline tfidf needs scikit-learn: pip install '.[baselines]'"
    return ""


def fit_predict(
    training: Sequence[Example], sets: Sequence[Sequence[Example]], kind: TaskKind
) -> list[list[str | float]]:
    """Fit on the training examples that have a gold; the prediction of each example of each set."""
    # here, not above: an extra that only this baseline needs
    from sklearn.linear_model import LogisticRegression, Ridge

    known = [example for example in training if example.gold is not None]
    linear: Any
    golds: list[Any]
    if kind == "regression":
        linear, golds = Ridge(), [float(str(example.gold)) for example in known]
    else:
        linear = LogisticRegression(C=STRENGTH, max_iter=ITERATIONS)
        golds = [example.gold for example in known]
    if kind == "choices":
        # a binary question for each choice: is it the right one?
        golds = [str(place) == e.gold for e in known for place in range(len(e.texts) - 1)]
        known = _choices(known)
    if len(set(golds)) == 1:  # one choice each, which logistic regression refuses
        return [["0"] * len(examples) for examples in sets]
    features = _Features(known)
    linear.fit(features.of(known), golds)
    if kind != "choices":
        return [linear.predict(features.of(examples)).tolist() for examples in sets]
    return [
        _best(examples, linear.decision_function(features.of(_choices(examples))))
        for examples in sets
    ]


class _Features:
    """Columns of each text of an example, side by side."""

    def __init__(self, training: Sequence[Example]) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        self.columns: list[Any] = []
        for place in range(len(training[0].texts)):
            # 1 + log(count): one repeated word does not decide
            column = TfidfVectorizer(analyzer=_terms, sublinear_tf=True)
            # on training texts only: with development texts their frequencies would leak
            self.columns.append(column.fit([example.texts[place] for example in training]))

    def of(self, examples: Sequence[Example]) -> Any:
        """[examples, features], sparse."""
        from scipy.sparse import hstack

        return hstack(
            [
                column.transform([example.texts[place] for example in examples])
                for place, column in enumerate(self.columns)
            ],
            format="csr",
        )


def _terms(text: str) -> list[str]:
    """Words, punctuation marks, and pairs of neighbours, in lower case; the ends count as
    neighbours, so that a blank text has a term."""
    words = TOKEN.findall(text.lower())
    return [*words, *map(" ".join, zip(["", *words], [*words, ""]))]


def _choices(examples: Sequence[Example]) -> list[Example]:
    """An example for each choice, of only its own text: what all choices share decides nothing in
    a linear model."""
    return [Example(e.id, (choice,), None) for e in examples for choice in e.texts[1:]]


def _best(examples: Sequence[Example], scores: Any) -> list[str | float]:
    """The index of each example's best choice, as text."""
    # np.split takes inner bounds: with the last end it would return one empty part more
    ends = np.cumsum([len(example.texts) - 1 for example in examples])
    return [str(int(part.argmax())) for part in np.split(scores, ends[:-1])]
