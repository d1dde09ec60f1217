"""SQuAD's exact match and F1, by the rules of its official scorers for versions 1.1 and 2.0."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)  # only ASCII's, as in theirs


def normalize_answer(text: str) -> str:
    """Lower case, without punctuation, articles and extra space."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(gold: Sequence[str], predicted: str) -> float:
    """1 if the prediction equals one of the answers; gold: () if there is no answer."""
    return float(
        any(normalize_answer(predicted) == normalize_answer(answer) for answer in _accepted(gold))
    )


def answer_f1(gold: Sequence[str], predicted: str) -> float:
    """The best F1 of words over the answers; gold: () if there is no answer."""
    return max(_word_f1(answer, predicted) for answer in _accepted(gold))


def squad_scores(
    gold: Mapping[str, Sequence[str]], predicted: Mapping[str, str]
) -> dict[str, float]:
    """Means of exact match and F1 over all questions, and over those with and without an answer.

    gold: the accepted answers of every question, () for none; predicted: "" for no answer.
    """
    rows = [
        (bool(answers), exact_match(answers, predicted[name]), answer_f1(answers, predicted[name]))
        for name, answers in gold.items()
    ]
    scores = {"f1": _mean([row[2] for row in rows]), "exact": _mean([row[1] for row in rows])}
    if not all(row[0] for row in rows):  # never in version 1.1
        for part, answered in (("answered", True), ("unanswered", False)):
            chosen = [row for row in rows if row[0] == answered]
            if chosen:
                scores[f"{part}_f1"] = _mean([row[2] for row in chosen])
                scores[f"{part}_exact"] = _mean([row[1] for row in chosen])
    return scores


def best_threshold(
    gold: Mapping[str, Sequence[str]], predicted: Mapping[str, str], null: Mapping[str, float]
) -> tuple[float, float]:
    """The best F1 that a threshold on the null score can give, and that threshold.

    null: how much better no answer scores than the answer, per question; above the threshold the
    prediction is no answer.
    """
    names = sorted(gold, key=lambda name: null[name])
    current = float(sum(not gold[name] for name in names))  # everything is unanswered
    best, threshold = current, float("-inf")
    # In this order a rising threshold turns one question after the other into an answered one.
    for index, name in enumerate(names):
        current += answer_f1(gold[name], predicted[name]) - (not gold[name])
        # Equal null scores are on the same side of any threshold.
        ends = index + 1 == len(names) or null[names[index + 1]] != null[name]
        if ends and current > best:
            best, threshold = current, null[name]
    return best / len(names), threshold


def _accepted(gold: Sequence[str]) -> Sequence[str]:
    """Accepted answers by the rule of version 2.0: an answer of which nothing remains is none."""
    return [answer for answer in gold if normalize_answer(answer)] or [""]


def _word_f1(answer: str, predicted: str) -> float:
    left, right = normalize_answer(answer).split(), normalize_answer(predicted).split()
    if not left or not right:
        return float(left == right)  # at least one of them is empty
    common = sum((Counter(left) & Counter(right)).values())
    return 2 * common / (len(left) + len(right)) if common else 0.0


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
