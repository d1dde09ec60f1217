"""Sums over the held-out sequences of each corpus -> scores, of corpora and of languages.

Sums are divided once, so a language's loss is the mean of its corpora's, weighed by their predicted
tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from model.objectives.masked_language import LossPart, Sums
from pipeline.evaluation.loss_parts import add, part_metrics, present
from pipeline.loading.dataset import Dataset
from pipeline.loading.micro_batch import LossCounts

MOST_CORPORA, SHOWN_CORPORA = 32, 5
"""Corpora that metrics and tables have separately; of more, those that are named: the worst."""
MEAN_LOSS, WORST_LOSS = "corpora_mlm_loss", "worst_mlm_loss"
"""Fields for many corpora: the mean of their losses, in which each counts the same, and the highest
one."""
LANGUAGE = "language/"
"""Prefix of the name of a language in a field, where a corpus has its own: `loss/language/en`."""


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of a model on some held-out sequences."""

    parts: tuple[LossPart, ...]
    """The parts of its loss."""
    sums: Sums
    """Sums over all these sequences."""
    counts: LossCounts

    @classmethod
    def total(cls, scores: Iterable[Scores]) -> Scores:
        """The scores of all sequences of `scores` together."""
        first, *others = scores
        sums = dict(first.sums)  # a copy: `add` changes it
        for other in others:
            add(sums, other.sums)
        counts = zip(*(first.counts, *(other.counts for other in others)), strict=True)
        return cls(first.parts, sums, LossCounts(*map(sum, counts)))

    @property
    def metrics(self) -> dict[str, float]:
        """See `part_metrics`; accuracy and perplexity are those of masked language modelling.

        A part that has nothing to score is absent, and then `loss` is too: it would not be the loss
        that the model was trained with.
        """
        found = part_metrics(self.parts, self.sums, self.counts)
        if len(present(self.parts, self.sums, self.counts)) < len(self.parts):
            found.pop("loss", None)
        if "mlm_loss" not in found:
            return found
        loss = found["mlm_loss"]
        perplexity = math.inf if loss > 700 else math.exp(loss)  # exp overflows above 709
        return found | {"accuracy": found["mlm_accuracy"], "perplexity": perplexity}

    def fields(self, prefix: str) -> dict[str, float]:
        """The metrics with a prefix, as fields of a line of metrics."""
        return {f"{prefix}{name}": value for name, value in self.metrics.items()}


def corpus_fields(
    scores: Mapping[str, Scores],
    prefix: str,
    languages: Mapping[str, Scores],
    most: int | None = None,
) -> dict[str, float]:
    """Metrics of all corpora together and, if there are several, of each, as `loss/books`.

    languages: from `language_scores`; most: if there are more corpora, the mean and the highest of
    their losses instead, and of more languages nothing; None for no bound.
    """
    fields = Scores.total(scores.values()).fields(prefix)
    if most is not None and len(scores) > most:
        losses = [loss for _, loss in worst_corpora(scores)]
        fields |= {f"{prefix}{MEAN_LOSS}": fmean(losses), f"{prefix}{WORST_LOSS}": losses[0]}
    elif len(scores) > 1:
        fields |= _named_fields(scores, prefix, "/")
    if most is None or len(languages) <= most:
        fields |= _named_fields(languages, prefix, f"/{LANGUAGE}")
    return fields


def _named_fields(scores: Mapping[str, Scores], prefix: str, between: str) -> dict[str, float]:
    return {
        f"{metric}{between}{name}": value
        for name, part in scores.items()
        for metric, value in part.fields(prefix).items()
    }


def language_scores(scores: Mapping[str, Scores], datasets: Iterable[Dataset]) -> dict[str, Scores]:
    """The scores of each language that several corpora have, as the manifests record it.

    A corpus of which directories record several languages counts for none.
    """
    recorded: dict[str, set[str]] = {}
    for dataset in datasets:
        for corpus, about in dataset.manifest.corpora.items():
            recorded.setdefault(corpus, set()).update(filter(None, [about.get("language")]))
    members: dict[str, list[Scores]] = {}
    for corpus, part in scores.items():
        # With several languages it is unknown which rows have which.
        if len(recorded[corpus]) == 1:
            (language,) = recorded[corpus]
            members.setdefault(language, []).append(part)
    return {language: Scores.total(own) for language, own in members.items() if len(own) > 1}


def corpus_table(scores: Mapping[str, Scores]) -> dict[str, dict[str, float]]:
    """The metrics of each corpus, or language, with the number of its predicted tokens."""
    return {
        corpus: {"predictions": part.counts.predictions, **part.metrics}
        for corpus, part in scores.items()
    }


def worst_corpora(scores: Mapping[str, Scores]) -> list[tuple[str, float]]:
    """Corpora and their losses of masked language modelling, the highest first; those that have
    nothing to score are absent."""
    losses = {corpus: part.metrics.get("mlm_loss") for corpus, part in scores.items()}
    found = [(corpus, loss) for corpus, loss in losses.items() if loss is not None]
    return sorted(found, key=lambda each: by_loss(each[1]))


def by_loss(loss: float) -> tuple[bool, float]:
    """Sorts the highest loss first, and NaN before it: compared with NaN no order is right."""
    return not math.isnan(loss), -loss


def describe_worst(worst: Sequence[tuple[str, float]]) -> str:
    """`worst of 1,833 corpora: yo 5.1034, ...`; worst: from `worst_corpora`."""
    named = ", ".join(f"{corpus} {loss:.4f}" for corpus, loss in worst[:SHOWN_CORPORA])
    return f"worst of {len(worst):,} corpora: {named}"
