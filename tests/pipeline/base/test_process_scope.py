import os
import subprocess
from pathlib import Path

import pytest

from pipeline.base import process_scope as module
from pipeline.base.files import temporary_path
from pipeline.base.process_scope import (
    STALE_SECONDS,
    is_abandoned,
    is_running,
    name_when_whole,
    process_scope,
)
from tests.temporaries import temporary_of_the_dead


def test_processes_and_their_scope(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_running(os.getpid()) and is_running(1)
    child = subprocess.Popen(["true"])
    child.wait()
    assert not is_running(child.pid)
    assert process_scope() == process_scope()

    def unreadable(path: Path) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "readlink", unreadable)
    assert process_scope() != process_scope(), "unknown, so it equals none"


def test_a_temporary_path_says_who_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, dead = temporary_path(tmp_path / "a.b"), temporary_of_the_dead(tmp_path / "a.b")
    assert mine != temporary_path(tmp_path / "a.b") and mine.parent == tmp_path
    assert name_when_whole(mine) == name_when_whole(dead) == "a.b"
    assert not is_abandoned(mine, 2 * STALE_SECONDS), "this process is slow"
    assert is_abandoned(dead, 0.0)
    monkeypatch.setattr(module, "_scope", lambda: "0" * 8)  # both are on another node
    for path in (mine, dead, tmp_path / ".a.b.1.tmp"):
        assert not is_abandoned(path, STALE_SECONDS - 1) and is_abandoned(path, STALE_SECONDS + 1)
    assert not name_when_whole(tmp_path / ".a.b.1.tmp")
