"""The datasets of a phase, one per corpus -> how often each is read: weights, shares, passes.

`batch.mixture` gives a weight for each corpus. `batch.mixture_exponent` derives them: corpus i of
n_i training tokens is read in proportion to n_i^exponent, so that a small language is read more
often than its size says. With `batch.mixture_over=languages`, n_i are the tokens of a language's
corpora, of which all rows are read equally often. The papers call the exponent alpha, S or tau:

    BERT, multilingual                   0.7 (google-research/bert, multilingual.md; recalled)
    Conneau & Lample 2019 (XLM)          0.5 for the vocabulary, 0.7 for masked language modelling,
                                         sec. 3.1 and 5.1; they count sentences (recalled)
    Conneau et al. 2020 (XLM-R)          0.3, sec. 3.1 (recalled)
    Marone et al. 2025 (mmBERT)          0.7, 0.5, 0.3 in three phases of 60, 110, 1,833 languages

The order of samples keeps these proportions, and lets every row show its masks in turn
(loading/order.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.config.training_settings import BatchSettings
from pipeline.data.shards.manifest import TRAIN
from pipeline.loading.dataset import Dataset

MOST_SHOWN = 12
"""Corpora of a mixture that are listed in full; of more, the largest and the smallest half."""


@dataclass(frozen=True, slots=True)
class CorpusUse:
    """How a phase reads one corpus of a mixture."""

    corpus: str
    tokens: int
    """Tokens of its training rows."""
    share: float
    """Share of the sequences that the phase reads."""
    passes: float
    """Passes over its rows, in the whole phase."""
    language: str = ""
    """Its language in a mixture of languages, where one is recorded."""


def mixture_weights(batch: BatchSettings, datasets: Sequence[Dataset]) -> tuple[float, ...]:
    """The weight of each dataset in the order of samples; empty if all are read equally often.

    datasets: one corpus in each. Those of the same corpus, or of the same language where these are
    mixed, divide its weight by their rows.
    """
    if not batch.is_mixed:
        return ()
    groups = [_group_of(batch, dataset) for dataset in datasets]
    rows, tokens = dict.fromkeys(groups, 0), dict.fromkeys(groups, 0)
    for group, dataset in zip(groups, datasets, strict=True):
        rows[group] += dataset.rows
        tokens[group] += dataset.tokens
    weights = {group: count**batch.mixture_exponent for group, count in tokens.items()}
    # batch.mixture names corpora, whose groups have no language.
    weights |= {("", entry.corpus): entry.weight for entry in batch.mixture}
    return tuple(
        weights[group] * dataset.rows / rows[group]
        for group, dataset in zip(groups, datasets, strict=True)
    )


def corpus_of(dataset: Dataset) -> str:
    """The corpus of a dataset that holds only one."""
    (corpus,) = dataset.manifest.corpora
    return corpus


def _group_of(batch: BatchSettings, dataset: Dataset) -> tuple[str, str]:
    """The key of what shares a weight: the language, or without one the corpus, which may be
    named like a language."""
    language = _language_of(batch, dataset)
    return language, "" if language else corpus_of(dataset)


def _language_of(batch: BatchSettings, dataset: Dataset) -> str:
    """The language of a dataset's corpus; empty if none is recorded, or corpora are mixed."""
    if batch.mixture_over == "corpora":
        return ""
    return str(dataset.manifest.corpora[corpus_of(dataset)].get("language", ""))


def read_factors(batch: BatchSettings, datasets: Sequence[Dataset]) -> list[float]:
    """The frequency with which a sequence of each dataset is read, relative to the average."""
    weights = mixture_weights(batch, datasets)
    if not weights:
        return [1] * len(datasets)
    total, whole = sum(dataset.rows for dataset in datasets), sum(weights)
    return [
        weight / whole * total / dataset.rows
        for weight, dataset in zip(weights, datasets, strict=True)
    ]


def words_per_row(factors: Sequence[float], datasets: Sequence[Dataset]) -> float:
    """Words between white space of a row, on average; 0 if some shards do not say.

    factors: how often each dataset is read, see `read_factors`. The words of text that is in no row
    do not count, and those of a text that is packed in several draws count in each.
    """
    total = 0.0
    for factor, dataset in zip(factors, datasets, strict=True):
        if (words := dataset.manifest.words(TRAIN)) is None:
            return 0.0
        packed = [corpus["packed"] for corpus in dataset.manifest.corpora.values()]
        text, dropped = (
            sum(each[f"{name}_tokens"] for each in packed) for name in ("text", "dropped")
        )
        draws = int(dataset.manifest.data.get("segments.draws", 1))
        total += factor * words * draws * (1 - dropped / max(1, text))
    return total / max(1, sum(dataset.rows for dataset in datasets))


def corpora_used(
    batch: BatchSettings, datasets: Sequence[Dataset], sequences: int
) -> list[CorpusUse]:
    """The use of each corpus in `sequences` sequences, the largest first; empty if not mixed."""
    weights = mixture_weights(batch, datasets)
    found: dict[tuple[str, str], list[float]] = {}
    whole = sum(weights)
    for weight, dataset in zip(weights, datasets, strict=False):  # no weights: no mixture
        values = (dataset.tokens, dataset.rows, weight / whole)
        key = (corpus_of(dataset), _language_of(batch, dataset))
        sums = found.setdefault(key, [0.0, 0.0, 0.0])
        sums[:] = (old + new for old, new in zip(sums, values, strict=True))
    used = [
        CorpusUse(corpus, int(tokens), share, share * sequences / rows, language)
        for (corpus, language), (tokens, rows, share) in found.items()
    ]
    return sorted(used, key=lambda use: -use.tokens)


def describe_mixture(batch: BatchSettings, used: Sequence[CorpusUse]) -> list[str]:
    """Lines about a mixture: tokens, share and passes of its corpora; none without a mixture."""
    if not used:
        return []
    how = "batch.mixture" if batch.mixture else f"their tokens^{batch.mixture_exponent:g}"
    if batch.mixture_over == "languages":
        count = len({(use.language, "" if use.language else use.corpus) for use in used})
        how = f"the tokens^{batch.mixture_exponent:g} of their {count:,} languages"
    lines = [f"mixture: {len(used):,} {'corpus' if len(used) == 1 else 'corpora'} by {how}"]
    half = MOST_SHOWN // 2
    shown = [*used] if len(used) <= MOST_SHOWN else [*used[:half], *used[-half:]]
    names = [f"{use.corpus} ({use.language})" if use.language else use.corpus for use in shown]
    width = max(map(len, names))
    rows = [
        f"  {name:{width}}  {use.tokens:>17,} tokens  {use.share:>8.3%}  "
        f"{use.passes:>10,.2f} passes"
        for name, use in zip(names, shown, strict=True)
    ]
    if len(shown) < len(used):
        rows.insert(half, f"  ... {len(used) - len(shown):,} more: pipeline.plan --json has all")
    return lines + rows
