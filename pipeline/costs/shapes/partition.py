"""The division of a run's parameters among ranks by ZeRO, and the buckets of their gradients.

What DeepSpeed 0.19.8 does, read in its source and compared with real ranks in
`tests/pipeline/costs/test_real_ranks.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from pipeline.config.run import Run
from pipeline.costs.shapes.parameters import parameter_sizes
from pipeline.planning.deepspeed_config import BUCKET, DeepSpeedFile

KEPT_WHOLE = 100_000
"""Most elements of a parameter that stage 3 keeps whole, if the ds file does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """The elements that a rank holds of a model in one ZeRO stage."""

    ranks: int
    stage: int
    """The effective stage."""
    width: int
    """Bytes of an element in the network's arithmetic."""
    sizes: tuple[int, ...]
    """Elements of each parameter, in the model's order."""
    kept: tuple[int, ...]
    """Those that stage 3 keeps whole on every rank."""
    bucket: int
    """Most elements of a bucket."""
    buffers: int
    """Buffers of that many elements through which gradients pass."""
    offload: bool = False
    """True if the optimizer's state is in host memory."""
    offload_weights: bool = False
    """True if the network's weights are there too."""

    @property
    def total(self) -> int:
        """Elements of all parameters."""
        return sum(self.sizes)

    @property
    def padded(self) -> int:
        """The same in ZeRO's flat tensor (stages 1 and 2)."""
        # Parts start at multiples of 4 bytes, two elements of fp16, for NCCL.
        return _up(self.total, 2 * self.ranks)

    @property
    def gathered(self) -> int:
        """Elements that stage 3 gathers for a forward pass, each parameter padded to the ranks."""
        return sum(_up(size, self.ranks) for size in self.sizes) - self.kept_elements

    @property
    def kept_elements(self) -> int:
        """Elements of `kept`, padded in the same way."""
        return sum(_up(size, self.ranks) for size in self.kept)

    @property
    def share(self) -> int:
        """Elements that a rank's optimizer updates."""
        if self.stage == 3:
            return sum(-(-size // self.ranks) for size in self.sizes)
        return self.padded // self.ranks if self.stage else self.total

    @property
    def weights(self) -> int:
        """Elements of the network's weights that a rank holds between steps."""
        if self.stage == 3:
            return self.share + sum(self.kept) * (self.ranks > 1)  # one rank's share is the whole
        return self.padded if self.stage else self.total

    @property
    def flat_gradients(self) -> bool:
        """True if gradients are summed in one flat tensor: DeepSpeed's BF16_Optimizer."""
        return self.stage == 1 and self.width == 2

    @property
    def overlapping(self) -> int:
        """Elements of whole parameters that overlap a rank's part, on the rank with most.

        Stage 2 in fp32 holds the gradients of these.
        """
        part = self.padded // self.ranks
        ends = [*accumulate(self.sizes)]
        return max(
            sum(
                size
                for size, end in zip(self.sizes, ends, strict=True)
                if end - size < (rank + 1) * part and end > rank * part
            )
            for rank in range(self.ranks)
        )

    @property
    def bucket_bytes(self) -> int:
        """Bytes of the buffers that gradients pass through."""
        from_network = self.stage == 2  # other buffers have the type of the sums
        return self.buffers * self.bucket * (self.width if from_network else 4)

    @property
    def copy_bytes(self) -> int:
        """Bytes of the copies that are made of a bucket to send it, at most."""
        if self.flat_gradients:
            return 0
        if self.stage == 0:
            return max(
                4 * sum(bucket) for bucket in _fill_buckets(self.sizes, self.bucket, past=True)
            )
        if self.stage == 3:
            # In the order of the backward pass.
            padded = [_up(size, self.ranks) for size in self.sizes[::-1]]
            return max(4 * sum(bucket) for bucket in _fill_buckets(padded, self.bucket))
        part, most, begin = self.padded // self.ranks, 0, 0
        # stage 2 reduces in the order of the backward pass
        sizes = self.sizes if self.stage == 1 else self.sizes[::-1]
        for bucket in _fill_buckets(sizes, self.bucket):
            size, end = sum(bucket), begin + sum(bucket)
            first, last = (
                (begin, end) if self.stage == 1 else (self.total - end, self.total - begin)
            )
            begin = end
            if self.width == 2:  # joined, unless it is one gradient, then cast
                most = max(most, (4 + 2 * (len(bucket) > 1)) * size)
            elif first // part != (last - 1) // part:  # it goes to several ranks
                most = max(most, 4 * size)
        return most


def partition(run: Run, ranks: int, file: DeepSpeedFile) -> Partition:
    """The partition of a run's model as `file` says."""
    stage, sizes = file.stage(run.precision), parameter_sizes(run)
    threshold = file.zero.get("stage3_param_persistence_threshold", KEPT_WHOLE)
    offload = stage > 1 and file.offloads()
    overlaps = bool(file.zero.get("overlap_comm", False))
    # DeepSpeed turns it on for offload at stage 2.
    contiguous = bool(file.zero.get("contiguous_gradients", True)) or (offload and stage == 2)
    width = 4 if run.precision == "fp32" else 2
    buffers = {0: 0, 1: 0 if width == 2 else 1 + overlaps, 2: 1 + overlaps, 3: 1}[stage]
    return Partition(
        ranks=ranks,
        stage=stage,
        width=width,
        sizes=sizes,
        kept=tuple(size for size in sizes if stage == 3 and size <= threshold),
        bucket=file.bucket(sum(sizes)) if stage else BUCKET,
        buffers=buffers * contiguous,
        offload=offload,
        offload_weights=stage == 3 and file.offloads_weights(),
    )


def _fill_buckets(sizes: Sequence[int], most: int, past: bool = False) -> Iterator[list[int]]:
    """Sizes in buckets of at most `most` elements, or larger where one size is.

    past: a bucket is closed by the size with which it exceeds `most`.
    """
    bucket: list[int] = []
    for size in sizes:
        if bucket and not past and sum(bucket) + size > most:
            yield bucket
            bucket = []
        bucket.append(size)
        if past and sum(bucket) > most:
            yield bucket
            bucket = []
    if bucket:
        yield bucket


def _up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple
