"""A Run, ranks and a ZeRO stage -> the bytes that each rank holds, part by part."""

from __future__ import annotations

from dataclasses import replace

from pipeline.config.run import Run
from pipeline.costs.estimate import Estimate
from pipeline.costs.shapes.partition import Partition, partition
from pipeline.training.cluster.deepspeed_config import DeepSpeedFile, read_deepspeed_file

DEFAULT_STAGE = 1
"""That of `pipeline.train` without --ds."""


def memory(run: Run, ranks: int, stage: int | None = None) -> list[Estimate]:
    """Bytes per rank by part; stage: of the ds file zero0 to zero3, None for the default.

    A part is at its largest; not all parts are at the same time, so their sum is an upper bound.
    """
    parts = partition(run, ranks, deepspeed_file(stage))
    return [*state(parts), *passing(parts), *_activations(run)]


def held(run: Run, ranks: int, stage: int | None = None) -> list[Estimate]:
    """The bytes per rank between steps, and of the gradients; stage: as for `memory`."""
    return state(partition(run, ranks, deepspeed_file(stage)))


def largest_micro_batch(run: Run, ranks: int, device_bytes: int, stage: int | None = None) -> int:
    """The largest `batch.per_device` whose memory fits on a device; 0 if none does."""
    low, high = 0, 1
    while high < 1 << 16 and _fits(run, ranks, device_bytes, stage, high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if _fits(run, ranks, device_bytes, stage, middle):
            low = middle
        else:
            high = middle
    return low


def deepspeed_file(stage: int | None) -> DeepSpeedFile:
    """The ds file of a stage as it is shipped."""
    return read_deepspeed_file(f"zero{DEFAULT_STAGE if stage is None else stage}")


def _fits(run: Run, ranks: int, device_bytes: int, stage: int | None, rows: int) -> bool:
    given = replace(run, batch=replace(run.batch, per_device=rows))
    return sum(part.most for part in memory(given, ranks, stage)) <= device_bytes


def state(parts: Partition) -> list[Estimate]:
    """What a rank holds between steps, and the gradients that it sums for the next one."""
    held = {0: parts.total, 1: parts.total, 2: parts.overlapping, 3: parts.share}[parts.stage]
    if parts.width == 2 and parts.stage in (1, 2):
        held = parts.padded if parts.stage == 1 else parts.share
    kept = ", those that every rank keeps whole included" if parts.kept else ""
    precision = {2: "bf16", 4: "fp32"}[parts.width]
    return [
        _bytes("weights", parts.width * parts.weights, f"{precision}, for the network{kept}"),
        _bytes("master weights", 4 * parts.share if parts.stage else 0, "fp32, which are trained"),
        _bytes("moments", 8 * parts.share, "two per weight, fp32"),
        _bytes("gradients", 4 * held, "fp32, summed over micro-batches"),
    ]


def passing(parts: Partition) -> list[Estimate]:
    """What a rank holds for a part of a step, activations excepted."""
    largest = max(parts.sizes)
    fresh = parts.width * (3 if parts.stage else 2) * largest
    if parts.stage == 2 and parts.width == 4:
        fresh += 4 * parts.overlapping
    found = [
        _bytes(
            "gradients in flight", fresh,
            "of the word table, which is input and output, before they are added",
        ),
        _bytes(
            "communication buckets", parts.bucket_bytes + parts.copy_bytes,
            f"{parts.buffers} of {parts.bucket:,} elements, and copies of a full one",
        ),
    ]  # fmt: skip
    if parts.stage == 3:
        found.append(
            _bytes(
                "gathered weights", parts.width * parts.gathered,
                "all, kept from forward to backward: below stage3_max_live_parameters",
            )
        )  # fmt: skip
    copied = parts.stage == 3 or (parts.stage in (1, 2) and parts.width == 4)
    found.append(
        _bytes(
            "optimizer temporaries", 4 * parts.share if copied else 0,
            "a flat copy of the gradients; the update overwrites it",
        )
    )  # fmt: skip
    return found


def _activations(run: Run) -> list[Estimate]:
    """What the forward pass keeps for the backward pass."""
    encoder = run.encoder
    element = 4 if run.precision == "fp32" else 2
    row = 17 * element * run.data.sequence_length * encoder.width * encoder.layers
    return [
        Estimate(
            "activations", row * run.batch.per_device, "bytes", "published",
            "17 numbers per token, width and layer (Korthikanti et al. 2022), fused attention",
            0.7 * row * run.batch.per_device, 1.3 * row * run.batch.per_device,
        )
    ]  # fmt: skip


def _bytes(name: str, size: int, assumption: str) -> Estimate:
    return Estimate(name, size, "bytes", "computed", assumption)
