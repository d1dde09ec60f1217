"""The parts of a Transformer layer, with LayerNorm after each residual sum as in BERT.

Legend: B batch, S sequence, D width, E width of embeddings, H heads, K head size, F feed-forward.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.config import EncoderConfig
from model.dropout import Dropout, drop
from model.linear import Linear, LinearGelu
from model.pieces import Piece
from model.row_attention import piece_attention, row_attention


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
        self,
        input_ids_BS: Tensor,
        segment_ids_BS: Tensor | None = None,
        places_BS: Tensor | None = None,
    ) -> Tensor:
        """Vectors [B, S, E].

        segment_ids_BS: None if every token is in segment 0; ignored if the table has one row, as in
        RoBERTa, which marks two segments by separators alone. places_BS: position of each token,
        from 0; None if positions count up along the whole row, pads included: pads come last, and
        no token attends to them.
        """
        length, device = input_ids_BS.shape[1], input_ids_BS.device
        places = torch.arange(length, device=device) if places_BS is None else places_BS
        if segment_ids_BS is None or self.segments.num_embeddings == 1:
            segment_ids_BS = torch.zeros(1, dtype=torch.int64, device=device)
        placed = self.positions(places + self.position_offset) + self.segments(segment_ids_BS)
        embedded_BSE: Tensor = self.dropout(self.norm(self.words(input_ids_BS) + placed))
        return embedded_BSE


class Attention(nn.Module):
    """Every token attends to every token of its row or piece; query, key and value are one
    projection."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.query_key_value = Linear(config.width, 3 * config.width)
        self.output = Linear(config.width, config.width)
        self.heads = config.heads
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        hidden_BSD: Tensor,
        shown: Tensor | None,
        pieces: list[Piece] | None = None,
        places_B: Tensor | None = None,
    ) -> Tensor:
        """shown: [B, 1, 1, S], True for tokens and False for pads, or [B, 1, S, S], what each token
        sees; None if that is the whole row, or if `pieces` is given (float32 on a CPU only).
        places_B: the token of each row that alone attends, [B, 1, D]; None: all do."""
        projected_BS3HK = self.query_key_value(hidden_BSD).unflatten(-1, (3, self.heads, -1))
        dropout = self.dropout.probability if self.training else 0.0
        device, dtype = projected_BS3HK.device.type, projected_BS3HK.dtype
        kernel = attention_kernel(device, dtype, dropout, in_pieces=pieces is not None)
        if kernel == "row_attention" and pieces is not None:
            mixed_BSD = piece_attention(projected_BS3HK, pieces, dropout)
        elif kernel == "row_attention":
            mixed_BSD = row_attention(projected_BS3HK, _lengths(hidden_BSD, shown), dropout)
        else:
            assert pieces is None, f"pieces need row_attention, not {kernel}"
            query_BHSK, key_BHSK, value_BHSK = projected_BS3HK.permute(2, 0, 3, 1, 4)
            if places_B is not None:
                query_BHSK = at(projected_BS3HK[:, :, 0], places_B).transpose(1, 2)
            in_products = kernel == "softmax_attention"
            attend = softmax_attention if in_products else F.scaled_dot_product_attention
            mixed_BHSK = attend(query_BHSK, key_BHSK, value_BHSK, shown, dropout)
            mixed_BSD = mixed_BHSK.transpose(1, 2).flatten(2)
        output_BSD: Tensor = self.output(mixed_BSD)
        return output_BSD


class FeedForward(nn.Module):
    """Two matrices with a GELU between them, applied to each token."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.inner = LinearGelu(config.width, config.feed_forward, config.activation)
        self.outer = Linear(config.feed_forward, config.width)

    def forward(self, hidden_BSD: Tensor) -> Tensor:
        """Vectors [B, S, D], computed through [B, S, F]."""
        changed_BSD: Tensor = self.outer(self.inner(hidden_BSD))
        return changed_BSD


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
        hidden_BSD: Tensor,
        shown: Tensor | None,
        pieces: list[Piece] | None = None,
        places_B: Tensor | None = None,
    ) -> Tensor:
        """shown, pieces: see `Attention.forward`. places_B: the only token of each row to compute,
        [B, 1, D]; None: all."""
        mixed_BSD = self.dropout(self.attention(hidden_BSD, shown, pieces, places_B))
        if places_B is not None:
            hidden_BSD = at(hidden_BSD, places_B)
        hidden_BSD = self.attention_norm(hidden_BSD + mixed_BSD)
        changed_BSD = self.dropout(self.feed_forward(hidden_BSD))
        normed_BSD: Tensor = self.feed_forward_norm(hidden_BSD + changed_BSD)
        return normed_BSD


AttentionKernel = Literal["row_attention", "softmax_attention", "scaled_dot_product_attention"]


def attention_kernel(
    device_type: str, dtype: torch.dtype, dropout: float, in_pieces: bool
) -> AttentionKernel:
    """The function that computes attention; torch.float32 and bfloat16 are those of the products.

    in_pieces: rows hold several pieces, see `model.pieces`; the other two take these as `shown`.
    """
    if device_type == "cpu" and dtype == torch.float32 and (dropout > 0 or in_pieces):
        return "row_attention"
    if device_type == "cpu" and dtype == torch.bfloat16:
        return "softmax_attention"
    return "scaled_dot_product_attention"


def softmax_attention(
    query_BHQK: Tensor,
    key_BHSK: Tensor,
    value_BHSK: Tensor,
    shown: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Attention in matrix products: mixed values [B, H, Q, K] (Vaswani et al. 2017, sec. 3.2.1).

    shown: as in `Attention.forward`; a token that sees none mixes all. For bfloat16 on a CPU, where
    torch's fused kernel takes three times as long forward and backward.
    """
    scores_BHQS = query_BHQK @ (key_BHSK * key_BHSK.shape[-1] ** -0.5).transpose(-1, -2)
    if shown is not None:
        scores_BHQS = scores_BHQS.masked_fill(~shown, torch.finfo(scores_BHQS.dtype).min)
    weights_BHQS = drop(scores_BHQS.softmax(-1), dropout)
    return weights_BHQS @ value_BHSK


def at(vectors: Tensor, places_B: Tensor) -> Tensor:
    """The vectors [B, S, ...] at one place of each row: [B, 1, ...]."""
    rows_B = torch.arange(len(places_B), device=places_B.device)
    return vectors[rows_B, places_B][:, None]


def _lengths(hidden_BSD: Tensor, shown_B11S: Tensor | None) -> list[int]:
    if shown_B11S is None:
        return [hidden_BSD.shape[1]] * hidden_BSD.shape[0]
    return [int(length) for length in shown_B11S.sum(-1).flatten()]
