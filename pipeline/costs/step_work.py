"""The work of a GPU's micro-batch for its kernels, computed only from sizes.

FLOPs follow from the sizes. The bytes that all other kernels move were counted on the null GPU
(tests/null_gpu): per token, layer and element of its width they differ by 5 % between families with
BERT's layers.
"""

from __future__ import annotations

from model.config import EncoderConfig
from model.objectives.flops import attention_flops
from pipeline.config.run import Run
from pipeline.costs.kernel_rates import StepWork
from pipeline.loading.placement import Capacity
from pipeline.planning.phase_plan import (
    encoder_config,
    flops_of,
    generator_config,
    has_generator,
)

MOVED = {False: 100.0, True: 121.0}
"""Bytes per token, layer and element of its width, without dropout and with it."""
MOVED_GATED = (63.1, 15.7)
"""The same for ModernBERT's layers, which rotate queries and keys, and for each element of a gated
feed-forward part."""
WORD_PASSES = 3
"""Passes over the logits: one forward; backward, one that reads and one that writes."""
LAUNCH_SECONDS = 1.7e-3
"""Time of the host to launch a layer's kernels of both passes: 20.4 ms for RoBERTa-base on an H200
(tests/benchmarks/RESULTS.md)."""


def step_work(run: Run, capacity: Capacity) -> StepWork:
    """Work of one micro-batch of a GPU, with dead tokens and unused slots; run: of a phase."""
    tokens, predictions = capacity.tokens, capacity.predictions
    length = run.data.sequence_length
    configs = [encoder_config(run)] + ([generator_config(run)] if has_generator(run) else [])
    attention = tokens / length * sum(attention_flops(config, length) for config in configs)
    moved = sum(tokens * config.layers * _moved_bytes(config) for config in configs)
    words = 2 * predictions * configs[0].padded_vocab_size  # bytes of the logits in bf16
    return StepWork(
        # `flops_of` counts a backward pass twice the forward one, hence three times attention's.
        product_flops=flops_of(run, tokens // length, predictions, length) - 3 * attention,
        # Five products for the forward's two: flash attention computes the scores once more.
        attention_flops={"flash": (attention, 2.5 * attention)},
        moved_bytes=moved + WORD_PASSES * words,
    )


def _moved_bytes(config: EncoderConfig) -> float:
    """Moved bytes per token and layer."""
    if config.gated:
        fixed, inner = MOVED_GATED
        return fixed * config.width + inner * config.feed_forward
    return MOVED[config.dropout > 0] * config.width


def launch_seconds(run: Run) -> float:
    """The host's time to launch a micro-step, which small models wait for."""
    layers = run.encoder.layers + (generator_config(run).layers if has_generator(run) else 0)
    return LAUNCH_SECONDS * layers
