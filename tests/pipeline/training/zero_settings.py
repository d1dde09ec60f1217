"""The settings that zero_worker.py trains, on each number of ranks.

The matrix has every combination of optimizer, precision, stage, clipping and accumulation; at the
stages that support it, also with the optimizer's state in host memory. Each setting trains a few
steps: a wrong fragment, norm or divisor shows in the first. The global batch is always the same, so
a launch needs only one reference for each optimizer, precision and clip norm. The usual tests train
a part of the matrix that has each combination of two axes; slow tests train all of it on every
number of ranks.
"""

from itertools import product
from typing import Any, NamedTuple

WORLD_SIZES = (1, 2, 3, 4)
SEQUENCES = 48
"""Sequences per step: divisible by 1 to 4 ranks with 1 or 4 micro-batches each."""
FEW, MORE, MANY = 6, 50, 300
"""Steps of the matrix, of closer checks, and of the check for drift."""
CLIP = 0.2
"""Far below the toy's gradient norms."""
SEVERAL = 4
"""Micro-batches per rank if they are accumulated."""
OTHERS = ("nvlamb", "albert", "deepspeed", "uncorrected", "stable_adamw")
"""Variants other than the paper's LAMB, AdamW without bias correction, and StableAdamW."""

SMALL: dict[int, dict[str, Any]] = {
    0: {},
    1: {"reduce_bucket_size": 600, "allgather_bucket_size": 600, "overlap_comm": True},
    2: {"reduce_bucket_size": 600, "allgather_bucket_size": 600, "contiguous_gradients": False},
    3: {
        "reduce_bucket_size": 600,
        "stage3_param_persistence_threshold": 0,
        "stage3_prefetch_bucket_size": 300,
        "stage3_max_live_parameters": 500,
    },
}
"""Replaces the shipped files if micro-batches are accumulated: buckets smaller than the toy, and at
stage 3 no weight that stays whole."""


NOT_KEPT = {"stage3_param_persistence_threshold": 0}
"""Stage 3 keeps no weight whole, as it keeps none of a large model's."""
TRAFFIC: dict[str, list[tuple[str, int, dict[str, Any]]]] = {
    "usual": [("bf16", 1, {}), ("bf16", 3, NOT_KEPT)],
    "whole": [
        (precision, stage, NOT_KEPT if stage == 3 else {})
        for precision in ("fp32", "bf16")
        for stage in range(4)
    ],
}
"""Precisions, stages and changes of their ds files whose traffic is measured."""


class Setting(NamedTuple):
    """One training run."""

    kind: str
    """A kind of `toy.toy_run`."""
    precision: str
    stage: int
    clip_norm: float
    accumulation: int
    offload: bool = False
    steps: int = FEW


def matrix(offload: bool) -> list[Setting]:
    """Every combination."""
    stages = (2, 3) if offload else (0, 1, 2, 3)
    axes = ("lamb", "adamw"), ("fp32", "bf16"), stages, (0.0, CLIP), (1, SEVERAL)
    return [Setting(*values, offload) for values in product(*axes)]


VARIANTS = [Setting(kind, "fp32", stage, CLIP, 1) for kind in OTHERS for stage in range(4)]
LONGER = [
    Setting(kind, "fp32", stage, clip_norm, 1, steps=MORE)
    for kind, clip_norm in (("lamb", CLIP), ("adamw", 0.0))
    for stage in range(4)
]
DRIFT = [
    Setting("lamb", precision, stage, CLIP, 1, steps=MANY)
    for precision in ("fp32", "bf16")
    for stage in (2, 3)
]


def whole(world_size: int) -> list[Setting]:
    """The settings for any number of ranks; also the variants if nothing divides evenly."""
    found = [*matrix(offload=False), *matrix(offload=True)]
    if world_size in (2, 3):
        found += [*VARIANTS, *LONGER]
    return found


def usual(world_size: int) -> list[Setting]:
    """The settings of every test run: an eighth of the matrix; on two ranks also LONGER.

    The eighth has every combination of two of its axes. Stage 3 comes first, as it comes
    before bf16 in the matrix: DeepSpeed's stage 3 replaces torch's linear function in the process
    by one that rounds the product before it adds the bias, and the reference has to do the same.
    """
    chosen = [
        s
        for s in whole(world_size)
        if s.kind in OTHERS or (world_size == 2 if s.steps == MORE else _chosen(s))
    ]
    return sorted(chosen, key=lambda s: s.stage != 3)


def _chosen(setting: Setting) -> bool:
    """Of an orthogonal array of strength two: the optimizer and the stage determine the rest."""
    adamw, high, low = setting.kind == "adamw", setting.stage >= 2, setting.stage % 2 == 1
    if setting.offload:  # stages 2 and 3 alone
        high = low
        low = False
    return (
        (setting.precision == "bf16") == adamw ^ high
        and (setting.clip_norm == 0) == adamw ^ low
        and (setting.accumulation == 1) == adamw ^ high ^ low
    )
