"""Checks of several ranks become one, the worst."""

from pipeline.base.errors import DataError
from pipeline.diagnosis import checks
from pipeline.diagnosis.checks import FAIL, OK, SKIPPED, WARN, judge, merge, skip, worst_status


def test_the_worst_rank_is_shown_with_its_number() -> None:
    good, bad = judge("disk", "9 GB", ""), judge("disk", "0 GB", FAIL, "1 GB", "free some")
    (merged,) = merge([[good], [bad], [good]])
    assert (merged.value, merged.ranks, merged.remedy) == ("0 GB", (1,), "free some")
    assert merge([[good], [good]]) == [good]
    none, warning = skip("GPU", "none"), judge("disk", "", WARN)  # a skipped check is no problem
    assert SKIPPED != OK == worst_status([none, good]) == worst_status([none])
    assert worst_status([warning, none]) == WARN


def test_amounts_fail_below_one_limit_and_warn_below_another() -> None:
    found = [checks.at_least("x", amount, 2, 5, "", " GB", "more") for amount in (1, 3, 5)]
    assert [check.status for check in found] == [FAIL, WARN, OK]
    assert [check.threshold for check in found[:2]] == ["at least 2 GB", "at least 5 GB"]
    assert not found[2].remedy


def test_what_a_command_refuses_is_shown_with_what_to_do() -> None:
    error = DataError("a was cut; copy it, or prepare it; then run again")
    check = checks.judge_error("shards", error)
    assert (check.status, check.value) == (FAIL, "a was cut")
    assert check.remedy == "copy it, or prepare it; then run again"
    assert not checks.judge_error("shards", DataError("a was cut")).remedy
