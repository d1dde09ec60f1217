"""The report on a terminal and as JSON."""

import json

from pipeline.diagnosis.check_report import (
    COLUMNS,
    MOST_ROWS,
    check_lines,
    name_ranks,
    report_as_json,
    summarize_checks,
    table_lines,
)
from pipeline.diagnosis.checks import FAIL, judge, merge, skip

BAD = judge("disk", "0 GB", FAIL, "at least 1 GB", "free some")
FOUND = merge([[judge("disk", "9 GB", ""), skip("GPU", "none")], [BAD, skip("GPU", "none")]])
ROW = dict.fromkeys(COLUMNS, "") | {"rank": 0, "host": "node01", "cores": 8}


def test_lines() -> None:
    assert check_lines(FOUND) == [
        "fail     disk  0 GB (rank 1)",
        "                 needed: at least 1 GB; free some",
        "skipped  GPU   none",
    ]
    assert len(check_lines(FOUND, brief=True)) == 2
    summary = "doctor: would stop, or be wrong: 1 fail, 1 skipped; 2 ranks, 1.2 s"
    assert summarize_checks(FOUND, 2, 1.23) == summary
    assert summarize_checks([], 1, 0.0).endswith("; 1 rank, 0.0 s")
    report = json.loads(report_as_json([ROW], FOUND, 0.5))
    assert report["status"] == FAIL and report["ranks"] == [ROW]
    assert report["checks"][0]["ranks"] == [1]


def test_the_table_has_only_columns_with_values_and_many_ranks_are_counted() -> None:
    assert table_lines([ROW]) == ["rank  node    cores", "0     node01  8"]
    assert len(table_lines([ROW] * (MOST_ROWS + 3))) == MOST_ROWS + 2
    assert name_ranks([3]) == "rank 3" and name_ranks(range(10)).endswith("7 and 2 more")
