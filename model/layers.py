"""The parts of a Transformer layer, with LayerNorm after each residual sum as in BERT.

Legend: T tokens, P pieces (see `model.pieces`), D width, E width of embeddings, H heads, K head
size, F feed-forward.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from model.attention import AttentionKernel, attend_from, attend_in_pieces
from model.config import EncoderConfig
from model.dropout import Dropout
from model.linear import Linear, LinearGelu
from model.pieces import BlockLayout, Pieces


class Embeddings(nn.Module):
    """Sum of word, position and segment vectors, normalised."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        size = config.embedding_width
        self.words = nn.Embedding(config.padded_vocab_size, size)
        self.positions = nn.Embedding(config.positions + config.position_offset, size)
        self.segments = nn.Embedding(config.segment_types, size)
        self.norm = nn.LayerNorm(size, config.layer_norm_eps)
        self.dropout = Dropout(config.dropout)
        self.position_offset = config.position_offset

    def forward(
        self, input_ids_T: Tensor, places_T: Tensor, segment_ids_T: Tensor | None = None
    ) -> Tensor:
        """Vectors [T, E].

        places_T: position of each token in its piece, from 0. segment_ids_T: None if every token is
        in segment 0; ignored if the table has one row, as in RoBERTa, which marks two segments by
        separators alone.
        """
        if segment_ids_T is None or self.segments.num_embeddings == 1:
            segment_ids_T = torch.zeros(1, dtype=torch.int64, device=input_ids_T.device)
        placed_TE = self.positions(places_T + self.position_offset) + self.segments(segment_ids_T)
        embedded_TE: Tensor = self.dropout(self.norm(self.words(input_ids_T) + placed_TE))
        return embedded_TE


class Attention(nn.Module):
    """Every token attends to every token of its piece; query, key and value are one projection."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.query_key_value = Linear(config.width, 3 * config.width)
        self.output = Linear(config.width, config.width)
        self.heads = config.heads
        self.dropout = config.attention_dropout
        self.kernel: AttentionKernel | None = None

    def forward(
        self,
        hidden_TD: Tensor,
        pieces: Pieces,
        layout: BlockLayout | None = None,
        places_P: Tensor | None = None,
    ) -> Tensor:
        """[T, D]. layout: blocks of the pieces, on a CPU. places_P: the token of each piece that
        alone attends, without dropout, [P, D]; None: all do."""
        projected_T3HK = self.query_key_value(hidden_TD).unflatten(-1, (3, self.heads, -1))
        if places_P is None:
            dropout = self.dropout if self.training else 0.0
            mixed = attend_in_pieces(projected_T3HK, pieces, layout, dropout, self.kernel)
        else:
            mixed = attend_from(projected_T3HK[places_P, 0], projected_T3HK, pieces, layout)
        output: Tensor = self.output(mixed.flatten(1))
        return output


class FeedForward(nn.Module):
    """Two matrices with a GELU between them, applied to each token."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.inner = LinearGelu(config.width, config.feed_forward, config.activation)
        self.outer = Linear(config.feed_forward, config.width)

    def forward(self, hidden_TD: Tensor) -> Tensor:
        """Vectors [T, D], computed through [T, F]."""
        changed_TD: Tensor = self.outer(self.inner(hidden_TD))
        return changed_TD


class Layer(nn.Module):
    """Attention, then feed-forward, each with dropout, a residual sum and LayerNorm."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.attention = Attention(config)
        self.attention_norm = nn.LayerNorm(config.width, config.layer_norm_eps)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = nn.LayerNorm(config.width, config.layer_norm_eps)
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        hidden_TD: Tensor,
        pieces: Pieces,
        layout: BlockLayout | None = None,
        places_P: Tensor | None = None,
    ) -> Tensor:
        """[T, D]. layout: see `Attention.forward`. places_P: the only token of each piece to
        compute, [P, D]; None: all."""
        mixed = self.dropout(self.attention(hidden_TD, pieces, layout, places_P))
        hidden = hidden_TD if places_P is None else hidden_TD[places_P]
        hidden = self.attention_norm(hidden + mixed)
        changed = self.dropout(self.feed_forward(hidden))
        normed: Tensor = self.feed_forward_norm(hidden + changed)
        return normed


def attend_by(model: nn.Module, kernel: AttentionKernel) -> None:
    """Let a whole model attend by this kernel, see `attend_in_pieces`."""
    for module in model.modules():
        if isinstance(module, Attention):
            module.kernel = kernel


def set_dropout(model: nn.Module, hidden: float, attention: float) -> None:
    """Change both dropout probabilities of a whole model."""
    for module in model.modules():
        if isinstance(module, Dropout):
            module.probability = hidden
        elif isinstance(module, Attention):
            module.dropout = attention
