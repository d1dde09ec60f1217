"""FLOPs of a step and parameters of a model, computed only from sizes.

Counts model FLOPs, the usual basis of utilisation figures: those of the matrix products, two per
multiply-add, and three times the forward pass for a step. Element-wise work, recomputation and
padding words are not counted.
"""

from __future__ import annotations

from model.config import EncoderConfig
from model.objectives.replaced_tokens import PARTS, Kind
from model.objectives.span_boundary import MOST_TARGETS, PLACE_WIDTH


def step_flops(
    config: EncoderConfig,
    *,
    sequences: int,
    sequence_length: int,
    predictions: int,
    pair_head: bool = False,
    boundary_head: bool = False,
) -> int:
    """FLOPs of a forward and backward pass; predictions: summed over all sequences.

    Layers that share weights cost as much as other layers.
    """
    tokens = sequences * sequence_length
    layer = 2 * (_attention_matrices(config) + _feed_forward_matrices(config))
    per_token = config.layers * layer + 2 * _projection(config)
    # The head's dense matrix, then the word table.
    per_prediction = 2 * (config.width + config.vocab_size) * config.embedding_width
    if boundary_head:
        per_prediction += 2 * (
            _boundary_matrices(config) + config.vocab_size * config.embedding_width
        )
    per_sequence = attention_flops(config, sequence_length)
    # The pooler, then two logits.
    per_sequence += 2 * (config.width + 2) * config.width if pair_head else 0
    return 3 * (tokens * per_token + predictions * per_prediction + sequences * per_sequence)


def attention_flops(config: EncoderConfig, length: int) -> int:
    """Forward FLOPs of attention's scores and mixing in all layers, for a piece of `length` tokens.

    Of a layer with a window, only the pairs of tokens within it count.
    """
    seen = 0
    for depth in range(config.layers):
        reach = config.reach(depth)
        near = length - 1 if reach is None else min(reach, length - 1)
        seen += length * (2 * near + 1) - near * (near + 1)  # less what lies beyond both ends
    return 4 * config.width * seen  # scores and mixing, two per multiply-add


def detection_flops(
    config: EncoderConfig,
    generator: EncoderConfig,
    *,
    sequences: int,
    sequence_length: int,
    predictions: int,
    kind: Kind = "rtd",
) -> int:
    """FLOPs of a step of ELECTRA: the generator's, then the encoder's with a head per token or per
    prediction.

    generator: `config` itself if one encoder does both; kind: see `replaced_tokens`.
    """
    name, per = PARTS[kind]
    tokens = sequences * sequence_length
    judged = tokens if per == "tokens" else predictions
    encoder = step_flops(
        config,
        sequences=sequences,
        sequence_length=sequence_length,
        predictions=judged if name == "words" else 0,
    )
    filler = step_flops(
        generator, sequences=sequences, sequence_length=sequence_length, predictions=predictions
    )
    head = (config.width + 1) * config.width if name == "rtd" else 0  # dense, then one logit
    head += config.width if kind == "all_tokens_mlm" else 0  # the copy gate
    return filler + encoder + 3 * judged * 2 * head


def parameter_count(
    config: EncoderConfig, *, pair_head: bool = False, boundary_head: bool = False
) -> int:
    """Parameters of the encoder, its MLM head and its other heads.

    Tied and shared parameters count once; padding words do not count.
    """
    width, size, biases = config.width, config.embedding_width, int(config.biases)
    norm = 1 + biases  # per unit
    embeddings = (_rows(config) + norm) * size
    projection = _projection(config) + width if _projection(config) else 0
    # The norm that the first of pre-normed layers lacks is the one after the last.
    attention = _attention_matrices(config) + (4 * biases + norm) * width
    inner = config.feed_forward * (1 + config.gated)
    feed_forward = _feed_forward_matrices(config) + biases * (inner + width) + norm * width
    shared = {"all": ("attention", "feed_forward"), "none": ()}.get(
        config.sharing, (config.sharing,)
    )
    layers = {
        part: config.groups if part in shared else config.layers
        for part in ("attention", "feed_forward")
    }
    # Dense, its norm and a bias per word; the word table is the embeddings'.
    head = (width + biases + norm) * size + config.vocab_size
    pair = (width + 1) * width + (width + 1) * 2 if pair_head else 0
    stored = layers["attention"] * attention + layers["feed_forward"] * feed_forward
    boundary = 0
    if boundary_head:
        boundary = MOST_TARGETS * PLACE_WIDTH + _boundary_matrices(config) + config.vocab_size
        boundary += 3 * width + 3 * size  # a bias and a LayerNorm per matrix
    return embeddings + projection + stored + head + pair + boundary


def detection_parameters(
    config: EncoderConfig,
    generator: EncoderConfig,
    *,
    tied: bool,
    kind: Kind = "rtd",
    own_embeddings: bool = False,
) -> int:
    """Parameters of ELECTRA's two encoders and heads; shared ones count once."""
    # 3: the dense layer's bias, and both vectors of its LayerNorm.
    words = (config.width + 3) * config.embedding_width + config.vocab_size
    copying = config.width + 1 if kind == "all_tokens_mlm" else 0
    second = (config.width + 1) * config.width + config.width + 1
    if PARTS[kind][0] == "words":
        second = words + copying
    if tied:
        return parameter_count(config) + second
    shared = 0 if own_embeddings else (_rows(config) + 2) * config.embedding_width  # + 2: LayerNorm
    return parameter_count(config) - words + second + parameter_count(generator) - shared


def _rows(config: EncoderConfig) -> int:
    """Rows of the tables of words, positions and segments; rotary positions have only words."""
    if config.position_kind == "rotary":
        return config.vocab_size
    return config.vocab_size + config.positions + config.position_offset + config.segment_types


def _boundary_matrices(config: EncoderConfig) -> int:
    """Parameters in the two matrices of the span boundary head."""
    joined = 2 * config.width + PLACE_WIDTH
    return joined * config.width + config.width * config.embedding_width


def _attention_matrices(config: EncoderConfig) -> int:
    """Parameters in a layer's query, key, value and output matrices."""
    return 4 * config.width**2


def _feed_forward_matrices(config: EncoderConfig) -> int:
    """Parameters in the matrices of a layer's feed-forward part: two, and that of a gate."""
    return (2 + config.gated) * config.width * config.feed_forward


def _projection(config: EncoderConfig) -> int:
    """Parameters in the matrix from embeddings to hidden vectors; 0 if there is none."""
    return config.embedding_width * config.width if config.embedding_width != config.width else 0
