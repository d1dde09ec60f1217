"""The phases of a run -> what it reads of its data: passes, masks, tokens per parameter, waste."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.costs.estimate import Estimate
from pipeline.planning.phase_plan import format_count
from pipeline.planning.phases import LATER_ORDER, Phase

FEW_PASSES = 1.0


def data_use(phases: Sequence[Phase]) -> list[Estimate]:
    """Everything that the run reads; passes and masks for each order of samples."""
    found = []
    orders = _orders(phases)
    for order, own in orders.items():
        # An order's number begins with its length, see `Phase.order`.
        of = f", sequences of {order % LATER_ORDER}" if len(orders) > 1 else ""
        found += _passes(own, of)
    plans = [phase.plan for phase in phases]
    tokens = sum(plan.tokens for plan in plans)
    found += [
        Estimate("tokens read", tokens, "tokens", "computed", "by the mean length of the rows"),
        Estimate(
            "tokens per parameter", tokens / plans[0].parameters, "", "computed",
            "decoders are best at about 20, encoders at 10 to 100 times as many (OptiBERT, 2025)",
        ),
    ]  # fmt: skip
    for phase in phases:
        of = f", phase {phase.number}" if len(phases) > 1 else ""
        found += _waste(phase, of)
    return found


def data_warnings(phases: Sequence[Phase]) -> list[str]:
    """A line where much less than one pass is made; `planning.doubts` warns of too many."""
    found = []
    for order, own in _orders(phases).items():
        passes = sum(phase.plan.epochs for phase in own)
        if passes >= FEW_PASSES:
            continue
        stored = _stored(own[0])
        # Each pass reads one mask of every sequence.
        unread = f", and {stored - 1} of {stored} stored masks never" if stored > 1 else ""
        found.append(
            f"the run reads {passes:.1%} of its sequences of {order % LATER_ORDER}{unread}; train "
            f"longer, or prepare less text with --set data.duplicates=1 --set data.mask_mode=static"
        )
    return found


def _orders(phases: Sequence[Phase]) -> dict[int, list[Phase]]:
    """The phases of each order of samples, which count their passes together."""
    found: dict[int, list[Phase]] = {}
    for phase in phases:
        found.setdefault(phase.order, []).append(phase)
    return found


def _stored(phase: Phase) -> int:
    """Masks stored per sequence; 0 if the loader draws them."""
    return phase.train[0].manifest.duplicates


def _passes(phases: Sequence[Phase], of: str) -> list[Estimate]:
    passes = sum(phase.plan.epochs for phase in phases)
    rows, stored = phases[0].plan.train_sequences, _stored(phases[0])
    found = [
        Estimate(
            f"passes{of}", passes, "", "computed",
            f"over {rows:,} training sequences",
        )
    ]  # fmt: skip
    if stored:
        found.append(
            Estimate(
                f"views of each stored mask{of}", passes / stored, "", "computed",
                f"{stored} masks, one per pass in turn",
            )
        )  # fmt: skip
    else:
        found.append(Estimate(f"views of each mask{of}", 1, "", "computed", "drawn in every pass"))
    return found


def _waste(phase: Phase, of: str) -> list[Estimate]:
    fixed = phase.plan.on_gpu
    return [
        Estimate(
            f"dead tokens on a GPU{of}", fixed.dead_share, "share", "computed",
            f"{format_count(fixed.accumulation, 'micro-batch')} of {fixed.capacity.tokens:,} "
            "tokens per rank",
        )
    ]  # fmt: skip
