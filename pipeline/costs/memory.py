"""A Run, ranks and a ZeRO stage -> the bytes that each rank holds, part by part."""

from __future__ import annotations

from dataclasses import replace

from pipeline.config.data_settings import max_predictions
from pipeline.config.run import Run
from pipeline.costs.estimate import Estimate
from pipeline.costs.shapes.activations import activations
from pipeline.costs.shapes.partition import Partition, partition
from pipeline.training.cluster.deepspeed_config import DeepSpeedFile, read_deepspeed_file
from pipeline.training.optimizer.gpu_update import BLOCK

DEFAULT_STAGE = 1
"""That of `pipeline.train` without --ds."""


def memory(
    run: Run, ranks: int, stage: int | None = None, *, on_gpu: bool = True
) -> list[Estimate]:
    """Bytes per rank by part, with `batch.per_device` rows in a micro-batch.

    A part is at its largest; not all parts are at the same time, so their sum is an upper bound.
    stage: of the ds file zero0 to zero3, None for the default; on_gpu: whose path the model takes.
    """
    parts = partition(run, ranks, deepspeed_file(stage))
    return [
        *state(parts),
        *passing(parts),
        *_rows(run, on_gpu),
        *(_overhead(parts) if on_gpu else ()),
    ]


def held(run: Run, ranks: int, stage: int | None = None) -> list[Estimate]:
    """The bytes per rank between steps, and of the gradients; stage: as for `memory`."""
    return state(partition(run, ranks, deepspeed_file(stage)))


def largest_micro_batch(
    run: Run, ranks: int, device_bytes: int, stage: int | None = None, *, on_gpu: bool = True
) -> int:
    """The largest `batch.per_device` whose upper ends fit on a device together; 0 if none does."""
    one, two = (
        sum(part.most for part in memory(_with_rows(run, rows), ranks, stage, on_gpu=on_gpu))
        for rows in (1, 2)
    )
    return 1 + int((device_bytes - one) // (two - one)) if one <= device_bytes else 0


def deepspeed_file(stage: int | None) -> DeepSpeedFile:
    """The ds file of a stage as it is shipped."""
    return read_deepspeed_file(f"zero{DEFAULT_STAGE if stage is None else stage}")


def _with_rows(run: Run, rows: int) -> Run:
    return replace(run, batch=replace(run.batch, per_device=rows))


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
            f"{parts.buffers} of {parts.bucket:,} elements, and copies to send a full one"
            if parts.buffers
            else "no buffer" + ", but copies to send" * (parts.copy_bytes > 0),
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
            "a flat copy of the gradients; the update overwrites it"
            if copied
            else "none: the update overwrites the gradients",
        )
    )  # fmt: skip
    return found


def _rows(run: Run, on_gpu: bool) -> list[Estimate]:
    """What a micro-batch adds: computed, from a pass over tensors without storage."""
    found, rows = activations(run, on_gpu), run.batch.per_device
    path = "a GPU's path, layers not compiled" if on_gpu else "the CPU's path"
    words = f"{path}; {rows:,} full rows of {run.data.sequence_length:,}"
    slots = max_predictions(run.data)
    return [
        _bytes("activations", found.encoders * rows, f"of embeddings and layers: {words}"),
        _bytes("head slots", found.heads * rows, f"{path}; {slots:,} slots per row, with logits"),
        _bytes("backward pass", found.working * rows, f"{path}; before it frees activations"),
    ]


def _overhead(parts: Partition) -> list[Estimate]:
    """What a GPU's libraries hold; our numbers do not include it."""
    block = 4 * min(BLOCK, parts.share)
    return [
        _bytes("update block", block, f"updates of at most {BLOCK:,} weights at a time"),
        Estimate(
            "CUDA and NCCL", 1.6e9, "bytes", "published",
            "after an all-reduce (NVIDIA/nccl issue 864); 1.06 before (1685), twice for two groups",
            1.06e9, 3.2e9,
        ),
    ]  # fmt: skip


def _bytes(name: str, size: int, assumption: str) -> Estimate:
    return Estimate(name, size, "bytes", "computed", assumption)
