"""Files are complete or absent."""

import os
import stat
from pathlib import Path

import pytest

from pipeline.base.errors import DataError
from pipeline.base.files import (
    is_locked,
    make_directory,
    one_at_a_time,
    open_lock,
    try_lock,
    whole_file,
    write_whole,
)


def names(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir()]


@pytest.mark.parametrize("lasting", [True, False])
def test_a_file_is_written_whole_or_not_at_all(
    lasting: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_whole(tmp_path / "a", memoryview(b"one"), lasting=lasting)
    assert (tmp_path / "a").read_bytes() == b"one" and names(tmp_path) == ["a"]

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pipeline.base.files.os.fsync", full)
    with pytest.raises(DataError, match="No space left on device"):
        write_whole(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"one" and names(tmp_path) == ["a"]


def test_all_content_is_synced_before_the_file_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[bool, int]] = []

    def sync(number: int) -> None:
        found = os.fstat(number)
        if stat.S_ISREG(found.st_mode):
            synced.append(((tmp_path / "a").exists(), found.st_size))

    monkeypatch.setattr("pipeline.base.files.os.fsync", sync)
    write_whole(tmp_path / "a", b"x" * 1000)
    (tmp_path / "a").unlink()
    with whole_file(tmp_path / "a") as temporary:
        temporary.write_bytes(b"y" * 2000)
    assert synced == [(False, 1000), (False, 2000)]


def test_a_file_that_another_process_wrote_meanwhile_is_kept(tmp_path: Path) -> None:
    with whole_file(tmp_path / "a", replaces=False) as temporary:
        temporary.write_bytes(b"ours")
        (tmp_path / "a").write_bytes(b"theirs")
    assert (tmp_path / "a").read_bytes() == b"theirs" and names(tmp_path) == ["a"]


def test_a_directory_that_cannot_be_made_has_its_owners_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for given, remedy in (((), "set TENFOLD_ROOT"), (("name another",), "name another")):
        with pytest.raises(DataError, match=f"Not a directory; {remedy}"):
            make_directory(tmp_path / "file" / "new", *given)


def test_a_lock_is_taken_by_one_at_a_time_and_changes_no_file(tmp_path: Path) -> None:
    """Another process may keep something in it, or a lock's name may be a file of the user."""
    path = tmp_path / "lock"
    assert not is_locked(path) and not names(tmp_path)
    path.write_text("held by 7")
    before = path.stat().st_mtime_ns
    with one_at_a_time(path):
        assert is_locked(path)
    with path.open("a") as first, path.open("a") as second:
        assert try_lock(first) is True and try_lock(second) is False and is_locked(path)
    assert not is_locked(path) and names(tmp_path) == ["lock"]
    assert (path.read_text(), path.stat().st_mtime_ns) == ("held by 7", before)


@pytest.mark.parametrize("target", ["mine", "missing"])
def test_a_link_in_place_of_a_lock_is_refused(target: str, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    lock = tmp_path / ".a.lock"
    lock.symlink_to(tmp_path / target)

    take = one_at_a_time(lock).__enter__
    for use in (take, lambda: open_lock(lock), lambda: is_locked(lock)):
        with pytest.raises(DataError, match=r"/\.a\.lock is a link"):
            use()
    assert (tmp_path / "mine").read_text() == "precious" and not (tmp_path / "missing").exists()


@pytest.mark.usefixtures("no_locks")
def test_where_there_are_no_locks_nobody_is_said_to_hold_one(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as lock:
        assert try_lock(lock) is None
    assert not is_locked(tmp_path / "lock")
