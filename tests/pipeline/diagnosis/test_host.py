"""Limits of the node, lowered for real in a process of their own."""

import resource
from pathlib import Path
from typing import Any

import pytest

from pipeline.diagnosis.checks import FAIL, OK, WARN
from pipeline.diagnosis.host import check_host


def statuses(*given: Any) -> dict[str, str]:
    return {check.name: check.status for check in check_host(*given)}


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


def test_memory_cores_and_local_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is shared by the ranks of a node; the directory must be private."""
    assert statuses(1)["memory per rank"] == OK
    assert statuses(10_000)["memory per rank"] == FAIL
    local = tmp_path / "local"
    assert statuses(1, local)["local directory"] == OK
    local.chmod(0o777)
    assert statuses(1, local)["local directory"] == FAIL
    monkeypatch.setenv("OMP_NUM_THREADS", "4096")
    assert statuses(1)["cores per rank"] == WARN
