"""Paradigms of minimal pairs -> the share of pairs whose right sentence scores higher.

The score of a sentence is its pseudo-log-likelihood, the sum over its tokens, in float32. A tie
counts half: a model that knows nothing scores 50 %. BabyLM counts a tie as right, which is next to
it, as is the score of word frequencies, if shards to count words in are given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
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
from pipeline.evaluation.zero_shot.grammar_pairs import Paradigm
from pipeline.evaluation.zero_shot.pseudo_likelihood import (
    Forward,
    MaskableSequence,
    encode_sentences,
    log_probabilities,
)
from pipeline.loading.dataset import Dataset

Counts = npt.NDArray[np.int64]
MOST_TOKENS = 10_000_000
"""Tokens per dataset: the frequencies of words in test sentences are known well from these."""


@dataclass(frozen=True, slots=True)
class GrammarTest:
    """Paradigms, ready to be scored."""

    paradigms: tuple[Paradigm, ...]
    sequences: dict[str, MaskableSequence]
    """Each sentence once."""
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
        sentences = list(
            dict.fromkeys(
                side for paradigm in paradigms for pair in paradigm.pairs for side in pair
            )
        )
        sequences = encode_sentences(sentences, vocabulary, positions, pll)
        numbered = dict(zip(sentences, sequences, strict=True))
        return cls(tuple(paradigms), numbered, vocabulary.mask, pll)


@dataclass(frozen=True, slots=True)
class PairScore:
    """The share of pairs whose right sentence scores higher."""

    accuracy: float
    """nan if the score of a sentence is."""
    standard_error: float
    """Over pairs; of a mean over paradigms, as if their pairs were independent. nan of one pair."""
    frequency_accuracy: float
    """Accuracy of word frequencies; nan if they are not known."""
    pairs: int
    ties: int
    """Pairs whose right sentence scores as high as the best other one."""
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

    def fields(self) -> dict[str, Any]:
        """The scores as JSON; unknown ones are None."""
        found: dict[str, Any] = finite_or_none(asdict(self))
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
    likely = {
        sentence: part.sum(dtype=np.float32)
        for sentence, part in zip(test.sequences, found, strict=True)
    }
    frequent = dict(zip(test.sequences, _frequencies(sequences, counts), strict=True))
    scores = {}
    for paradigm in test.paradigms:
        wins = np.array([_win(likely[good], likely[bad]) for good, bad in paradigm.pairs])
        plain = np.array([_win(frequent[good], frequent[bad]) for good, bad in paradigm.pairs])
        error = float(wins.std(ddof=1) / math.sqrt(len(wins))) if len(wins) > 1 else math.nan
        frequency = math.nan if counts is None else float(plain.mean())
        ties, right = int((wins == 0.5).sum()), float(np.ceil(wins).mean())
        scores[paradigm.name] = PairScore(
            float(wins.mean()), error, frequency, len(wins), ties, right
        )
    phenomena: dict[str, list[PairScore]] = {}
    for paradigm in test.paradigms:
        phenomena.setdefault(paradigm.phenomenon, []).append(scores[paradigm.name])
    means = {name: PairScore.mean(part) for name, part in sorted(phenomena.items())}
    return GrammarScores(scores, means, PairScore.mean(list(scores.values())), test.pll)


def _frequencies(sequences: Sequence[MaskableSequence], counts: Counts | None) -> list[float]:
    """The log-probability of each sentence if words were independent; add-one smoothing."""
    if counts is None:
        return [0.0] * len(sequences)
    logs = np.log(counts + 1.0) - np.log(counts.sum() + len(counts))
    # fsum is exact, so the same tokens in another order are a tie.
    return [math.fsum(logs[sequence.ids[sequence.places]]) for sequence in sequences]


def _win(good: float, bad: float) -> float:
    if math.isnan(good) or math.isnan(bad):  # else `good > bad` would make it a lost pair
        return math.nan
    return 0.5 if good == bad else float(good > bad)


def count_tokens(datasets: Iterable[Dataset], size: int) -> Counts:
    """Occurrences of each id [size] in the first training rows of each dataset.

    Special tokens are counted too; no sentence has them where a token is scored.
    """
    counts = np.zeros(size, np.int64)
    for dataset in datasets:
        counted = 0
        for shard in dataset.manifest.of(TRAIN):
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
    names = {"all paradigms": scores.overall, **scores.phenomena, **scores.paradigms}
    measure = PLL_NAMES[scores.pll]
    width = max(map(len, [*names, measure])) + 2
    head = f"  {measure:{width}} accuracy   error   pairs  ties"
    head += "   by word frequency" if known else ""
    lines = [head, _line("all paradigms", scores.overall, width)]
    lines += [_line(name, score, width) for name, score in scores.phenomena.items()]
    lines += [_line(f"  {name}", score, width) for name, score in scores.paradigms.items()]
    if ties := scores.overall.ties:
        right = f"{scores.overall.ties_right:.1%}"
        lines.append(f"  {ties:,} ties count half; counted as right, as BabyLM does: {right}")
    if not known:
        lines.append("  --data DIR adds what word frequencies alone score")
    return "\n".join(lines)


def _line(name: str, score: PairScore, width: int) -> str:
    error = "" if math.isnan(score.standard_error) else f"{score.standard_error:.1%}"
    line = f"  {name:{width}} {score.accuracy:8.1%}  {error:>6}  {score.pairs:6,}  {score.ties:4,}"
    known = not math.isnan(score.frequency_accuracy)
    return line + (f"   {score.frequency_accuracy:17.1%}" if known else "")
