"""Sentences -> the log-probability of every token, masked, given the others.

A sentence of T tokens becomes T copies, each with another token masked. `within_word` also masks
the tokens that follow it in its word, so that the end of a word does not give away its beginning
(PLL-word-l2r, Kauf & Ivanova 2023, arXiv 2305.10588); without it this is the measure of Salazar et
al. 2020. A word is a piece that the tokenizer splits text into. Copies of all sentences are batched
by length, so no batch has pads, and only the masked positions pass through the head. ELECTRA is
scored by its generator: its discriminator predicts no words.

Legend: B copies, S their length, N sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Encoding, Tokenizer
from torch import Tensor

from model.hugging_face.conversion import Model
from model.objectives.replaced_tokens import ReplacedTokenModel
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.errors import DataError

BATCH_TOKENS = {"cpu": 4_096, "cuda": 65_536}
"""Tokens per forward pass; on a CPU the activations should fit in its cache."""
Ids = npt.NDArray[np.int64]
LogProbabilities = npt.NDArray[np.float32]
ALONE = -1
"""The word of a token that is masked alone, or not at all."""


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
    sentences: Sequence[str], vocabulary: Vocabulary, positions: int, within_word: bool = True
) -> list[MaskableSequence]:
    """Each sentence between the first and the last special token.

    positions: tokens that the model has positions for. Raises DataError for a sentence that has no
    tokens, has unknown ones, or is too long.
    """
    tokenizer = Tokenizer.from_str(vocabulary.text_json())
    encodings = tokenizer.encode_batch(list(sentences), add_special_tokens=False)
    return [
        _sequence(sentence, encoding, vocabulary, positions, within_word)
        for sentence, encoding in zip(sentences, encodings, strict=True)
    ]


def _sequence(
    sentence: str, encoding: Encoding, vocabulary: Vocabulary, positions: int, within_word: bool
) -> MaskableSequence:
    length = len(encoding.ids) + 2
    if length > positions:
        raise DataError(
            f"{_excerpt(sentence)} has {length:,} tokens with special ones, but the model has "
            f"{positions:,} positions; shorten it"
        )
    if not encoding.ids:
        raise DataError(f"{_excerpt(sentence)} has no tokens; remove it")
    if vocabulary.unk in encoding.ids:
        start, stop = encoding.offsets[encoding.ids.index(vocabulary.unk)]
        raise DataError(
            f"the tokenizer has no token for {sentence[start:stop]!r} in {_excerpt(sentence)}; "
            "remove the sentence, or use a model that knows the word"
        )
    words = [ALONE if word is None else word for word in encoding.word_ids]
    if not within_word:
        words = [ALONE] * len(words)
    return MaskableSequence(
        ids=np.array([vocabulary.bos, *encoding.ids, vocabulary.eos]),
        segments=np.zeros(length, np.int64),
        places=np.arange(1, length - 1),
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
    model: Model,
    sequences: Sequence[MaskableSequence],
    mask_id: int,
    device: torch.device,
    on_batch: Callable[[int], None] = lambda copies: None,
) -> list[LogProbabilities]:
    """The log-probability of each token at `places` [T], in nats, per sequence.

    on_batch: called with the number of copies of each batch when it is scored.
    """
    found = [np.empty(len(sequence.places), np.float32) for sequence in sequences]
    predict = _predictor(model)
    for length, members in _by_length(sequences).items():
        rows = max(1, BATCH_TOKENS.get(device.type, BATCH_TOKENS["cuda"]) // length)
        copies = [(n, t) for n in members for t in range(len(found[n]))]
        for first in range(0, len(copies), rows):
            chosen = copies[first : first + rows]
            given = _masked_copies(sequences, chosen, mask_id)
            losses_B = predict(*(part.to(device) for part in given)).float().cpu().numpy()
            for (n, t), loss in zip(chosen, losses_B, strict=True):
                found[n][t] = -loss
            on_batch(len(chosen))
    return found


def _by_length(sequences: Sequence[MaskableSequence]) -> dict[int, list[int]]:
    """Numbers of the sequences of each length, the longest first: what does not fit fails soon."""
    groups: dict[int, list[int]] = {}
    for number, sequence in enumerate(sequences):
        groups.setdefault(len(sequence.ids), []).append(number)
    return dict(sorted(groups.items(), reverse=True))


def _masked_copies(
    sequences: Sequence[MaskableSequence], chosen: Sequence[tuple[int, int]], mask_id: int
) -> Iterator[Tensor]:
    """Ids [B, S] with masks, segment ids [B, S], places to predict [B] and their original ids [B].

    chosen: number of the sequence and of its place, per copy; all sequences have one length.
    """
    numbers = [number for number, _ in chosen]
    rows_B = np.arange(len(chosen))
    ids_BS = np.stack([sequences[number].ids for number in numbers])
    words_BS = np.stack([sequences[number].words for number in numbers])
    segments_BS = np.stack([sequences[number].segments for number in numbers])
    places_B = np.array([sequences[number].places[place] for number, place in chosen])
    labels_B = ids_BS[rows_B, places_B]
    own_B1 = words_BS[rows_B, places_B][:, None]
    later_BS = np.arange(ids_BS.shape[1]) > places_B[:, None]
    ids_BS[later_BS & (words_BS == own_B1) & (own_B1 != ALONE)] = mask_id
    ids_BS[rows_B, places_B] = mask_id
    return map(torch.from_numpy, (ids_BS, segments_BS, places_B, labels_B))


def _predictor(model: Model) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """The function from `_masked_copies` to the loss of each copy's label [B]."""
    encoder = model.encoder
    if isinstance(model, ReplacedTokenModel):
        encoder = model.generator or model.encoder

    def predict(ids_BS: Tensor, segments_BS: Tensor, places_B: Tensor, labels_B: Tensor) -> Tensor:
        hidden_BSD = encoder(ids_BS, None, segments_BS)
        hidden_BD = hidden_BSD[torch.arange(len(places_B), device=places_B.device), places_B]
        losses_B: Tensor = model.head(hidden_BD, labels_B)[0]
        return losses_B

    return predict


def pseudo_perplexity(found: Sequence[LogProbabilities]) -> tuple[float, int]:
    """exp of the mean loss over all tokens, and their number."""
    count = sum(map(len, found))
    loss = -sum(float(part.sum(dtype=np.float64)) for part in found)
    return float(np.exp(loss / count)), count
