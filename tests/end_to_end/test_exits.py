"""Test workers exit with the exit code of their work, even if threads are still alive."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.pipeline.conftest import launch


@pytest.mark.slow
def test_no_worker_aborts_once_its_work_is_done() -> None:
    result = launch(sys.executable, Path(__file__).with_name("exits.py"), 100)
    assert result.returncode == 0, result.stderr
    assert [line for line in result.stdout.splitlines() if "ended with" in line] == [
        "200 ended with 0"
    ]
