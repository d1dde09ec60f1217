"""Logits -> predictions of examples, and their scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from pipeline.base.typed_json import as_json
from pipeline.downstream.features import Feature
from pipeline.downstream.finetune_tasks import LabelledTask
from pipeline.downstream.reading.examples import Answer, Example
from pipeline.evaluation.scoring.metrics import (
    accuracy,
    entity_f1,
    f1,
    macro_f1,
    matthews,
    pearson,
    spearman,
)
from pipeline.evaluation.scoring.squad import best_threshold, squad_scores

BEST = 20
"""Starts and ends that are combined (google-research/bert run_squad.py, n_best_size)."""
LONGEST_ANSWER = 30
"""Most tokens of an answer (run_squad.py, max_answer_length)."""
LOWEST = -1e9
"""Stands for minus infinity, which JSON lacks."""
OUTSIDE = "O"
"""Tag of a word that does not fit in its row."""

Prediction = str | float | list[str]


@dataclass(frozen=True, slots=True)
class Predicted:
    """The prediction of an example."""

    id: str
    gold: Any
    predicted: Prediction
    score: float
    """Probability of the prediction, the mean of the words' for tags; for spans the sum of both
    logits, LOWEST if there is no answer to give; for regression the prediction."""
    null: float = -math.inf
    """For spans, the score of no answer minus that of the best answer."""

    def line(self, file: str) -> bytes:
        """The prediction as a line of JSON; file: name of a further development file."""
        record: dict[str, Any] = {"file": file} if file else {}
        record |= {
            "id": self.id, "gold": self.gold, "predicted": self.predicted, "score": self.score,
        }  # fmt: skip
        if self.null != -math.inf:
            record["null_score"] = self.null
        return as_json(record, ensure_ascii=False).encode() + b"\n"


def predictions(
    examples: Sequence[Example], features: Sequence[Feature], logits: Sequence[Tensor],
    task: LabelledTask, labels: Sequence[str],
) -> list[Predicted]:  # fmt: skip
    """The prediction of each example."""
    if task.kind == "spans":
        return _spans(examples, features, logits, abstains=task.abstains)
    makers: dict[str, Callable[[Example, Feature, Tensor], Predicted]] = {
        "classification": lambda example, _, found: _label(example, found, labels),
        "regression": lambda example, _, found: _number(example, found),
        "choices": lambda example, _, found: _choice(example, found),
        "tags": lambda example, feature, found: _tags(example, feature, found, labels),
    }
    make = makers[task.kind]
    return [make(examples[f.example], f, found) for f, found in zip(features, logits)]


def score(found: Sequence[Predicted], task: LabelledTask) -> dict[str, float]:
    """The task's metrics. Examples without a label are not counted."""
    known = [part for part in found if part.gold is not None]
    gold = [part.gold for part in known]
    predicted: list[Any] = [part.predicted for part in known]
    if task.kind == "spans":
        return _span_scores(known)
    if task.kind == "tags":
        flat = [
            (left, right)
            for tags, ours in zip(gold, predicted)
            for left, right in zip(tags, ours, strict=True)  # words that were cut have OUTSIDE
        ]
        found_scores = {"accuracy": accuracy(*zip(*flat))}
        if "entity_f1" in task.metrics:
            found_scores = {"entity_f1": entity_f1(gold, predicted)} | found_scores
        return found_scores
    scorers: Mapping[str, Callable[[Any, Any], float]] = {
        "accuracy": accuracy,
        "macro_f1": macro_f1,
        "f1": lambda left, right: f1(left, right, task.positive),
        "matthews": matthews,
        "pearson": pearson,
        "spearman": spearman,
    }
    found_scores = {name: scorers[name](gold, predicted) for name in task.metrics}
    # a constant prediction has no correlation; JSON has no NaN
    return {name: 0.0 if math.isnan(value) else value for name, value in found_scores.items()}


def majority(
    examples: Sequence[Example], training: Sequence[Example], task: LabelledTask
) -> list[Predicted]:
    """Predictions of what is most frequent in training: a label, a tag, a choice; the mean number;
    for spans no answer if training has questions without one, else the whole paragraph."""
    golds = [example.gold for example in training if example.gold is not None]
    constant: Prediction
    if task.kind == "regression":
        constant = fmean(float(str(gold)) for gold in golds)
    elif task.kind == "spans":
        constant = ""
    else:
        names = [
            name for gold in golds for name in (gold if isinstance(gold, tuple) else (str(gold),))
        ]
        # max takes the first of equals: sorted, or ties would follow the hash order of each process
        constant = max(sorted({str(name) for name in names}), key=names.count)
    answerless = any(gold == () for gold in golds)
    values: list[Prediction] = []
    for example in examples:
        own: Prediction = constant
        if task.kind == "tags":
            own = [str(constant)] * len(example.texts)
        elif task.kind == "spans" and not answerless:
            own = example.texts[1]
        values.append(own)
    return unsure(examples, values)


def unsure(examples: Sequence[Example], values: Sequence[Prediction]) -> list[Predicted]:
    """Predictions of a baseline, which has no probabilities."""
    return [
        Predicted(example.id, _plain(example), value, 0.0)
        for example, value in zip(examples, values, strict=True)
    ]


def submission(found: Sequence[Predicted], name: str) -> bytes:
    """A file of GLUE's form: index and prediction, tab-separated with a header line."""
    lines = ["index\tprediction"]
    for index, part in enumerate(found):
        value = part.predicted
        # STS-B is rated from 0 to 5, and a linear head is not bounded
        shown = f"{min(5.0, max(0.0, value)):.3f}" if isinstance(value, float) else str(value)
        lines.append(f"{part.id if name == 'AX.tsv' else index}\t{shown}")
    return ("\n".join(lines) + "\n").encode()


def _plain(example: Example) -> Any:
    """The gold as JSON; answers as their texts."""
    if isinstance(example.gold, tuple):
        return [part.text if isinstance(part, Answer) else part for part in example.gold]
    return example.gold


def _label(example: Example, logits_1L: Tensor, labels: Sequence[str]) -> Predicted:
    shares = logits_1L[0].softmax(-1)
    best = int(shares.argmax())
    return Predicted(example.id, _plain(example), labels[best], float(shares[best]))


def _number(example: Example, logits_11: Tensor) -> Predicted:
    value = float(logits_11[0, 0])
    return Predicted(example.id, _plain(example), value, value)


def _choice(example: Example, logits_C1: Tensor) -> Predicted:
    shares = logits_C1[:, 0].softmax(-1)
    best = int(shares.argmax())
    return Predicted(example.id, _plain(example), str(best), float(shares[best]))


def _tags(
    example: Example, feature: Feature, logits_NL: Tensor, labels: Sequence[str]
) -> Predicted:
    tags = [OUTSIDE] * len(example.texts)
    if not feature.words:  # the mean below would be NaN
        return Predicted(example.id, _plain(example), tags, 0.0)
    shares, best = logits_NL.softmax(-1).max(-1)
    for word, label in zip(feature.words, best.tolist()):
        tags[word] = labels[label]
    return Predicted(example.id, _plain(example), tags, float(shares.mean()))


def _spans(
    examples: Sequence[Example], features: Sequence[Feature], logits: Sequence[Tensor],
    *, abstains: bool,
) -> list[Predicted]:  # fmt: skip
    """The best answer over the windows of each question; none where that scores better.

    abstains: whether questions may have no answer, as in SQuAD 2.0.
    """
    best: dict[int, tuple[float, str]] = {}
    null: dict[int, float] = {}
    for feature, found in zip(features, logits):
        index = feature.example
        none = float(found[0].sum())
        # run_squad.py: the window that is least sure of "no answer" speaks for the question
        null[index] = min(none, null.get(index, math.inf))
        candidate = best_answer(examples[index].texts[1], feature, found)
        if candidate is not None and candidate[0] > best.get(index, (-math.inf, ""))[0]:
            best[index] = candidate
    rows = []
    for index, example in enumerate(examples):
        value, text = best.get(index, (LOWEST, ""))
        row = Predicted(example.id, _plain(example), text, value)
        if abstains:
            # without any answer to give, "no answer" wins at every threshold
            row = replace(row, null=null[index] - value if text else -LOWEST)
        rows.append(row)
    return rows


def best_answer(paragraph: str, feature: Feature, logits_N2: Tensor) -> tuple[float, str] | None:
    """Score and text of the best answer of a window; None if no token may start it."""
    window = feature.window
    assert window is not None
    stop = window.first + len(window.offsets)
    inside = logits_N2[window.first : stop]
    if not len(inside):  # a blank paragraph
        return None
    # a start counts only in the window that shows its token with the most context (run_squad.py)
    starts = inside[:, 0].masked_fill(~torch.tensor(window.best), -math.inf)
    # 20 x 20 sums per window; all pairs of a row of 384 would be 147,456
    start_values, start_places = starts.topk(min(BEST, len(inside)))
    end_values, end_places = inside[:, 1].topk(min(BEST, len(inside)))
    sums = start_values[:, None] + end_values[None]
    sizes = end_places[None] - start_places[:, None]
    sums = sums.masked_fill((sizes < 0) | (sizes >= LONGEST_ANSWER), -math.inf)
    place = int(sums.argmax())
    value = float(sums.flatten()[place])
    if value == -math.inf:  # every pair ends before it starts, or is too long
        return None
    # cut from the paragraph: decoded ids would be lower case, with spaces around punctuation
    first = window.offsets[int(start_places[place // len(end_places)])][0]
    last = window.offsets[int(end_places[place % len(end_places)])][1]
    return value, paragraph[first:last]


def _span_scores(found: Sequence[Predicted]) -> dict[str, float]:
    """SQuAD's; where questions may have no answer, at threshold 0 and at the best one."""
    rows = {str(number): part for number, part in enumerate(found)}  # ids may repeat
    gold = {name: part.gold for name, part in rows.items()}
    texts = {name: str(part.predicted) for name, part in rows.items()}
    if all(part.null == -math.inf for part in found):
        return squad_scores(gold, texts)
    null = {name: part.null for name, part in rows.items()}
    decided = {name: "" if null[name] > 0 else text for name, text in texts.items()}
    best, threshold = best_threshold(gold, texts, null)
    threshold = max(LOWEST, threshold)  # JSON lacks -inf, the best if all have answers
    return squad_scores(gold, decided) | {"best_f1": best, "null_threshold": threshold}
