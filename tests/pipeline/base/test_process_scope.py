from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.base.process_scope import is_running, process_scope


def test_processes_that_run_and_those_that_ended() -> None:
    assert is_running(os.getpid()) and is_running(1)
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert not is_running(child.pid)


def test_the_scope_is_that_of_all_processes_here(monkeypatch: pytest.MonkeyPatch) -> None:
    assert process_scope() == process_scope()

    def unreadable(path: Path) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "readlink", unreadable)
    assert process_scope() != process_scope(), "unknown, so it equals none"
