"""A Run, ranks and a ZeRO stage -> the bytes that a rank gives to collectives in a step.

An all-reduce of b bytes over n ranks puts 2 (n-1)/n b on each rank's wire, an all-gather or a
reduce-scatter of b whole bytes half as much: see `wire_bytes`.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.config.run import Run
from pipeline.costs.estimate import Estimate
from pipeline.costs.memory import deepspeed_file, partition
from pipeline.costs.shapes import logical_count
from pipeline.training.planning.plan import micro_batches
from pipeline.training.planning.schedule import resolve_batch_size

WIRE_SHARES = {"all-reduce": 2.0, "all-gather": 1.0, "reduce-scatter": 1.0}
"""Times (n-1)/n: what a ring puts on each rank's wire, per byte of the whole tensor."""


def bytes_sent(run: Run, ranks: int, stage: int | None = None) -> list[Estimate]:
    """Bytes of the tensors that each rank gives to collectives in an optimizer step, by purpose.

    An estimate's name ends with its collective. Empty on one rank. stage: see `memory.memory`.
    """
    if ranks == 1:
        return []
    accumulation, _ = step_of(run, ranks)
    file = deepspeed_file(stage)
    zero, parts = file.stage(run.precision), partition(run, ranks, file)
    times = accumulation if zero >= 2 else 1
    often = "in every micro-batch" if zero >= 2 else "after the last micro-batch"
    found = []
    if zero == 3:
        found.append(_sent("gradients", "reduce-scatter", 4 * parts.cut * times, f"fp32, {often}"))
        gathered = parts.width * parts.cut * accumulation
        found.append(_sent("weights", "all-gather", gathered, "kept from forward to backward"))
    else:
        elements = parts.padded if parts.flat_gradients else parts.total
        found.append(_sent("gradients", "all-reduce", 4 * elements * times, f"fp32, {often}"))
        if zero:
            found.append(_sent("weights", "all-gather", parts.width * parts.padded, run.precision))
    if zero:
        found.append(_sent("clip norm", "all-reduce", 8, "one float64"))
    if zero and run.optimizer.kind == "lamb":
        size = 16 * logical_count(run)
        found.append(_sent("LAMB's norms", "all-reduce", size, "two float64 per weight"))
    return found


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
