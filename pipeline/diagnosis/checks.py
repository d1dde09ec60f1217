"""A check and its verdict, and the verdicts of many ranks as one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pipeline.base.errors import PipelineError

OK, SKIPPED, WARN, FAIL = "ok", "skipped", "warn", "fail"
STATUSES = (OK, SKIPPED, WARN, FAIL)
"""Statuses from best to worst."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    name: str
    status: str
    """ok, warn, fail (the run would stop or be wrong) or skipped (it cannot be tested here)."""
    value: str
    threshold: str = ""
    """The limit that the value is compared with."""
    remedy: str = ""
    """Advice, unless the status is ok."""
    ranks: tuple[int, ...] = ()
    """Ranks with this status; empty if all have it."""


def judge(name: str, value: str, wrong: str, threshold: str = "", remedy: str = "") -> Check:
    """A check that is `ok`, or has the status `wrong` (warn, fail) with its remedy."""
    return Check(
        name=name, status=wrong or OK, value=value, threshold=threshold,
        remedy=remedy if wrong else "",
    )  # fmt: skip


def judge_error(name: str, error: PipelineError, threshold: str = "") -> Check:
    """A check that fails for what a command would refuse: `what is wrong; what to do`."""
    value, _, remedy = str(error).partition("; ")
    return judge(name, value, FAIL, threshold, remedy)


def skip(name: str, why: str) -> Check:
    """A check that was not made."""
    return Check(name=name, status=SKIPPED, value=why)


def at_least(
    name: str, found: float, fail: float, warn: float, shown: str, unit: str, remedy: str
) -> Check:
    """A check of an amount that must not be below `fail`, and should not be below `warn`."""
    wrong = FAIL if found < fail else WARN if found < warn else ""
    limit = fail if found < fail else warn
    return judge(name, shown, wrong, f"at least {limit:,.6g}{unit}", remedy)


def merge(found: Sequence[Sequence[Check]]) -> list[Check]:
    """One check per name: the worst of all ranks, with the ranks that have it.

    found: the checks of each rank.
    """
    groups: dict[str, list[tuple[int, Check]]] = {}
    for rank, checks in enumerate(found):
        for check in checks:
            groups.setdefault(check.name, []).append((rank, check))
    return [_worst(group) for group in groups.values()]


def worst_status(checks: Iterable[Check]) -> str:
    """The status of a report; one without a failure or a warning is ok."""
    worst = max((STATUSES.index(check.status) for check in checks), default=0)
    return STATUSES[worst] if STATUSES[worst] != SKIPPED else OK


def _worst(group: list[tuple[int, Check]]) -> Check:
    status = max((check.status for _, check in group), key=STATUSES.index)
    same = [(rank, check) for rank, check in group if check.status == status]
    first = same[0][1]
    is_all = len(same) == len(group)
    return Check(
        name=first.name, status=status, value=first.value, threshold=first.threshold,
        remedy=first.remedy, ranks=() if is_all else tuple(rank for rank, _ in same),
    )  # fmt: skip
