"""The parts of a Transformer layer, built as `LayerDesign` says.

Four choices make a layer: where LayerNorm stands (`_post_norm`, `_pre_norm`), how positions enter
(a table in `Embeddings`, or `model.rotary`), which feed-forward part it has (`FEED_FORWARD`), and
how far it attends (`Reach`).

A layer ends with the LayerNorm of its last sum in either design, so that all layers, the first one
included, are the same code. With LayerNorm before each part, that is the norm before the next
layer's attention, or, in the last layer, before the heads, where transformers counts it.

Legend: T tokens, P pieces (see `model.pieces`), D width, E width of embeddings, H heads, K head
size, F feed-forward.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.attention import AttentionKernel, attend_from, attend_in_pieces
from model.config import EncoderConfig
from model.dropout import Dropout
from model.linear import APPROXIMATIONS, Linear, LinearGelu
from model.pieces import BlockLayout, Pieces
from model.rotary import Rotation


class Reach(NamedTuple):
    """The tokens that those of a layer attend to."""

    pieces: Pieces
    layout: BlockLayout | None = None
    """Blocks of the pieces, on a CPU."""
    window: int | None = None
    """Tokens to each side; None: the whole piece."""
    rotation: Rotation | None = None
    """Rotation of queries and keys; None if the embeddings hold positions."""
    dropout_keys: tuple[Tensor | None, Tensor | None] = None, None
    """Keys [T] of the tokens for the outputs of both parts, see `Dropout`."""


class Stream(NamedTuple):
    """Hidden vectors [T, D] between two parts of layers."""

    residual_TD: Tensor
    """The sum that the next part's output is added to."""
    normed_TD: Tensor
    """The input of the next part."""


class Embeddings(nn.Module):
    """Sum of word, position and segment vectors, normalised; with rotary positions only
    the word's."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        size = config.embedding_width
        self.words = nn.Embedding(config.padded_vocab_size, size)
        self.has_tables = config.position_kind == "learned"
        if self.has_tables:
            self.positions = nn.Embedding(config.positions + config.position_offset, size)
            self.segments = nn.Embedding(config.segment_types, size)
        self.norm = nn.LayerNorm(size, config.layer_norm_eps, bias=config.biases)
        self.dropout = _dropout(config, "embeddings")
        self.position_offset = config.position_offset

    def forward(
        self,
        input_ids_T: Tensor,
        places_T: Tensor,
        segment_ids_T: Tensor | None = None,
        dropout_keys_T: Tensor | None = None,
    ) -> Tensor:
        """Vectors [T, E].

        places_T: position of each token in its piece, from 0. segment_ids_T: None if every token is
        in segment 0; ignored if the table has one row, as in RoBERTa, which marks two segments only
        by separators. dropout_keys_T: see `Dropout`.
        """
        if not self.has_tables:
            words_TE: Tensor = self.dropout(self.norm(self.words(input_ids_T)), dropout_keys_T)
            return words_TE
        if segment_ids_T is None or self.segments.num_embeddings == 1:
            # One row is enough: it broadcasts over the tokens.
            segment_ids_T = torch.zeros(1, dtype=torch.int64, device=input_ids_T.device)
        placed_TE = self.positions(places_T + self.position_offset) + self.segments(segment_ids_T)
        embedded_TE: Tensor = self.norm(self.words(input_ids_T) + placed_TE)
        embedded_TE = self.dropout(embedded_TE, dropout_keys_T)
        return embedded_TE


class Attention(nn.Module):
    """Every token attends to tokens of its piece; query, key and value are one projection."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        biases = config.biases
        self.query_key_value = Linear(config.width, 3 * config.width, bias=biases)
        self.output = Linear(config.width, config.width, bias=biases)
        self.heads = config.heads
        self.dropout = config.attention_dropout
        self.kernel: AttentionKernel | None = None

    def forward(self, hidden_TD: Tensor, reach: Reach, places_P: Tensor | None = None) -> Tensor:
        """[T, D]. places_P: the only token of each piece that attends, without dropout and a
        window, [P, D]; None: all do."""
        projected_T3HK = self.query_key_value(hidden_TD).unflatten(-1, (3, self.heads, -1))
        pieces, layout, rotation = reach.pieces, reach.layout, reach.rotation
        if places_P is None:
            dropout = self.dropout if self.training else 0.0
            mixed = attend_in_pieces(
                projected_T3HK, pieces, layout, dropout, self.kernel, reach.window, rotation
            )
        else:
            # Only the chosen tokens need a query; every token gives a key and a value.
            mixed = attend_from(places_P, projected_T3HK, pieces, layout, rotation)
        output: Tensor = self.output(mixed.flatten(1))
        return output


class FeedForward(nn.Module):
    """Two matrices with a GELU between them, applied to each token."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        biases = config.biases
        self.inner = LinearGelu(config.width, config.feed_forward, config.activation, bias=biases)
        self.outer = Linear(config.feed_forward, config.width, bias=biases)

    def forward(self, hidden_TD: Tensor) -> Tensor:
        """Vectors [T, D], computed through [T, F]."""
        changed_TD: Tensor = self.outer(self.inner(hidden_TD))
        return changed_TD


class GatedFeedForward(nn.Module):
    """The GELU of one half of the inner vector times the other half (Shazeer 2020, GEGLU)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        biases = config.biases
        self.inner = Linear(config.width, 2 * config.feed_forward, bias=biases)
        self.outer = Linear(config.feed_forward, config.width, bias=biases)
        self.approximate = APPROXIMATIONS[config.activation]

    def forward(self, hidden_TD: Tensor) -> Tensor:
        """Vectors [T, D], computed through [T, 2 F]."""
        changed_TF, gate_TF = self.inner(hidden_TD).chunk(2, -1)  # halves as in transformers
        gated_TD: Tensor = self.outer(F.gelu(changed_TF, approximate=self.approximate) * gate_TF)
        return gated_TD


FEED_FORWARD = {False: FeedForward, True: GatedFeedForward}
"""By `LayerDesign.gated`."""


class Layer(nn.Module):
    """Attention, then feed-forward, each with dropout, a residual sum and the sum's LayerNorm."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.attention = Attention(config)
        self.attention_norm = _layer_norm(config)
        self.feed_forward = FEED_FORWARD[config.gated](config)
        self.feed_forward_norm = _layer_norm(config)
        self.attention_dropped = _dropout(config, "attention_output")
        self.feed_forward_dropped = _dropout(config, "feed_forward_output")
        self.normalize = _NORMALIZING[config.norm]

    def forward(self, stream: Stream, reach: Reach, places_P: Tensor | None = None) -> Stream:
        """[T, D]. places_P: the only token of each piece to compute, [P, D], without a window;
        None: all."""
        residual = stream.residual_TD if places_P is None else stream.residual_TD[places_P]
        of_mixed_T, of_changed_T = reach.dropout_keys
        mixed: Tensor = self.attention(stream.normed_TD, reach, places_P)
        mixed = self.attention_dropped(mixed, of_mixed_T)
        between = self.normalize(residual + mixed, self.attention_norm)
        changed: Tensor = self.feed_forward(between.normed_TD)
        changed = self.feed_forward_dropped(changed, of_changed_T)
        return self.normalize(between.residual_TD + changed, self.feed_forward_norm)


def _post_norm(sum_TD: Tensor, norm: nn.Module) -> Stream:
    """LayerNorm takes the place of the sum (Vaswani et al. 2017)."""
    normed_TD: Tensor = norm(sum_TD)
    return Stream(normed_TD, normed_TD)


def _pre_norm(sum_TD: Tensor, norm: nn.Module) -> Stream:
    """LayerNorm is for the part that reads the sum, which itself has none (Xiong et al. 2020)."""
    return Stream(sum_TD, norm(sum_TD))


_NORMALIZING = {"post": _post_norm, "pre": _pre_norm}


def _layer_norm(config: EncoderConfig) -> nn.LayerNorm:
    return nn.LayerNorm(config.width, config.layer_norm_eps, bias=config.biases)


def _dropout(config: EncoderConfig, place: str) -> Dropout:
    return Dropout(config.dropout, applies=config.dropout_places in ("all", place))


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
        # Its weights are dropped inside the kernel, which takes the probability as a number.
        elif isinstance(module, Attention):
            module.dropout = attention
