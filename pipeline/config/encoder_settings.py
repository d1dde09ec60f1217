"""Settings of the encoder, and the rules within them. Rules across sections are in `rules.py`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from pipeline.config.schema import BelowOne, Count, CountOrZero, Positive, Range, Tiny
from pipeline.config.settings import as_set

Base = Annotated[float, Range("(1, 1000000000000)")]
"""Base of rotary positions."""
Initializer = Literal[
    "normal", "normal_sinusoidal", "truncated_normal", "truncated_normal_glorot", "megatron"
]
# A layer of BERT: transformers' classes with shared layers or extra heads offer nothing else.
BERT_LAYERS = {
    "norm": "post", "gated": False, "biases": True, "position_kind": "learned", "window": 0,
    "global_every": 1, "rotary_base": 10_000.0, "local_rotary_base": 10_000.0,
}  # fmt: skip


def _nearest_divisor(number: int, wanted: int) -> int:
    """The divisor of a number that is nearest to the wanted one, the smaller of two."""
    wanted = min(wanted, number)
    nearest = (each for gap in range(wanted) for each in (wanted - gap, wanted + gap))
    return next((each for each in nearest if number % each == 0), 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class EncoderSizes:
    """Sizes and dropout of the network below the heads."""

    layers: Count
    """Transformer layers."""
    width: Count
    """Hidden size."""
    embedding_width: CountOrZero
    """Embedding size; below `width` a projection maps it to `width` (ALBERT); 0: `width`."""
    heads: Count
    """Attention heads per layer, each of size width / heads."""
    feed_forward: Count
    """Inner size of a layer's feed-forward network."""
    sharing: Literal["none", "all", "attention", "feed_forward"]
    """Weights that the layers of a group share: none, all, or those of one part of the layer."""
    groups: Count
    """Number of groups of consecutive layers that share weights; 1 with sharing=none."""
    activation: Literal["gelu", "gelu_tanh"]
    """Activation of the feed-forward network and the heads: exact GELU, or its tanh form."""
    dropout: BelowOne
    """Dropout probability of hidden units, see `dropout_places`."""
    attention_dropout: BelowOne
    """Dropout probability of attention weights."""
    layer_norm_eps: Tiny
    """Epsilon of every LayerNorm, added to the variance."""
    positions: Annotated[int, Range("[3, 65535]")]
    """Longest sequence that the model supports, in tokens; rows of a table of learned positions."""
    position_offset: CountOrZero
    """Position embedding of the first token; the table has positions + position_offset rows."""
    segment_types: Count
    """Number of segment (token type) embeddings; rotary positions go with 1, and no table."""
    initializer_range: Positive
    """Standard deviation of the normal distribution of initial weights, before any truncation."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EncoderSettings(EncoderSizes):
    """The network below the heads; its vocabulary size is `data.vocab_size`."""

    initializer: Initializer
    """Law of initial matrices: normal (fairseq); with position embeddings initialized to sinusoids
    (ours); truncated at two deviations (Google's code); also Glorot uniform in the embeddings'
    projection and the detector's last layer (ELECTRA's code); truncated, with what is added to the
    hidden vectors divided by sqrt(2 x layers) (megatron, ModernBERT's)."""
    norm: Literal["post", "pre"]
    """LayerNorm after each residual sum (BERT); or before each part of a layer and after the last
    layer, where the first layer starts from the embeddings' own (ModernBERT)."""
    gated: bool
    """Multiply the feed-forward part's activations by a second projection of `feed_forward`."""
    biases: bool
    """Add a vector in projections and LayerNorms; the scores of words have one in any case."""
    position_kind: Literal["learned", "rotary"]
    """A table of vectors added to the words', or queries and keys rotated by their position."""
    rotary_base: Base
    """Largest wavelength of rotary positions / 2 pi, in layers that attend to everything."""
    local_rotary_base: Base
    """The same in layers with a window."""
    window: CountOrZero
    """Other tokens that a token attends to, half on each side; even; 0: all. Needs rotary
    positions."""
    global_every: Count
    """Every so many layers, from the first on, one attends to everything; 1: all layers do."""
    dropout_places: Literal["all", "attention_output"]
    """Where `dropout` applies: to embeddings and the outputs of both parts of a layer, or only
    to the output of attention (ModernBERT)."""

    def contradictions(self) -> Iterator[str]:
        """Sizes that do not divide, sharing without effect, designs that do not go together."""
        yield from self._sizes_fit()
        yield from self._bases_are_used()
        yield from self._rotary_fits()
        yield from self._window_fits()
        yield from self._unshared()

    def _sizes_fit(self) -> Iterator[str]:
        if self.heads > 0 and self.width % self.heads:
            yield (
                f"encoder.width={self.width} is not divisible by encoder.heads={self.heads}; add "
                f"--set encoder.heads={_nearest_divisor(self.width, self.heads)}, or --set "
                f"encoder.width={-(-self.width // self.heads) * self.heads}"
            )
        if self.embedding_width > self.width:
            yield (
                f"encoder.embedding_width={self.embedding_width} is above encoder.width="
                f"{self.width}; add --set encoder.embedding_width=0 for embeddings of that width"
            )
        fitting = -(-self.layers // max(1, self.groups)) * self.groups
        if self.sharing == "none" and self.groups != 1:
            layers = f" --set encoder.layers={fitting}" if fitting != self.layers else ""
            yield (
                f"encoder.groups={self.groups} has no effect with encoder.sharing=none; add "
                f"--set encoder.groups=1, or --set encoder.sharing=all{layers}"
            )
        elif self.groups > 0 and self.layers % self.groups:
            yield (
                f"encoder.layers={self.layers} is not divisible by encoder.groups={self.groups}; "
                f"add --set encoder.groups={_nearest_divisor(self.layers, self.groups)}, or --set "
                f"encoder.layers={fitting}"
            )

    def _bases_are_used(self) -> Iterator[str]:
        """Only rotary positions have bases, and only layers with a window have the local one."""
        users = (
            {} if self.window else {"local_rotary_base": "window=128 --set encoder.global_every=3"}
        )
        if self.position_kind != "rotary":
            users["rotary_base"] = "position_kind=rotary"
        for name, user in users.items():
            if (value := getattr(self, name)) != (usual := BERT_LAYERS[name]):
                yield (
                    f"encoder.{name}={as_set(value)} has no effect with encoder.position_kind="
                    f"{self.position_kind} and encoder.window={self.window}; add --set "
                    f"encoder.{name}={as_set(usual)}, or --set encoder.{user}"
                )

    def _rotary_fits(self) -> Iterator[str]:
        """Rotary positions have no tables, and turn pairs of a head's units."""
        if self.position_kind != "rotary":
            return
        if self.position_offset or self.segment_types > 1:
            yield (
                "encoder.position_kind=rotary has tables neither of positions nor of segments, so "
                f"encoder.position_offset={self.position_offset} and encoder.segment_types="
                f"{self.segment_types} have no effect; add --set encoder.position_offset=0 --set "
                "encoder.segment_types=1, or --set encoder.position_kind=learned"
            )
        if self.initializer == "normal_sinusoidal":
            yield (
                "encoder.initializer=normal_sinusoidal initializes position embeddings, and "
                "encoder.position_kind=rotary has none; add --set encoder.initializer=normal, or "
                "--set encoder.position_kind=learned"
            )
        size = self.width // max(1, self.heads)  # 0 heads is out of range, and reported as that
        if self.width % max(1, self.heads) == 0 and size % 2:
            yield (
                f"encoder.width={self.width} and encoder.heads={self.heads} make heads of {size}, "
                "but encoder.position_kind=rotary rotates pairs of units; add --set "
                f"encoder.width={self.heads * (size + 1)}, or --set encoder.position_kind=learned"
            )

    def _window_fits(self) -> Iterator[str]:
        """A window has two equal halves, layers that use it, and rotary positions."""
        if self.window % 2:
            yield (
                f"encoder.window={self.window} is odd, and a token sees as many tokens before it "
                f"as after it; add --set encoder.window={self.window + 1}"
            )
        if (self.window > 0) != (self.global_every > 1):
            unused = "window" if self.window else "global_every"
            yield (
                f"encoder.{unused}={getattr(self, unused)} has no effect with encoder.window="
                f"{self.window} and encoder.global_every={self.global_every}; add --set "
                "encoder.window=128 --set encoder.global_every=3 for ModernBERT's, or --set "
                "encoder.window=0 --set encoder.global_every=1"
            )
        if self.window and self.position_kind == "learned":
            yield (
                f"encoder.window={self.window} needs encoder.position_kind=rotary, which is "
                "learned; add --set encoder.position_kind=rotary --set encoder.position_offset=0 "
                "--set encoder.segment_types=1, or --set encoder.window=0 --set "
                "encoder.global_every=1"
            )

    def _unshared(self) -> Iterator[str]:
        """Shared layers and narrow embeddings are ALBERT's, whose layers are BERT's."""
        narrow = 0 < self.embedding_width < self.width
        if (changes := self.departures()) and (narrow or self.sharing != "none"):
            yield (
                f"encoder.sharing={self.sharing} and encoder.embedding_width={self.embedding_width}"
                f" are ALBERT's, which has no {', '.join(changes.values())}; add --set "
                "encoder.sharing=none --set encoder.groups=1 --set encoder.embedding_width=0, or "
                f"{' '.join(f'--set {change}' for change in changes)}"
            )

    def departures(self) -> dict[str, str]:
        """Departures from BERT's layers: BERT's setting as `--set` takes it -> this one."""
        return {
            f"encoder.{name}={as_set(bert)}": f"encoder.{name}={as_set(value)}"
            for name, bert in BERT_LAYERS.items()
            if (value := getattr(self, name)) != bert
        }
