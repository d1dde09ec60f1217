"""Sums and counts of the parts of a loss -> the loss, and its metrics.

Counts are those of the global batch, the same on every rank. Sums are of a micro-batch, of a rank's
part of a step, or of all ranks together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from model.objectives.masked_language import LossPart, Sums
from model.objectives.replaced_tokens import area_under_curve
from pipeline.loading.micro_batch import LossCounts

RATIOS = {
    "mlm": {"mask_loss": ("mask_loss", "mask_count")},
    "rtd": {
        "rtd_precision": ("rtd_found", "rtd_suspected"),
        "rtd_recall": ("rtd_found", "rtd_replaced"),
    },
    "words": {"words_recall": ("words_restored", "words_replaced")},
}
"""Further metrics of a part: the first sum divided by the second, nan if that is 0."""


def loss_sum(parts: Sequence[LossPart], sums: Sums, counts: LossCounts) -> Tensor:
    """The loss times `first_count`; for a single part of weight 1, that part's sum."""
    first, *others = parts
    loss = sums[f"{first.name}_loss"] * first.weight
    for part in others:
        # The sum is divided by the first part's count later, so others bring the ratio of counts.
        share = part.weight * first_count(parts, counts) / _count(part, counts)
        loss = loss + sums[f"{part.name}_loss"] * share
    return loss


def first_count(parts: Sequence[LossPart], counts: LossCounts) -> int:
    """The count that the first part is a mean over; 1 if it is 0."""
    return _count(parts[0], counts)


def part_metrics(parts: Sequence[LossPart], sums: Sums, counts: LossCounts) -> dict[str, float]:
    """loss, PART_loss and PART_accuracy of each part, RATIOS and rtd_auc; sums: over all ranks.

    A part without a count is absent, and `loss` is that of the others.
    """
    parts = present(parts, sums, counts)
    if not parts:
        return {}
    found = {"loss": float(loss_sum(parts, sums, counts)) / first_count(parts, counts)}
    for part in parts:
        count = _count(part, counts)
        found[f"{part.name}_loss"] = float(sums[f"{part.name}_loss"]) / count
        found[f"{part.name}_accuracy"] = float(sums[f"{part.name}_correct"]) / count
        for name, (above, below) in RATIOS.get(part.name, {}).items():
            divisor = float(sums[below])
            found[name] = float(sums[above]) / divisor if divisor else math.nan
        if part.name == "rtd" and "rtd_histogram" in sums:
            found["rtd_auc"] = area_under_curve(*sums["rtd_histogram"])
    return found


def present(parts: Sequence[LossPart], sums: Sums, counts: LossCounts) -> tuple[LossPart, ...]:
    """The parts that the data have predictions for: a pair head has none without labelled pairs."""
    return tuple(
        part for part in parts if getattr(counts, part.per) and f"{part.name}_loss" in sums
    )


def add(total: Sums, sums: Sums) -> None:
    """Add detached sums to `total` in float64; total: an empty dict at first."""
    for name, value in sums.items():
        value = value.detach().double()
        total[name] = total[name] + value if name in total else value


def pack_sums(sums: Sums) -> Tensor:
    """All sums in one vector on the CPU, for an all-reduce."""
    # An objective adds its sums in one order, so the vectors of all ranks agree.
    if not sums:
        return torch.zeros(0, dtype=torch.float64)
    # Joined before they leave the device: one copy, and one wait, for all.
    return torch.cat([value.flatten() for value in sums.values()]).cpu().double()


def unpack(vector: Tensor, like: Sums) -> Sums:
    """The inverse of `pack_sums`; like: sums of the same names and shapes."""
    parts = torch.split(vector, [value.numel() for value in like.values()])
    return {
        name: part.view(value.shape)
        for (name, value), part in zip(like.items(), parts, strict=True)
    }


def _count(part: LossPart, counts: LossCounts) -> int:
    count: int = getattr(counts, part.per)
    return max(1, count)  # 0 in a step whose shards are all excluded
