"""Folders are complete or absent, and of several processes one publishes."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from pipeline.base import process_scope
from pipeline.base.errors import DataError
from pipeline.base.files import write_whole
from pipeline.base.publish import TakenError, publish_folder, scratch_folder, whole_folder
from tests.temporaries import temporary_of_the_dead


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def fill(folder: Path, content: str) -> None:
    (folder / "deep").mkdir()
    (folder / "deep" / "file").write_text(content)


def test_a_folder_appears_whole_and_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    monkeypatch.setattr("os.fsync", noted)
    with whole_folder(tmp_path / "new" / "out") as written:
        fill(written, "mine")
        assert not (tmp_path / "new" / "out").exists()
    assert names(tmp_path) == ["new", "new/out", "new/out/deep", "new/out/deep/file"]
    inside = [written / "deep" / "file", written / "deep", written]
    assert synced == [*inside, tmp_path / "new"]


def test_an_empty_folder_is_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the current one, and one that a link leads to."""
    for name in ("empty", "target"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("target")
    monkeypatch.chdir(tmp_path / "empty")
    for path in (Path(), tmp_path / "link"):
        with whole_folder(path) as written:
            fill(written, "mine")
    assert names(tmp_path / "empty") == names(tmp_path / "target") == ["deep", "deep/file"]


def test_what_is_in_its_place_by_then_is_kept(tmp_path: Path) -> None:
    """Of two that write a folder the first one wins."""
    out, file = tmp_path / "out", tmp_path / "file"
    said = pytest.raises(TakenError, match=r"/out was written by another process meanwhile")
    with said, whole_folder(out) as second:
        fill(second, "second")
        with whole_folder(out) as first:
            assert first != second
            fill(first, "first")
    (tmp_path / "new").mkdir()
    fill(tmp_path / "new", "new")
    with pytest.raises(TakenError):
        publish_folder(tmp_path / "new", out)
    shutil.rmtree(tmp_path / "new")
    assert (out / "deep" / "file").read_text() == "first"
    file.write_text("mine")
    with pytest.raises(TakenError), whole_folder(file) as written:
        fill(written, "other")
    assert file.read_text() == "mine"
    assert names(tmp_path) == ["file", "out", "out/deep", "out/deep/file"]


def test_an_earlier_folder_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or back where it was, if the new one cannot be renamed."""
    for content in ("first", "second"):
        with whole_folder(tmp_path / "out", replaces=True) as written:
            fill(written, content)
        assert (tmp_path / "out" / "deep" / "file").read_text() == content
    rename = Path.rename

    def failing(path: Path, target: Path) -> Path:
        if path == third:
            raise OSError(errno.EIO, "Input/output error")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", failing)
    said = pytest.raises(DataError, match=r"cannot write .*/out: Input/output error")
    with said, whole_folder(tmp_path / "out", replaces=True) as third:
        fill(third, "third")
    assert (tmp_path / "out" / "deep" / "file").read_text() == "second"
    assert names(tmp_path) == ["out", "out/deep", "out/deep/file"]


def test_an_error_leaves_nothing_and_a_full_disk_is_one_line(tmp_path: Path) -> None:
    """Not about the temporary folder, which is gone when the line is read."""
    with pytest.raises(KeyboardInterrupt), whole_folder(tmp_path / "out") as written:
        fill(written, "mine")
        raise KeyboardInterrupt
    assert not names(tmp_path)

    def full(written: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", written / "file")

    def full_inside(written: Path) -> None:
        shutil.rmtree(written)
        write_whole(written / "file", b"")

    for fail, where in ((full, ""), (full_inside, "/file")):
        with pytest.raises(DataError) as caught, whole_folder(tmp_path / "out") as written:
            fail(written)
        assert str(caught.value).startswith(f"cannot write {tmp_path}/out{where}: No s")
        assert not names(tmp_path)
    (tmp_path / "file").touch()
    said = pytest.raises(DataError, match=r"cannot write .*/file/out: Not a directory")
    with said, whole_folder(tmp_path / "file" / "out"):
        pass


def test_what_the_killed_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of this machine at once; those of others when nothing changed in them for a day."""
    dead = temporary_of_the_dead(tmp_path / "out").name
    (tmp_path / dead).mkdir()
    (tmp_path / dead / "file").touch()
    scope = dead.removeprefix(".out.").partition("-")[0]
    elsewhere, of_another = (dead.replace(scope, mark * 8) for mark in "01")
    theirs, busy = f"{dead}.x", dead.replace(".out.", ".other.")
    for name in (elsewhere, of_another, theirs, busy):
        shutil.copytree(tmp_path / dead, tmp_path / name)
    old = 1_000_000_000
    for path in (tmp_path / elsewhere / "file", tmp_path / elsewhere, tmp_path / of_another):
        os.utime(path, (old, old))
    with scratch_folder(tmp_path / "out") as mine, scratch_folder(tmp_path / "out"):
        assert mine.is_dir(), "its process runs"
        left = {path.name for path in tmp_path.iterdir() if path.name[:5] in (".out.", ".othe")}
        assert {of_another, theirs, busy, mine.name} < left and len(left) == 5
    monkeypatch.setattr(process_scope, "STALE_SECONDS", -1.0)
    with scratch_folder(tmp_path / "out"):
        assert not (tmp_path / of_another).exists()
