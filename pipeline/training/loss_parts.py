"""Sums of the parts of a loss, and what they are means over -> the loss, and what is reported.

Counts are those of the global batch, the same on every rank; sums are of a micro-batch, of a rank's
part of a step, or of all ranks together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from model.objectives import LossPart, Sums
from model.replaced_tokens import area_under_curve
from pipeline.loading.micro_batch import Counts

RATIOS = {
    "mask_loss": ("mask_loss", "mask_count"),
    "rtd_precision": ("rtd_found", "rtd_suspected"),
    "rtd_recall": ("rtd_found", "rtd_replaced"),
}
"""Further metrics: the sum and what it is divided by, another one; where the objective has them."""


def loss_sum(parts: Sequence[LossPart], sums: Sums, counts: Counts) -> Tensor:
    """The loss times `first_count`: of one part alone, of weight 1, it is that part's own sum."""
    first, *others = parts
    loss = sums[f"{first.name}_loss"] * first.weight
    for part in others:
        share = part.weight * first_count(parts, counts) / _count(part, counts)
        loss = loss + sums[f"{part.name}_loss"] * share
    return loss


def first_count(parts: Sequence[LossPart], counts: Counts) -> int:
    """What the first part is a mean over, 1 where there is nothing."""
    return _count(parts[0], counts)


def part_metrics(parts: Sequence[LossPart], sums: Sums, counts: Counts) -> dict[str, float]:
    """loss, PART_loss and PART_accuracy of each part, RATIOS and rtd_auc; sums: over all ranks."""
    found = {"loss": float(loss_sum(parts, sums, counts)) / first_count(parts, counts)}
    for part in parts:
        count = _count(part, counts)
        found[f"{part.name}_loss"] = float(sums[f"{part.name}_loss"]) / count
        found[f"{part.name}_accuracy"] = float(sums[f"{part.name}_correct"]) / count
    for name, (above, below) in RATIOS.items():
        if above in sums:
            divisor = float(sums[below])
            found[name] = float(sums[above]) / divisor if divisor else math.nan
    if "rtd_histogram" in sums:
        found["rtd_auc"] = area_under_curve(*sums["rtd_histogram"])
    return found


def add(total: Sums, sums: Sums) -> None:
    """Add detached sums to `total` in float64, which begins as an empty dict."""
    for name, value in sums.items():
        value = value.detach().double()
        total[name] = total[name] + value if name in total else value


def pack(sums: Sums) -> Tensor:
    """All sums in one vector, on the CPU; for an all-reduce."""
    if not sums:
        return torch.zeros(0, dtype=torch.float64)
    return torch.cat([value.flatten() for value in sums.values()]).cpu().double()


def unpack(vector: Tensor, like: Sums) -> Sums:
    """The inverse of `pack`."""
    parts = torch.split(vector, [value.numel() for value in like.values()])
    return {
        name: part.view(value.shape)
        for (name, value), part in zip(like.items(), parts, strict=True)
    }


def _count(part: LossPart, counts: Counts) -> int:
    count: int = getattr(counts, part.per)
    return max(1, count)  # a step whose shards are all left out has none
