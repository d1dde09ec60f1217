"""How much arithmetic a step is, and how many parameters a model has: from its sizes alone.

Model FLOPs, the usual measure of utilisation: multiplications and additions of the matrix products
that the mathematics asks for, two for each pair, three times the forward pass. Not counted are
element-wise work, anything recomputed, and words that pad the vocabulary.
"""

from __future__ import annotations

from model.config import EncoderConfig


def step_flops(
    config: EncoderConfig, *, sequences: int, sequence_length: int, predictions: int
) -> int:
    """FLOPs of a forward and backward pass; predictions: over all the sequences together."""
    tokens = sequences * sequence_length
    per_token = config.layers * (2 * _layer_matrices(config) + _attention(config, sequence_length))
    per_prediction = 2 * (config.width**2 + config.vocab_size * config.width)
    return 3 * (tokens * per_token + predictions * per_prediction)


def parameter_count(config: EncoderConfig) -> int:
    """Parameters of the encoder and its MLM head, the tied table once, without padding words."""
    width = config.width
    norm = 2 * width
    rows = config.vocab_size + config.positions + config.position_offset + config.segment_types
    biases = 5 * width + config.feed_forward
    layer = _layer_matrices(config) + biases + 2 * norm
    head = width**2 + width + norm + config.vocab_size
    return rows * width + norm + config.layers * layer + head


def _layer_matrices(config: EncoderConfig) -> int:
    """Numbers in a layer's matrices: query, key, value, output, and the two of feed-forward."""
    return 4 * config.width**2 + 2 * config.width * config.feed_forward


def _attention(config: EncoderConfig, sequence_length: int) -> int:
    """Forward FLOPs of a token that looks at all the others, in one layer: scores and mixing."""
    return 4 * sequence_length * config.width
