"""What the encoder is made of: the one argument of every module in this room."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

VOCABULARY_MULTIPLE = 128
"""Rows of the word table come in multiples of this: what matrix units of GPUs like best."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EncoderConfig:
    """Sizes of the encoder; the fields of `config.run.Encoder`, and the vocabulary's size."""

    vocab_size: int
    """Ids of the vocabulary, special tokens included."""
    layers: int
    """Transformer layers."""
    width: int
    """Size of a hidden vector."""
    embedding_width: int
    """Size of an embedding; below `width`, a matrix leads from it to the first layer (ALBERT)."""
    heads: int
    """Attention heads per layer; each is width / heads wide."""
    feed_forward: int
    """Inner size of the feed-forward part of a layer."""
    sharing: Literal["none", "all", "attention", "feed_forward"]
    """What layers of a group have in common: nothing, all weights, or those of one part."""
    groups: int
    """Groups of neighbouring layers that share, of equal size; 1 with sharing=none."""
    activation: Literal["gelu", "gelu_tanh"]
    """Non-linearity of the feed-forward part and the heads: GELU, exact or by tanh."""
    dropout: float
    """Probability of dropping a hidden unit, and an attention weight."""
    layer_norm_eps: float
    """Added to the variance in every LayerNorm."""
    positions: int
    """Longest sequence that the position table serves, in tokens."""
    position_offset: int
    """Row of the position table for the first token; the table has positions + offset rows."""
    segment_types: int
    """Rows of the segment (token type) table."""
    initializer_range: float
    """Standard deviation of the normal law that weights start from."""

    @property
    def padded_vocab_size(self) -> int:
        """Rows of the word table; those from `vocab_size` on are zero and never predicted."""
        return -(-self.vocab_size // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE
