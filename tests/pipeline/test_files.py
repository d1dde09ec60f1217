"""Files are complete or absent."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.errors import DataError
from pipeline.files import is_locked, remove_orphans, try_lock, write_whole


@pytest.mark.parametrize("lasting", [True, False])
def test_no_temporary_file_remains(lasting: bool, tmp_path: Path) -> None:
    write_whole(tmp_path / "a", memoryview(b"one"), lasting=lasting)
    assert (tmp_path / "a").read_bytes() == b"one"
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_whole(tmp_path / "a", b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pipeline.files.os.fsync", full)
    with pytest.raises(DataError, match="No space left on device"):
        write_whole(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_a_lock_is_taken_by_one_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_locked(path)
    with path.open("w") as first, path.open("w") as second:
        assert try_lock(first) is True
        assert try_lock(second) is False
        assert is_locked(path)
    assert not is_locked(path)


def test_where_there_are_no_locks_nobody_is_said_to_hold_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_locks(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("pipeline.files.fcntl.flock", without_locks)
    with (tmp_path / "lock").open("w") as lock:
        assert try_lock(lock) is None
    assert not is_locked(tmp_path / "lock")
    (tmp_path / ".a.1.tmp").touch()
    remove_orphans(tmp_path)  # it may be in use
    assert (tmp_path / ".a.1.tmp").exists()
