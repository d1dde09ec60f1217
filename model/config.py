"""Sizes of the encoder: the one configuration that every module of `model/` takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Initializer = Literal["normal", "normal_sinusoidal", "truncated_normal", "truncated_normal_glorot"]
"""Law of the initial matrices, see `model.encoder.initialize`."""
VOCABULARY_MULTIPLE = 128
"""The word table is padded to a multiple of this many rows, which suits GPU tensor cores."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EncoderConfig:
    """Sizes of the encoder: the fields of the run's encoder settings, plus the vocabulary size."""

    vocab_size: int
    """Size of the vocabulary, special tokens included."""
    layers: int
    """Transformer layers."""
    width: int
    """Size of a hidden vector."""
    embedding_width: int
    """Size of an embedding; if below `width`, a projection maps it to `width` (ALBERT)."""
    heads: int
    """Attention heads per layer; each is width / heads wide."""
    feed_forward: int
    """Inner size of the feed-forward part of a layer."""
    sharing: Literal["none", "all", "attention", "feed_forward"]
    """What the layers of a group share: nothing, all weights, or one part."""
    groups: int
    """Number of equal groups of consecutive layers that share weights; 1 with sharing=none."""
    activation: Literal["gelu", "gelu_tanh"]
    """Non-linearity of the feed-forward part and the heads: GELU, exact or by tanh."""
    dropout: float
    """Dropout probability of hidden units."""
    attention_dropout: float
    """Dropout probability of attention weights."""
    layer_norm_eps: float
    """Added to the variance in every LayerNorm."""
    positions: int
    """Longest sequence the position table supports, in tokens."""
    position_offset: int
    """Row of the position table used for the first token; the table has positions + offset rows."""
    segment_types: int
    """Rows of the segment (token type) table."""
    initializer_range: float
    """Standard deviation of the normal distribution that weights are initialized from."""

    @property
    def padded_vocab_size(self) -> int:
        """Rows of the word table; rows from `vocab_size` on are zero and never predicted."""
        return -(-self.vocab_size // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE
