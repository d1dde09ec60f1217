"""Sizes of the encoder: the one configuration that every module of `model/` takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Initializer = Literal[
    "normal", "normal_sinusoidal", "truncated_normal", "truncated_normal_glorot", "megatron"
]
"""Law of the initial matrices, see `model.encoder.initialize`."""
VOCABULARY_MULTIPLE = 128
"""The word table is padded to a multiple of this many rows, which suits GPU tensor cores."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerDesign:
    """Design of the layers. The defaults are BERT's (Devlin et al. 2019, sec. 3.1)."""

    norm: Literal["post", "pre"] = "post"
    """LayerNorm after each residual sum; or before each part of a layer, except before the first,
    which follows the embeddings' own, and once after the last layer."""
    gated: bool = False
    """Multiply what the feed-forward part's GELU gives by a second projection (Shazeer 2020)."""
    biases: bool = True
    """True if projections and LayerNorms add a vector; the words' scores always do."""
    sharing: Literal["none", "all", "attention", "feed_forward"] = "none"
    """Weights that the layers of a group share: none, all, or those of one part."""
    groups: int = 1
    """Number of equal groups of consecutive layers that share weights; 1 with sharing=none."""
    position_kind: Literal["learned", "rotary"] = "learned"
    """A table of vectors added to the words', or queries and keys rotated by their place (Su et al.
    2021), without a table."""
    rotary_base: float = 10_000.0
    """Wavelengths of rotary positions grow to this many radians; of layers that see all."""
    local_rotary_base: float = 10_000.0
    """Bound of the wavelengths of layers with a window, as above."""
    window: int = 0
    """A token attends to this many others, half on each side; even; 0: to its whole piece."""
    global_every: int = 1
    """Every so many layers, from the first, one has no window."""
    dropout_places: Literal["all", "attention_output"] = "all"
    """Places of dropout of hidden units: the embeddings and both parts' outputs, or attention's."""

    def reach(self, index: int) -> int | None:
        """Tokens to each side that layer `index` attends to; None: all of the piece."""
        # ModernBERT has no window in layers 0, 3, ..., among them the last of its 22 or 28.
        return self.window // 2 if self.window and index % self.global_every else None


@dataclass(frozen=True, kw_only=True, slots=True)
class EncoderConfig(LayerDesign):
    """Sizes of the encoder and the design of its layers: the fields of the run's encoder settings,
    plus the vocabulary size."""

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
    activation: Literal["gelu", "gelu_tanh"]
    """Non-linearity of the feed-forward part and the heads: GELU, exact or by tanh."""
    dropout: float
    """Dropout probability of hidden units."""
    attention_dropout: float
    """Dropout probability of attention weights."""
    layer_norm_eps: float
    """Added to the variance in every LayerNorm."""
    positions: int
    """Longest sequence, in tokens; of learned positions, the table has no more."""
    position_offset: int
    """Row of the position table used for the first token; the table has positions + offset rows."""
    segment_types: int
    """Rows of the segment (token type) table, which rotary positions do without."""
    initializer_range: float
    """Standard deviation of the normal distribution that weights are initialized from."""

    @property
    def padded_vocab_size(self) -> int:
        """Rows of the word table; rows from `vocab_size` on are zero and never predicted."""
        return -(-self.vocab_size // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE
