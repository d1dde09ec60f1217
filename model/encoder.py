"""Token ids -> hidden vectors: embeddings, then Transformer layers, whose weights may be shared.

Legend: T tokens, P pieces (see `model.pieces`), D width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from model.config import EncoderConfig, Initializer
from model.dropout import keys_of_places
from model.layers import Embeddings, Layer, Reach, Stream
from model.linear import Linear
from model.pieces import Pieces, lay_out, positions_in_pieces
from model.rotary import Rotation, rotation_of

MOST_GRAPHS = 32
"""Graphs of a layer's code before torch gives up, 8 by default: ELECTRA's two encoders in training
and in validation are 4, and each size of a growing batch has its own."""


class Encoder(nn.Module):
    """A bidirectional Transformer over flat tokens; the module that owns it calls `initialize`."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.projection = (
            nn.Identity()
            if config.embedding_width == config.width
            else Linear(config.embedding_width, config.width)
        )
        self.layers, self.order = _layers(config)

    def forward(
        self,
        input_ids_T: Tensor,
        pieces: Pieces,
        segment_ids_T: Tensor | None = None,
        places_P: Tensor | None = None,
        dropout_keys_T: Tensor | None = None,
    ) -> Tensor:
        """Hidden vectors [T, D].

        pieces: which tokens attend to each other. segment_ids_T: see `Embeddings.forward`.
        places_P: return only the vector of one token of each piece, [P, D], for which most of the
        last layer is not computed; in eval mode, and no piece is empty. dropout_keys_T: see
        `model.dropout`; None draws them.
        """
        assert places_P is None or not self.training
        places_T = positions_in_pieces(pieces.cu_seqlens, len(input_ids_T))
        places = 1 + 2 * len(self.order)  # of dropout: the embeddings, and two of each layer
        keys: list[Tensor | None] = [None] * places
        if dropout_keys_T is not None:
            keys = [*keys_of_places(dropout_keys_T, places)]
        of_embeddings_T, *of_layers = keys
        embedded_TE = self.embeddings(input_ids_T, places_T, segment_ids_T, of_embeddings_T)
        normed_TD: Tensor = self.projection(embedded_TE)
        reaches = self._reaches(pieces, places_T, normed_TD.dtype, of_layers)
        # Two tensors, as between later layers: given one twice, torch would compile a graph of its
        # own for the first layer.
        residual_TD = normed_TD if self.config.norm == "post" else normed_TD.view_as(normed_TD)
        stream = Stream(residual_TD, normed_TD)
        *lower, top = range(len(self.order))
        for depth in lower:
            stream = self.layers[self.order[depth]](stream, reaches[depth])
        last, reach = self.layers[self.order[top]], reaches[top]
        if places_P is not None and reach.window is not None:  # `attend_from` has no window
            hidden_TD: Tensor = last(stream, reach).normed_TD
            return hidden_TD[places_P]
        hidden: Tensor = last(stream, reach, places_P).normed_TD
        return hidden

    def _reaches(
        self,
        pieces: Pieces,
        places_T: Tensor,
        dtype: torch.dtype,
        dropout_keys: Sequence[Tensor | None],
    ) -> list[Reach]:
        """The reach of each layer; layers with a window have a rotation of their own."""
        config = self.config
        on_cpu = pieces.cu_seqlens.device.type == "cpu"
        layout = lay_out(pieces.cu_seqlens, config.heads) if on_cpu else None
        rotations: dict[float, Rotation] = {}  # two at most, shared by layers
        found = []
        for depth in range(config.layers):
            window, rotation = config.reach(depth), None
            if config.position_kind == "rotary":
                base = config.rotary_base if window is None else config.local_rotary_base
                if base not in rotations:
                    size = config.width // config.heads
                    rotations[base] = rotation_of(places_T, size, base, dtype)
                rotation = rotations[base]
            keys = dropout_keys[2 * depth], dropout_keys[2 * depth + 1]
            found.append(Reach(pieces, layout, window, rotation, keys))
        return found

    def compile_layers(self, backend: str | Callable[..., Any] = "inductor") -> None:
        """Compile each layer in place, one graph for all that attend as far, and the embeddings.
        For GPUs only."""
        limit = torch._dynamo.config.recompile_limit
        torch._dynamo.config.recompile_limit = max(limit, MOST_GRAPHS)
        for module in (self.embeddings, *self.layers):
            # Static: all micro-batches of a GPU have the same shapes.
            module.compile(dynamic=False, backend=backend)


def set_rotary_bases(model: nn.Module, rotary_base: float, local_rotary_base: float) -> None:
    """Change the wavelengths of a whole model's positions; without effect on learned ones."""
    for module in model.modules():
        if isinstance(module, Encoder):
            module.config = replace(
                module.config, rotary_base=rotary_base, local_rotary_base=local_rotary_base
            )


def shared_from(config: EncoderConfig, index: int) -> int:
    """The first layer of the group of layer `index`; it owns the weights that the group shares."""
    size = config.layers // config.groups
    return index // size * size


def _layers(config: EncoderConfig) -> tuple[nn.ModuleList, list[int]]:
    """The layers that are stored, and the index of the stored layer used at each depth."""
    if config.sharing == "all":
        size = config.layers // config.groups
        stored = nn.ModuleList(Layer(config) for _ in range(config.groups))
        return stored, [index // size for index in range(config.layers)]
    layers = [Layer(config) for _ in range(config.layers)]
    for index, layer in enumerate(layers):
        owner = layers[shared_from(config, index)]
        if config.sharing == "attention":
            layer.attention, layer.attention_norm = owner.attention, owner.attention_norm
        elif config.sharing == "feed_forward":
            layer.feed_forward, layer.feed_forward_norm = (
                owner.feed_forward, owner.feed_forward_norm,
            )  # fmt: skip
    return nn.ModuleList(layers), list(range(config.layers))


def initialize(
    module: nn.Module,
    config: EncoderConfig,
    seed: int,
    initializer: Initializer = "normal",
    outputs: Iterable[nn.Linear] = (),
) -> None:
    """Set every parameter of an encoder and its heads; equal seeds give equal weights anywhere.

    | parameter                          | distribution                                       |
    |------------------------------------|----------------------------------------------------|
    | matrices, word, position, segment  | that of `initializer`                              |
    | padding rows of the word table     | 0, and they stay 0                                 |
    | biases                             | 0                                                  |
    | weights of LayerNorm               | 1                                                  |

    Laws, where s is `initializer_range`: `normal` is normal(0, s), as in fairseq.
    `truncated_normal`, as in Google's code, redraws what is over 2 s, so the deviation is .880 s.
    `truncated_normal_glorot` is the same, except that the embeddings' projection and `outputs` are
    uniform within sqrt(6 / (inputs + outputs)): google-research/electra leaves these layers to the
    initializer of tf.layers.dense (Glorot and Bengio 2010). `megatron` is `truncated_normal` with s
    / sqrt(2 x layers) for the heads and for the matrices whose output is added to the hidden
    vectors, which else grow with depth (Shoeybi et al. 2020; transformers' ModernBERT).
    `normal_sinusoidal` is `normal`, except that position embeddings start as `sinusoids` of root
    mean square s (ours): a short run then attends to neighboring words after half the steps, see
    pipeline/recipes/MINI.md.

    The embedding of the pad token is drawn like any other, whereas transformers zeroes it: no token
    attends to the pads at the end of a sequence, so it is trained only as an output, like that of
    any id that does not occur. Shards of 0.2.0 may have pads inside a sequence, tokens like others.
    Numbers are drawn on the CPU in the order of the parameters, regardless of their device.
    """
    generator = torch.Generator().manual_seed(seed)
    # Sets of identities, not names: a shared parameter has several names, and is drawn once.
    norms = {id(part.weight) for part in module.modules() if isinstance(part, nn.LayerNorm)}
    words = {id(part.words.weight) for part in module.modules() if isinstance(part, Embeddings)}
    projections = [part.projection for part in module.modules() if isinstance(part, Encoder)]
    uniform: set[int] = set()
    if initializer == "truncated_normal_glorot":
        linear = [part for part in (*projections, *outputs) if isinstance(part, nn.Linear)]
        uniform = {id(part.weight) for part in linear}
    waves: set[int] = set()
    if initializer == "normal_sinusoidal":
        tables = [part.positions for part in module.modules() if isinstance(part, Embeddings)]
        waves = {id(table.weight) for table in tables}
    reading = _read_by(module)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() == 1:
                parameter.fill_(1.0 if id(parameter) in norms else 0.0)
                continue
            if id(parameter) in waves:
                parameter.copy_(config.initializer_range * sinusoids(*parameter.shape))
                continue
            drawn = torch.empty(parameter.shape)
            deviation = config.initializer_range
            if initializer == "megatron" and id(parameter) not in reading:
                deviation /= (2 * config.layers) ** 0.5
            if id(parameter) in uniform:
                nn.init.xavier_uniform_(drawn, generator=generator)
            elif initializer in ("normal", "normal_sinusoidal"):
                drawn.normal_(0, deviation, generator=generator)
            else:
                bound = 2 * deviation
                nn.init.trunc_normal_(drawn, 0, deviation, -bound, bound, generator=generator)
            parameter.copy_(drawn)
            if id(parameter) in words:
                parameter[config.vocab_size :] = 0


def _read_by(module: nn.Module) -> set[int]:
    """Tables, and the matrices that read a layer's vectors; the others write into them."""
    parts = list(module.modules())
    found = {id(part.weight) for part in parts if isinstance(part, nn.Embedding)}
    for layer in (part for part in parts if isinstance(part, Layer)):
        inner = layer.attention.query_key_value, layer.feed_forward.get_submodule("inner")
        found |= {id(part.get_parameter("weight")) for part in inner}
    return found


def sinusoids(positions: int, width: int) -> Tensor:
    """Sines, then cosines, of position x frequency [positions, width], of mean square 1.

    As Vaswani et al. 2017, sec. 3.5, with frequencies from 1 down to 1 / positions.
    """
    half = -(-width // 2)
    frequencies = positions ** -torch.linspace(0, 1, half)
    angles = torch.arange(positions)[:, None] * frequencies
    # A sine has mean square 1/2; an odd width drops one cosine.
    return 2**0.5 * torch.cat([angles.sin(), angles.cos()], 1)[:, :width]
