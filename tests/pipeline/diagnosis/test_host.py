"""Limits of the node, lowered for real in a process of their own."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from pipeline.diagnosis.checks import FAIL, OK, WARN, Check
from pipeline.diagnosis.host import check_host


def statuses(found: list[Check]) -> dict[str, str]:
    return {check.name: check.status for check in found}


@pytest.mark.parametrize(("limit", "status"), [(200, FAIL), (1024, WARN)])
def test_few_open_files(limit: int, status: str) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        found = check_host(1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    (check,) = (check for check in found if check.name == "open files")
    assert check.status == status and check.value == f"{limit:,}" and "ulimit -n" in check.remedy


def test_memory_is_shared_by_the_ranks_of_a_node() -> None:
    assert statuses(check_host(1))["memory per rank"] == OK
    assert statuses(check_host(10_000))["memory per rank"] == FAIL


def test_the_local_directory_must_be_private(tmp_path: Path) -> None:
    local = tmp_path / "local"
    assert statuses(check_host(1, local))["local directory"] == OK
    local.chmod(0o777)
    assert statuses(check_host(1, local))["local directory"] == FAIL


def test_more_threads_than_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "4096")
    assert statuses(check_host(1))["cores per rank"] == WARN
