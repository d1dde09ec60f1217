"""A Run, ranks and a ZeRO stage -> the bytes that each rank holds, part by part."""

from __future__ import annotations

from dataclasses import replace

from model.objectives.word_heads import CHUNK_BYTES
from pipeline.config.data_settings import max_predictions
from pipeline.config.run import Run
from pipeline.costs.estimate import Estimate
from pipeline.costs.shapes.activations import activations
from pipeline.costs.shapes.partition import Partition, partition
from pipeline.planning.deepspeed_config import DeepSpeedFile


def memory(run: Run, ranks: int, file: DeepSpeedFile, *, on_gpu: bool = True) -> list[Estimate]:
    """Bytes per rank by part, with `batch.per_device` rows in a micro-batch.

    A part is at its largest; not all parts are at the same time, so their sum is an upper bound.
    on_gpu: whose path the model takes. What offload moves to the host, see `host_memory`, is
    counted only without a GPU, where it is the same memory.
    """
    parts = partition(run, ranks, file)
    return [
        *state(parts),
        *passing(parts, on_gpu),
        *([] if on_gpu else on_host(parts, pinned=False)),
        *_rows(run, on_gpu, compiled=on_gpu and parts.stage < 3),  # stage 3 compiles nothing
        *([_LIBRARIES] if on_gpu else []),
    ]


def held(run: Run, ranks: int, file: DeepSpeedFile) -> list[Estimate]:
    """The bytes per rank between steps, and of the gradients."""
    return state(partition(run, ranks, file))


def host_memory(run: Run, ranks: int, file: DeepSpeedFile) -> list[Estimate]:
    """Bytes per rank that offload keeps in the memory of a GPU's host; empty without offload."""
    return on_host(
        partition(run, ranks, file), pinned=file.pins(), pinned_weights=file.pins_weights()
    )


def largest_micro_batch(
    run: Run, ranks: int, device_bytes: int, file: DeepSpeedFile, *, on_gpu: bool = True
) -> int:
    """The largest `batch.per_device` whose upper ends fit on a device together; 0 if none does."""

    def fits(rows: int) -> bool:
        parts = memory(_with_rows(run, rows), ranks, file, on_gpu=on_gpu)
        return sum(part.most for part in parts) <= device_bytes

    # Searched for: memory is not linear in rows, since chunks of the head have a limit.
    least, beyond = 0, 1
    while fits(beyond):
        least, beyond = beyond, 2 * beyond
    while beyond - least > 1:
        middle = (least + beyond) // 2
        least, beyond = (middle, beyond) if fits(middle) else (least, middle)
    return least


def not_planned(run: Run, ranks: int, file: DeepSpeedFile) -> list[str]:
    """Warnings about what a ds file sets and an estimate does not follow."""
    parts = partition(run, ranks, file)
    found = []
    if parts.stage == 1 and file.offloads():
        found.append(f"{file.name} offloads at stage 1, which is planned as without; use stage 2")
    for key in ("stage3_max_live_parameters", "stage3_max_reuse_distance"):
        # Below the size of the model, DeepSpeed releases weights before the backward pass needs
        # them.
        value = int(file.zero.get(key, LIVE))
        if parts.stage == 3 and value < parts.total:
            found.append(
                f"{file.name}: {key}={value:,} is below the model's {parts.total:,}: weights may "
                "be gathered twice per micro-batch, so memory is planned too high, traffic too low"
            )
    return found


LIVE = 1_000_000_000
"""DeepSpeed's own limits of what stage 3 keeps gathered, in elements."""
_OFFLOADED = "in host memory: offload"
_LIBRARIES = Estimate(
    "CUDA and NCCL", 1.6e9, "bytes", "published",
    "after an all-reduce (NVIDIA/nccl issue 864); 1.06 before (1685), twice for two groups",
    1.06e9, 3.2e9,
)  # fmt: skip
"""Memory of a GPU's libraries; our numbers do not include it."""


def _with_rows(run: Run, rows: int) -> Run:
    return replace(run, batch=replace(run.batch, per_device=rows))


def state(parts: Partition) -> list[Estimate]:
    """Bytes that a rank holds between steps, and the gradients that it sums for the next one."""
    # Ranks drop the gradients of other ranks' weights only from stage 2 on.
    held = {0: parts.total, 1: parts.total, 2: parts.overlapping, 3: parts.share}[parts.stage]
    if parts.width == 2 and parts.stage in (1, 2):
        held = parts.padded if parts.stage == 1 else parts.share
    kept = ", those that every rank keeps whole included" if parts.kept else ""
    precision = {2: "bf16", 4: "fp32"}[parts.width]
    weights, why = parts.width * parts.weights, f"{precision}, for the network{kept}"
    if parts.offload_weights:
        weights -= parts.width * parts.share
        why = f"{precision}, those that every rank keeps whole; the rest {_OFFLOADED}"
    found = [_bytes("weights", weights, why)]
    if parts.offload:
        # stage 2 in bf16 sums over micro-batches on the device, then copies the sums
        own = 4 * parts.share if (parts.stage, parts.width) == (2, 2) else 0
        found += [_bytes(name, 0, _OFFLOADED) for name in ("master weights", "moments")]
        return [*found, _bytes("gradients", own, f"fp32, then copied: {_OFFLOADED}")]
    return [
        *found,
        _bytes("master weights", 4 * parts.share if parts.stage else 0, "fp32, which are trained"),
        _bytes("moments", 8 * parts.share, "two per weight, fp32"),
        _bytes("gradients", 4 * held, "fp32, summed over micro-batches"),
    ]


def on_host(parts: Partition, *, pinned: bool, pinned_weights: bool = False) -> list[Estimate]:
    """Bytes that offload holds in host memory instead, between steps and in them.

    pinned, pinned_weights: whether the optimizer's memory and that of the weights are locked for
    copies, which torch's allocator rounds up to powers of two.
    """
    weights = parts.width * parts.share if parts.offload_weights else 0
    found = [
        _locked(
            _bytes("host: weights", weights, "the rank's share, from which the devices gather"),
            pinned_weights,
        ),
        *(_locked(part, pinned) for part in _optimizer_on_host(parts)),
    ]
    return [part for part in found if part.value]


def _locked(part: Estimate, pinned: bool) -> Estimate:
    if not pinned:
        return part
    why = "; pinned, rounded up to powers of two at most"
    return replace(part, assumption=part.assumption + why, low=part.value, high=2 * part.value)


def _optimizer_on_host(parts: Partition) -> list[Estimate]:
    if not parts.offload:
        return []
    # stage 2 in fp32 sums all of the parameters that overlap its part
    sums = {(2, 4): 4 * parts.overlapping, (3, 2): 4 * parts.share, (3, 4): 4 * parts.share}
    copies = parts.width * (parts.share + max(parts.sizes)) if parts.stage == 2 else 0
    return [
        _bytes("host: master weights", 4 * parts.share, "fp32, which are trained"),
        _bytes("host: moments", 8 * parts.share, "two per weight, fp32"),
        _bytes(
            "host: gradients", 4 * parts.share + sums.get((parts.stage, parts.width), 0),
            "fp32, for the update, and sums over micro-batches",
        ),
        _bytes("host: copies", copies, "of updated weights and of the largest gradient"),
    ]  # fmt: skip


def passing(parts: Partition, on_gpu: bool) -> list[Estimate]:
    """Bytes that a rank holds for a part of a step, except for activations."""
    largest = max(parts.sizes)
    sending = parts.copy_bytes
    if parts.stage == 3 and not on_gpu:  # gloo, which sends without a GPU, copies what it reduces
        sending += parts.copy_bytes
    fresh = parts.width * (3 if parts.stage else 2) * largest
    if parts.stage == 2 and parts.offload:
        fresh += parts.width * largest  # a buffer for the way to the host and back
    elif parts.stage == 2 and parts.width == 4:
        fresh += 4 * parts.overlapping
    found = [
        _bytes(
            "gradients in flight", fresh,
            "of the word table, which is input and output, before they are added",
        ),
        _bytes(
            "communication buckets", parts.bucket_bytes + sending,
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
    copied = copied and not parts.offload
    found.append(
        _bytes(
            "optimizer temporaries", 4 * parts.share if copied else 0,
            "a flat copy of the gradients; the update overwrites it"
            if copied
            else "none: the update overwrites the gradients",
        )
    )  # fmt: skip
    return found


def _rows(run: Run, on_gpu: bool, compiled: bool) -> list[Estimate]:
    """Bytes that a micro-batch adds, from a pass over tensors without storage; compiled: if the
    heads of words are."""
    found, rows = activations(run, on_gpu), run.batch.per_device
    path = "a GPU's path, counted as if nothing were compiled" if on_gpu else "the CPU's path"
    words = f"{path}; {rows:,} full rows of {run.data.sequence_length:,}"
    slots = max_predictions(run.data)
    # for the whole micro-batch: chunks are as large as their limit, whatever the rows
    chunk = min(CHUNK_BYTES["cuda"], 4 * slots * rows * run.data.vocab_size)
    chunks = [
        _bytes("head chunks", 2 * chunk, "fp32 logits and their shifted copy, a chunk at a time")
    ]
    return [
        _bytes("activations", found.encoders * rows, f"of embeddings and layers: {words}"),
        _bytes("head slots", found.heads * rows, f"{path}; {slots:,} slots per row, with logits"),
        _bytes("backward pass", found.working * rows, f"{path}; before it frees activations"),
        *(chunks if on_gpu and not compiled else ()),
    ]


def _bytes(name: str, size: int, assumption: str) -> Estimate:
    return Estimate(name, size, "bytes", "computed", assumption)
