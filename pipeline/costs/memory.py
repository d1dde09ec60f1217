"""A Run, ranks and a ZeRO stage -> the bytes that each rank holds, part by part."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pipeline.config.run import Run
from pipeline.costs.estimate import Estimate
from pipeline.costs.shapes import parameter_sizes
from pipeline.training.cluster.deepspeed_config import DeepSpeedFile, read_deepspeed_file

DEFAULT_STAGE = 1
"""That of `pipeline.train` without --ds."""


@dataclass(frozen=True, slots=True)
class Partition:
    """How many elements of the model's parameters a rank holds."""

    width: int
    """Bytes of an element in the network's arithmetic."""
    total: int
    """Elements of all parameters."""
    padded: int
    """The same with the padding of ZeRO's flat tensor (stages 1 and 2)."""
    cut: int
    """The same with each parameter padded to a multiple of the ranks (stage 3)."""
    share: int
    """Elements that this rank's optimizer updates."""
    whole: int
    """Elements that it holds outside of forward and backward passes."""
    flat_gradients: bool
    """Whether gradients are summed in one flat fp32 tensor (stage 1 in bf16)."""


def memory(run: Run, ranks: int, stage: int | None = None) -> list[Estimate]:
    """Bytes per rank by part; stage: of the ds file zero0 to zero3, None for the default."""
    file = deepspeed_file(stage)
    return [*_state(run, ranks, file), *_activations(run)]


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


def partition(run: Run, ranks: int, file: DeepSpeedFile) -> Partition:
    """How ZeRO divides a run's parameters among ranks."""
    sizes, stage = parameter_sizes(run), file.stage(run.precision)
    total = sum(sizes)
    padded = -(-total // (2 * ranks)) * 2 * ranks
    cut = sum(-(-size // ranks) * ranks for size in sizes)
    whole = {0: total, 1: padded, 2: padded, 3: cut // ranks}[stage]
    if stage == 3:
        most = file.zero["stage3_param_persistence_threshold"]
        whole += sum(size for size in sizes if size < most)
    return Partition(
        width=4 if run.precision == "fp32" else 2,
        total=total,
        padded=padded,
        cut=cut,
        share={0: total, 1: padded // ranks, 2: padded // ranks, 3: cut // ranks}[stage],
        whole=whole,
        flat_gradients=stage == 1 and run.precision != "fp32",
    )


def _fits(run: Run, ranks: int, device_bytes: int, stage: int | None, rows: int) -> bool:
    given = replace(run, batch=replace(run.batch, per_device=rows))
    return sum(part.most for part in memory(given, ranks, stage)) <= device_bytes


def _state(run: Run, ranks: int, file: DeepSpeedFile) -> list[Estimate]:
    """What is held between steps, and the gradients."""
    parts, stage = partition(run, ranks, file), file.stage(run.precision)
    masters = 4 * parts.share if stage else 0
    gradients = 4 * (parts.share if stage >= 2 else parts.whole)
    return [
        _bytes("weights", parts.width * parts.whole, f"{run.precision}, as the network computes"),
        _bytes("gradients", gradients, "fp32 sums over micro-batches"),
        _bytes("master weights", masters, "the fp32 weights that are trained"),
        _bytes("moments", 8 * parts.share, "two per weight, in fp32"),
    ]


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
