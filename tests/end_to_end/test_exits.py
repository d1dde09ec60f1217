"""Test workers exit with the exit code of their work, even if threads are still alive."""

import sys
from pathlib import Path

import pytest

from tests.pipeline.conftest import succeed


@pytest.mark.slow
def test_no_worker_aborts_once_its_work_is_done() -> None:
    result = succeed(sys.executable, Path(__file__).with_name("exits.py"), 100)
    ended = [line for line in result.stdout.splitlines() if "ended with" in line]
    assert ended == ["200 ended with 0"]
