"""Sentences -> the log-probability of every token, masked, given the others.

A sentence of T tokens becomes T copies, each with another token masked. That is the measure `token`
(Salazar et al. 2020), which published BabyLM scores have. `word` also masks the tokens that follow
it in its word, so that the end of a word does not give away its beginning (PLL-word-l2r, Kauf &
Ivanova 2023, arXiv 2305.10588). A word is a piece that the tokenizer splits text into. Of a
completion only the tokens that end after its first character are scored. Copies of all sentences
are batched by length, so no batch has pads, and only the masked positions pass through the head.
ELECTRA is scored by its generator: its discriminator predicts no words. Ranks of a run share the
batches.

Legend: B copies, S their length, N sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Encoding, Tokenizer

from model.objectives.masked_language import Inputs, Sums
from model.pieces import pieces_of
from pipeline.base.errors import DataError
from pipeline.base.progress import counting
from pipeline.cluster.ranks import ONE_PROCESS, RankGroup
from pipeline.config.formats import Pll
from pipeline.data.tokenizers.vocabulary import Vocabulary

BATCH_TOKENS = {"cpu": 4_096, "cuda": 65_536}
"""Tokens per forward pass; on a CPU the activations should fit in its cache."""
Ids = npt.NDArray[np.int64]
LogProbabilities = npt.NDArray[np.float32]
Forward = Callable[[Inputs], Sums]
"""A model, or a model under ZeRO."""
ALONE = -1
"""The word of a token that is masked by itself, or not at all."""


@dataclass(frozen=True, slots=True)
class MaskableSequence:
    """A sequence whose text tokens are masked in turn."""

    ids: Ids
    """[S] with special tokens."""
    segments: Ids
    """[S] segment ids."""
    places: Ids
    """[T] positions to predict, in order."""
    words: Ids
    """[S] number of the word of each token, or ALONE."""


def encode_sentences(
    sentences: Sequence[str],
    vocabulary: Vocabulary,
    positions: int,
    pll: Pll = "token",
    starts: Sequence[int] = (),
) -> list[MaskableSequence]:
    """Each sentence between the first and the last special token.

    positions: tokens that the model has positions for; starts: characters before the completion of
    each sentence, () to score whole ones. Raises DataError for a sentence that has no tokens, has
    unknown ones, or is too long.
    """
    tokenizer = Tokenizer.from_str(vocabulary.text_json())  # a written [MASK] stays text
    encodings = tokenizer.encode_batch(list(sentences), add_special_tokens=False)
    lengths = [len(encoding.ids) + 2 for encoding in encodings]
    if too_long := [n for n, length in enumerate(lengths) if length > positions]:
        raise DataError(
            f"{_excerpt(sentences[too_long[0]])} has {lengths[too_long[0]]:,} tokens with special "
            f"ones, but the model has {positions:,} positions; shorten it "
            f"({len(too_long):,} of {len(sentences):,} texts are too long)"
        )
    return [
        _sequence(sentence, encoding, vocabulary, pll, start)
        for sentence, encoding, start in zip(
            sentences, encodings, starts or [0] * len(sentences), strict=True
        )
    ]


def _sequence(
    sentence: str,
    encoding: Encoding,
    vocabulary: Vocabulary,
    pll: Pll,
    start: int,
) -> MaskableSequence:
    if not encoding.ids:
        raise DataError(f"{_excerpt(sentence)} has no tokens; remove it")
    if vocabulary.unk in encoding.ids:
        start, stop = encoding.offsets[encoding.ids.index(vocabulary.unk)]
        raise DataError(
            f"the tokenizer has no token for {sentence[start:stop]!r} in {_excerpt(sentence)}; "
            "remove the sentence, or use a model that knows the word"
        )
    words = [ALONE if word is None or pll == "token" else word for word in encoding.word_ids]
    # A token that holds the space before the completion ends in it.
    ends = np.array([end for _, end in encoding.offsets])
    return MaskableSequence(
        ids=np.array([vocabulary.bos, *encoding.ids, vocabulary.eos]),
        segments=np.zeros(len(encoding.ids) + 2, np.int64),
        places=np.flatnonzero(ends > start) + 1,
        words=np.array([ALONE, *words, ALONE]),
    )


def maskable_sequence(row_2S: Ids, special: set[int]) -> MaskableSequence:
    """A row of a dataset, whose text tokens are masked one at a time.

    row_2S: ids and segment ids; special: ids that are not text.
    """
    ids, segments = row_2S
    places = np.flatnonzero(~np.isin(ids, sorted(special)))
    return MaskableSequence(ids, segments, places, np.full(len(ids), ALONE))


def _excerpt(sentence: str) -> str:
    return repr(sentence if len(sentence) <= 60 else f"{sentence[:57]}...")


@torch.no_grad()
def log_probabilities(
    forward: Forward,
    sequences: Sequence[MaskableSequence],
    mask_id: int,
    device: torch.device,
    *,
    ranks: RankGroup = ONE_PROCESS,
    on_batch: Callable[[int], None] = lambda copies: None,
) -> list[LogProbabilities]:
    """The log-probability of each token at `places` [T], in nats, per sequence.

    ranks: share the batches, and all get all results; collective. The caller puts the model in eval
    mode. on_batch: called with the number of copies of each batch before it is scored, equally
    often on every rank.
    """
    starts = np.cumsum([0, *(len(sequence.places) for sequence in sequences)])
    # Each entry is set by one rank and 0 on the others, so the sum over ranks is the whole.
    found = torch.zeros(int(starts[-1]), dtype=torch.float64)
    batches = masked_batches([len(s.ids) for s in sequences], starts, device)
    for first in range(0, len(batches), ranks.world_size):
        # At ZeRO stage 3 a forward pass gathers weights: a rank without a batch scores the last.
        mine = first + ranks.rank
        chosen = batches[min(mine, len(batches) - 1)]
        on_batch(len(chosen))
        losses_B = forward(_masked_copies(sequences, starts, chosen, mask_id, device))
        if mine < len(batches):
            found[chosen] = -losses_B["word_losses"].double().cpu()
    whole = ranks.total(found).float().numpy()
    return np.split(whole, starts[1:-1])


def masked_batches(lengths: Sequence[int], starts: Ids, device: torch.device) -> list[Ids]:
    """The copies of each forward pass: of sequences of one length, the longest first, so that what
    does not fit fails soon.

    lengths: of the sequences; starts: number of each one's first copy, and their number [N + 1].
    """
    groups: dict[int, list[Ids]] = {}
    for number, length in enumerate(lengths):
        groups.setdefault(length, []).append(np.arange(starts[number], starts[number + 1]))
    found = []
    for length, members in sorted(groups.items(), reverse=True):
        # Equal lengths need no pads; one that exceeds the budget is a batch of one copy.
        rows = max(1, BATCH_TOKENS.get(device.type, BATCH_TOKENS["cuda"]) // length)
        copies = np.concatenate(members)
        found += [copies[first : first + rows] for first in range(0, len(copies), rows)]
    return found


def _masked_copies(
    sequences: Sequence[MaskableSequence],
    starts: Ids,
    chosen: Ids,
    mask_id: int,
    device: torch.device,
) -> Inputs:
    """The copies with these numbers; all their sequences have one length."""
    # right: a sequence without places has no copy.
    numbers = np.searchsorted(starts, chosen, side="right") - 1
    rows_B = np.arange(len(chosen))
    ids_BS = np.stack([sequences[number].ids for number in numbers])
    words_BS = np.stack([sequences[number].words for number in numbers])
    segments_BS = np.stack([sequences[number].segments for number in numbers])
    places_B = np.array(
        [sequences[n].places[copy - starts[n]] for n, copy in zip(numbers, chosen, strict=True)]
    )
    labels_B = ids_BS[rows_B, places_B]  # before it is masked
    own_B1 = words_BS[rows_B, places_B][:, None]
    later_BS = np.arange(ids_BS.shape[1]) > places_B[:, None]
    ids_BS[later_BS & (words_BS == own_B1) & (own_B1 != ALONE)] = mask_id
    ids_BS[rows_B, places_B] = mask_id
    positions_B = rows_B * ids_BS.shape[1] + places_B
    given = (ids_BS.reshape(-1), segments_BS.reshape(-1), positions_B, labels_B)
    ids, segments, positions, labels = (torch.from_numpy(part).to(device) for part in given)
    return Inputs(
        input_ids_T=ids,
        pieces=pieces_of([ids_BS.shape[1]] * len(chosen), device),
        positions_K=positions,
        labels_K=labels,
        weights_K=torch.ones(len(chosen), device=device),
        mask_id=mask_id,
        segment_ids_T=segments,
        words_only=True,
    )


def score_pseudo_perplexity(
    forward: Forward, sequences: Sequence[MaskableSequence], mask_id: int, device: torch.device
) -> dict[str, Any]:
    """exp of the mean loss over all tokens of all sequences, as fields; see `log_probabilities`."""
    with counting("scoring", "masked copies") as on_batch:
        found = log_probabilities(forward, sequences, mask_id, device, on_batch=on_batch)
    losses = -np.concatenate(found).astype(np.float64)
    with np.errstate(over="ignore"):  # infinite then, which is reported
        value = float(np.exp(losses.mean()))
    return {
        "pseudo_perplexity": value,
        "pseudo_perplexity_tokens": len(losses),
        "pseudo_perplexity_sequences": len(sequences),
    }
