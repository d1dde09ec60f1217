"""A Run, ranks and a ZeRO stage -> the bytes that a rank gives to collectives in a step.

An all-reduce of b bytes over n ranks puts 2 (n-1)/n b on each rank's wire, an all-gather or a
reduce-scatter of b whole bytes half as much: see `wire_bytes`.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.config.run import Run
from pipeline.costs.estimate import Estimate
from pipeline.costs.shapes.parameters import logical_count
from pipeline.costs.shapes.partition import Partition, partition
from pipeline.loading.micro_batch import LossCounts
from pipeline.planning.deepspeed_config import DeepSpeedFile
from pipeline.planning.phase_plan import micro_batches
from pipeline.planning.schedule import resolve_batch_size

WIRE_SHARES = {"all-reduce": 2.0, "all-gather": 1.0, "reduce-scatter": 1.0}
"""Times (n-1)/n: what a ring puts on each rank's wire, per byte of the whole tensor."""
WEIGHT_SUMS = {
    "lamb": ("LAMB's norms", 16, "two float64 per weight"),
    "stable_adamw": ("StableAdamW's RMS", 8, "one float64 per weight"),
}
"""optimizer.kind -> what it sums per logical weight: purpose, bytes, and these in words."""


def bytes_sent(run: Run, ranks: int, file: DeepSpeedFile, accumulation: int = 0) -> list[Estimate]:
    """Bytes of the tensors that each rank gives to collectives in an optimizer step, by purpose.

    An estimate's name ends with its collective. Empty on one rank. accumulation: micro-batches per
    step and rank, 0 if every row is full.
    """
    return sent_under(run, partition(run, ranks, file), accumulation)


def sent_under(run: Run, parts: Partition, accumulation: int = 0) -> list[Estimate]:
    """`bytes_sent` for a given partition of the run's model."""
    if parts.ranks == 1:
        return []
    accumulation = accumulation or step_of(run, parts.ranks)[0]
    found = [*_gradients(parts, accumulation), *_weights(parts, accumulation)]
    if parts.stage:  # stage 0 has all gradients, so the norm needs no sum
        found.append(_sent("clip norm", "all-reduce", 8, "one float64"))
    if parts.stage == 2 and parts.offload:
        found.append(_sent("DeepSpeed's norm", "all-reduce", 4, "which offload cannot leave out"))
    if parts.stage and run.optimizer.kind in WEIGHT_SUMS:
        purpose, each, assumption = WEIGHT_SUMS[run.optimizer.kind]
        found.append(_sent(purpose, "all-reduce", each * logical_count(run), assumption))
    counts = 8 * (len(LossCounts._fields) + 3) + 8 * (accumulation - 1)
    found.append(
        _sent("loss denominators", "all-reduce", counts, "stop requests too; between hosts' CPUs")
    )
    return found


def _gradients(parts: Partition, accumulation: int) -> list[Estimate]:
    """Sums over ranks, in fp32 whatever the network's arithmetic."""
    if parts.stage == 3:
        # Padded to equal shares. Gradients of weights that are kept whole are summed as well.
        size = 4 * (parts.gathered + parts.kept_elements) * accumulation
        return [_sent("gradients", "reduce-scatter", size, "fp32, in every micro-batch")]
    elements = parts.padded if parts.flat_gradients else parts.total
    if parts.stage == 2:
        size = 4 * elements * accumulation
        return [_sent("gradients", "all-reduce", size, "fp32, in every micro-batch")]
    return [_sent("gradients", "all-reduce", 4 * elements, "fp32, after the last micro-batch")]


def _weights(parts: Partition, accumulation: int) -> list[Estimate]:
    """Gathering of the weights that other ranks have updated."""
    if parts.stage == 0:  # every rank updates all of them itself
        return []
    elements = parts.padded
    when = "after the step"
    if parts.stage == 3:
        elements = parts.gathered * accumulation + parts.kept_elements
        when = "once per micro-batch, kept until its backward pass"
    return [_sent("weights", "all-gather", parts.width * elements, when)]


def wire_bytes(sent: Sequence[Estimate], ranks: int) -> float:
    """Bytes that a ring puts on each rank's wire for what it gives to collectives."""
    shares = (WIRE_SHARES[part.name.rsplit(", ")[-1]] * part.value for part in sent)
    return sum(shares) * (ranks - 1) / ranks


def step_of(run: Run, ranks: int) -> tuple[int, int]:
    """(micro-batches per step and rank, rows of each), if every row is full."""
    batch = resolve_batch_size(run.batch, run.data.sequence_length)
    return micro_batches(batch.sequences, ranks, batch.per_device)


def _sent(purpose: str, collective: str, size: float, assumption: str) -> Estimate:
    return Estimate(f"{purpose}, {collective}", size, "bytes", "computed", assumption)
