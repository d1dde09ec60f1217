"""SpanBERT's span boundary objective: predict the words of a masked span from outside it.

Joshi et al. 2020, sec. 3.2, and facebookresearch/SpanBERT (models/pair_bert.py, data/masking.py).
Each word of a span is predicted from the hidden vectors of the two tokens adjacent to the span and
from the word's place in the span. A span is a maximal run of predicted positions, so adjacent spans
count as one. As in their code, spans next to a special token and words after the first
`MOST_TARGETS` of a span have no loss.

Legend: T tokens, K predicted positions, D width of hidden vectors, E of
embeddings, P size of a place's vector.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from model.config import EncoderConfig
from model.linear import LinearGelu
from model.objectives.word_heads import WordLosses, word_losses

MOST_TARGETS = 15
"""Words of a span that are predicted: SpanBERT's --max-pair-targets."""
PLACE_WIDTH = 200
"""P: SpanBERT's --pair-positional-embedding-size."""


class Boundaries(NamedTuple):
    """Inputs of the prediction at each position; [K], int64 except the weights."""

    left: Tensor
    """The token before the span."""
    right: Tensor
    """The token after the span."""
    place: Tensor
    """Place in the span, from 0; capped at MOST_TARGETS - 1, where the weight is 0."""
    weights: Tensor
    """float32, 1 if the word is predicted."""


def boundaries(
    input_ids_T: Tensor, positions_K: Tensor, weights_K: Tensor, edge_ids: tuple[int, int]
) -> Boundaries:
    """The boundaries of the span around each predicted position, without waiting for a GPU.

    Arguments are those of `masked_language.Inputs`; a sequence's first and last token are never
    predicted.
    """
    ids = input_ids_T
    # Unused slots point at the very first token, which is never predicted.
    predicted = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
    predicted.scatter_(0, positions_K, weights_K > 0)
    places = torch.arange(len(ids), device=ids.device)
    # The last token before that is not predicted, by a running maximum; then the next one after.
    before = torch.where(predicted, 0, places).cummax(0).values
    after = torch.where(predicted, len(ids) - 1, places).flip(0).cummin(0).values.flip(0)
    left_K, right_K = before[positions_K], after[positions_K]
    place_K = positions_K - left_K - 1
    edge = (ids == edge_ids[0]) | (ids == edge_ids[1])
    asked_K = ~(edge[left_K] | edge[right_K]) & (place_K < MOST_TARGETS)
    return Boundaries(
        left=left_K,
        right=right_K,
        place=place_K.clamp(0, MOST_TARGETS - 1),
        weights=weights_K * asked_K,
    )


class SpanBoundaryHead(nn.Module):
    """Dense, GELU, LayerNorm, twice; then the word table and its own bias per word."""

    def __init__(self, config: EncoderConfig, words: nn.Embedding) -> None:
        """words: the encoder's own word table, whose weight is tied."""
        super().__init__()
        self.places = nn.Embedding(MOST_TARGETS, PLACE_WIDTH)
        self.first = LinearGelu(2 * config.width + PLACE_WIDTH, config.width, config.activation)
        self.first_norm = nn.LayerNorm(config.width, config.layer_norm_eps)
        self.second = LinearGelu(config.width, config.embedding_width, config.activation)
        self.second_norm = nn.LayerNorm(config.embedding_width, config.layer_norm_eps)
        self.words = words.weight
        self.bias = nn.Parameter(torch.zeros(config.padded_vocab_size))
        self.vocab_size = config.vocab_size
        self.word_losses: Callable[..., WordLosses] = word_losses

    def forward(self, hidden_TD: Tensor, found: Boundaries, labels_K: Tensor) -> WordLosses:
        """Losses of the predicted words."""
        ends = (hidden_TD.index_select(0, found.left), hidden_TD.index_select(0, found.right))
        joined = torch.cat([*ends, self.places(found.place)], -1)
        first_KD = self.first_norm(self.first(joined))
        second_KE = self.second_norm(self.second(first_KD))
        return self.word_losses(second_KE, self.words, self.bias, labels_K, self.vocab_size)
