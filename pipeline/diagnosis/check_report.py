"""The report of the doctor: a rank table and the checks, for a terminal, a log or a program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from pipeline.base.typed_json import as_json
from pipeline.diagnosis.checks import FAIL, OK, STATUSES, WARN, Check, worst_status

COLUMNS = {
    "rank": "rank", "host": "node", "local_rank": "local", "cores": "cores", "device": "GPU",
    "uuid": "GPU's UUID", "bus": "PCI", "numa": "NUMA", "address": "address", "nic": "NIC",
    "clock": "clock",
}  # fmt: skip
"""Fields of a row and their titles; a column without a value is not shown."""
MOST_ROWS = 64  # more would bury the checks in a job's log
MOST_NAMED = 8


def report_as_json(
    rows: Sequence[Mapping[str, object]], checks: Sequence[Check], seconds: float
) -> str:
    """One object: the worst status, seconds, ranks and checks."""
    report = {
        "status": worst_status(checks),
        "seconds": round(seconds, 2),
        "ranks": list(rows),
        "checks": [asdict(check) for check in checks],
    }
    return as_json(report, indent=1)


def table_lines(rows: Sequence[Mapping[str, object]]) -> list[str]:
    """The rank table: a line per rank, at most MOST_ROWS."""
    shown = [key for key in COLUMNS if any(str(row[key]) for row in rows)]
    cells = [[COLUMNS[key] for key in shown]]
    cells += [[str(row[key]) for key in shown] for row in rows[:MOST_ROWS]]
    widths = [max(len(line[column]) for line in cells) for column in range(len(shown))]
    lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in cells]
    if len(rows) > MOST_ROWS:
        lines.append(f"... and {len(rows) - MOST_ROWS:,} more; --json lists all")
    return lines


def check_lines(checks: Sequence[Check], brief: bool = False) -> list[str]:
    """The checks, each with its value and, unless it is ok, its threshold and remedy.

    brief: only warnings and failures.
    """
    shown = [check for check in checks if not brief or check.status in (WARN, FAIL)]
    # names with a path in them would widen every line
    width = max((len(check.name) for check in shown if len(check.name) <= 24), default=0)
    lines = []
    for check in shown:
        where = f" ({name_ranks(check.ranks)})" if check.ranks else ""
        lines.append(f"{check.status:7}  {check.name:{width}}  {check.value}{where}")
        if check.status in (WARN, FAIL):
            needed = f"needed: {check.threshold}; " if check.threshold else ""
            lines.append(f"{'':7}  {'':{width}}    {needed}{check.remedy}")
    return lines


def summarize_checks(checks: Sequence[Check], ranks: int, seconds: float) -> str:
    """The last line: how many checks have which status."""
    counts = Counter(check.status for check in checks)
    # worst first
    words = [f"{counts[status]} {status}" for status in reversed(STATUSES) if counts[status]]
    verdict = {OK: "ready", WARN: "can run, with warnings", FAIL: "would stop, or be wrong"}[
        worst_status(checks)
    ]
    counted = f"{ranks} rank{'s' * (ranks != 1)}"
    return f"doctor: {verdict}: {', '.join(words)}; {counted}, {seconds:.1f} s"


def name_ranks(ranks: Sequence[int]) -> str:
    """`rank 3`, `ranks 1, 2`, with the rest counted."""
    more = f" and {len(ranks) - MOST_NAMED} more" if len(ranks) > MOST_NAMED else ""
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks[:MOST_NAMED]))}{more}"
