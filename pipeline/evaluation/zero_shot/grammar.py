"""Paradigms of choices -> the share of choices whose right completion scores highest.

The score of a completion is its pseudo-log-likelihood, the sum over its tokens, in float32. A tie
of two counts half: a model that knows nothing scores 50 %. BabyLM counts a tie as right, which is
next to it, as is the score of word frequencies, if shards to count words in are given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.ipc
import torch

from pipeline.base.errors import DataError
from pipeline.base.typed_json import finite_or_none
from pipeline.cluster.ranks import ONE_PROCESS, RankGroup
from pipeline.config.formats import PLL_NAMES, Pll
from pipeline.data.shards.manifest import TRAIN, check_size
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.evaluation.scoring.metrics import spearman
from pipeline.evaluation.zero_shot.grammar_pairs import Completion, Paradigm
from pipeline.evaluation.zero_shot.pseudo_likelihood import (
    Forward,
    MaskableSequence,
    encode_sentences,
    log_probabilities,
)
from pipeline.loading.dataset import Dataset

Counts = npt.NDArray[np.int64]
Likelihoods = dict[Completion, float]
MOST_TOKENS = 10_000_000
"""Tokens per dataset: the frequencies of words in test sentences are known well from these."""


@dataclass(frozen=True, slots=True)
class GrammarTest:
    """Paradigms, ready to be scored."""

    paradigms: tuple[Paradigm, ...]
    sequences: dict[Completion, MaskableSequence]
    """Each completion once."""
    mask_id: int
    pll: Pll

    @classmethod
    def of(
        cls,
        paradigms: Sequence[Paradigm],
        vocabulary: Vocabulary,
        positions: int,
        pll: Pll = "token",
    ) -> GrammarTest:
        """The test for a model with this vocabulary and positions; errors as `encode_sentences`."""
        sides = dict.fromkeys(
            side for paradigm in paradigms for pair in paradigm.pairs for side in pair
        )
        texts, starts = [side.text for side in sides], [side.start for side in sides]
        sequences = encode_sentences(texts, vocabulary, positions, pll, starts)
        numbered = dict(zip(sides, sequences, strict=True))
        return cls(tuple(paradigms), numbered, vocabulary.mask, pll)


@dataclass(frozen=True, slots=True)
class PairScore:
    """The share of choices whose right completion scores highest."""

    accuracy: float
    """nan if a score is. Of WUG, Spearman's correlation with the share of people who chose it."""
    standard_error: float
    """Over pairs; of a mean over paradigms, as if their pairs were independent. nan of one pair."""
    frequency_accuracy: float
    """Accuracy of word frequencies; nan if they are not known."""
    pairs: int
    ties: int
    """Pairs whose right completion scores as high as the best other one."""
    ties_right: float
    """Accuracy if a tie counts as right instead of half."""

    @classmethod
    def mean(cls, scores: Sequence[PairScore]) -> PairScore:
        """Each of `scores` has the same weight."""
        return cls(
            fmean(score.accuracy for score in scores),
            math.sqrt(sum(score.standard_error**2 for score in scores)) / len(scores),
            fmean(score.frequency_accuracy for score in scores),
            sum(score.pairs for score in scores),
            sum(score.ties for score in scores),
            fmean(score.ties_right for score in scores),
        )


@dataclass(frozen=True, slots=True)
class GrammarScores:
    """Scores by paradigm, by phenomenon and of all: a mean over the paradigms in it."""

    paradigms: dict[str, PairScore]
    phenomena: dict[str, PairScore]
    overall: PairScore
    pll: Pll = "token"
    likelihoods: Likelihoods = field(default_factory=dict)
    """The pseudo-log-likelihood of each completion."""

    def fields(self) -> dict[str, Any]:
        """The scores as JSON; unknown ones are None."""
        scores = asdict(replace(self, likelihoods={}))
        del scores["likelihoods"]
        found: dict[str, Any] = finite_or_none(scores)
        return found


def score_grammar(
    forward: Forward,
    test: GrammarTest,
    device: torch.device,
    counts: Counts | None = None,
    *,
    ranks: RankGroup = ONE_PROCESS,
    on_batch: Callable[[int], None] = lambda copies: None,
) -> GrammarScores:
    """Score all paradigms.

    counts: occurrences of each token [V], for the baseline; others: see `log_probabilities`.
    """
    sequences = list(test.sequences.values())
    found = log_probabilities(
        forward, sequences, test.mask_id, device, ranks=ranks, on_batch=on_batch
    )
    sums = (float(part.sum(dtype=np.float32)) for part in found)
    likely = dict(zip(test.sequences, sums, strict=True))
    frequent = dict(zip(test.sequences, _frequencies(sequences, counts), strict=True))
    scores = {each.name: _grade(each, likely, frequent) for each in test.paradigms}
    phenomena: dict[str, list[PairScore]] = {}
    for paradigm in test.paradigms:
        phenomena.setdefault(paradigm.phenomenon, []).append(scores[paradigm.name])
    means = {name: PairScore.mean(part) for name, part in sorted(phenomena.items())}
    # BabyLM weighs the kinds of entity tracking alike, whatever operations each has.
    parts = means if test.paradigms[0].task == "entity_tracking" else scores
    return GrammarScores(scores, means, PairScore.mean(list(parts.values())), test.pll, likely)


def _grade(paradigm: Paradigm, likely: Likelihoods, frequent: Likelihoods) -> PairScore:
    wins, plain = (
        np.array([_win([sums[side] for side in pair]) for pair in paradigm.pairs])
        for sums in (likely, frequent)
    )
    accuracy, right, frequency = (float(each.mean()) for each in (wins, np.ceil(wins), plain))
    error = float(wins.std(ddof=1) / math.sqrt(len(wins))) if len(wins) > 1 else math.nan
    if paradigm.ratios:
        shares = [share_of_first([likely[side] for side in pair]) for pair in paradigm.pairs]
        accuracy = right = spearman(shares, paradigm.ratios)
        error = math.nan
    ties = int(((wins > 0) & (wins < 1)).sum())
    return PairScore(accuracy, error, frequency, len(wins), ties, right)


def _frequencies(sequences: Sequence[MaskableSequence], counts: Counts | None) -> list[float]:
    """The log-probability of each sentence if words were independent; add-one smoothing."""
    if counts is None:
        return [math.nan] * len(sequences)
    logs = np.log(counts + 1.0) - np.log(counts.sum() + len(counts))
    # fsum is exact, so the same tokens in another order are a tie.
    return [math.fsum(logs[sequence.ids[sequence.places]]) for sequence in sequences]


def _win(sums: Sequence[float]) -> float:
    """1 if the first is highest, 1 / k in a tie of k."""
    if any(map(math.isnan, sums)):  # else it would be a lost pair
        return math.nan
    return (sums[0] == max(sums)) / sums.count(max(sums))


def share_of_first(sums: Sequence[float]) -> float:
    """The probability of the first completion, if one of them is chosen; in float32, as BabyLM's,
    where very unlike ones are equally sure."""
    return float(torch.tensor(sums).softmax(0)[0])


def count_tokens(datasets: Iterable[Dataset], size: int, split: str = TRAIN) -> Counts:
    """Occurrences of each id [size] in the first rows of each dataset's split.

    Special tokens are counted too; no sentence has them where a token is scored.
    """
    counts = np.zeros(size, np.int64)
    for dataset in datasets:
        counted = 0
        for shard in dataset.manifest.of(split):
            path = check_size(dataset.directory, shard.file, shard.bytes)
            try:
                with pa.memory_map(str(path)) as source:  # only ids are read
                    reader = pa.ipc.open_file(source)
                    for number in range(reader.num_record_batches):
                        ids = reader.get_batch(number).column("input_ids").flatten().to_numpy()
                        counts += np.bincount(ids, minlength=size)
                        counted += len(ids)
                        if counted >= MOST_TOKENS:
                            break
            except (pa.ArrowInvalid, OSError, KeyError) as error:
                raise DataError(f"{path} is damaged: {error}; copy it again") from error
            if counted >= MOST_TOKENS:
                break
    return counts


def report_grammar(scores: GrammarScores) -> str:
    """A line per paradigm under its phenomenon's, and one of all."""
    known = not math.isnan(scores.overall.frequency_accuracy)
    rows = {"all paradigms": scores.overall, **scores.phenomena}
    rows |= {f"  {name}": score for name, score in scores.paradigms.items()}
    column = ("by word frequency", "frequency_accuracy") if known else ("", "")
    lines = [score_table(scores.pll, rows, *column)]
    if ties := scores.overall.ties:
        right = f"{scores.overall.ties_right:.1%}"
        lines.append(f"  {ties:,} ties count half; counted as right, as BabyLM does: {right}")
    if not known:
        lines.append("  --data DIR adds what word frequencies alone score")
    return "\n".join(lines)


def score_table(pll: Pll, rows: Mapping[str, PairScore], title: str, field: str) -> str:
    """A line of each score; title: of the last column, with this field of the scores, or ""."""
    width = max(map(len, [*rows, PLL_NAMES[pll]])) + 2
    lines = [f"  {PLL_NAMES[pll]:{width}} accuracy   error   pairs  ties   {title}".rstrip()]
    for name, score in rows.items():
        error = "" if math.isnan(score.standard_error) else f"{score.standard_error:.1%}"
        last = f"{getattr(score, field):{len(title)}.1%}" if field else ""
        lines.append(
            f"  {name:{width}} {score.accuracy:8.1%}  {error:>6}  {score.pairs:6,}  "
            f"{score.ties:4,}   {last}".rstrip()
        )
    return "\n".join(lines)
