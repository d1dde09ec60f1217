"""Copies of published files: one at a time for a while, or kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.base.errors import DataError
from pipeline.execution.workers import local_executor
from pipeline.remote import http_files
from pipeline.remote.copies import fetch_all, fetched, is_here, passing_path, remove_copies
from pipeline.remote.kept_lists import PublishedFile
from tests.pipeline.remote.publishers import Publisher, cut, publisher


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Publisher]:
    monkeypatch.setattr(http_files, "sleep", lambda seconds: None)
    with publisher() as found:
        yield found


def published(server: Publisher, folder: Path, count: int = 1) -> list[PublishedFile]:
    paths = server.put_month("2019-02", {f"{n:05d}": bytes([n]) * 1000 for n in range(count)})
    return [
        PublishedFile(
            url=f"{server.address}/{path}", path=path, size=1000, hash="",
            version=server.tag(path), connections=8, downloads=folder, is_kept=False,
        )
        for path in paths
    ]  # fmt: skip


def left(folder: Path) -> list[str]:
    files = (path for path in folder.rglob("*.*") if path.is_file() and path.suffix != ".lock")
    return sorted(path.name for path in files)


def test_a_copy_lasts_as_long_as_it_is_used(server: Publisher, tmp_path: Path) -> None:
    [file] = published(server, tmp_path)
    copy = fetched(file)
    assert copy.read_bytes() == bytes(1000) and copy == passing_path(file) != file.place
    assert left(tmp_path) == [copy.name] and not is_here(file)
    assert fetched(file) == copy and len(server.gets()) == 1
    remove_copies([file])
    assert not left(tmp_path)


def test_a_copy_that_is_kept_has_the_published_path(server: Publisher, tmp_path: Path) -> None:
    [file] = published(server, tmp_path)
    file = replace(file, is_kept=True)
    for _ in range(2):
        assert fetched(file) == file.place == tmp_path / file.path
        remove_copies([file])
    assert left(tmp_path) == [file.place.name] and is_here(file)
    assert len(server.gets()) == 1


def test_what_was_fetched_before_is_used_and_stays(server: Publisher, tmp_path: Path) -> None:
    files = published(server, tmp_path, 3)
    server.moods[files[1].path] = [cut(100)]
    fetch_all(files[:2], local_executor(1))
    assert left(tmp_path) == [file.place.name for file in files[:2]]
    fetch_all(files, local_executor(1))
    assert len(server.gets()) == 4
    assert fetched(files[0]) == files[0].place
    remove_copies(files[:1])
    assert left(tmp_path) == [file.place.name for file in files]


def test_what_nobody_needs_is_removed(server: Publisher, tmp_path: Path) -> None:
    done, other = published(server, tmp_path, 2)
    done.place.parent.mkdir(parents=True)
    for file in (done, other):
        copy = passing_path(file)
        copy.write_bytes(b"x")
        copy.with_suffix(".part").write_bytes(b"y")
    remove_copies([done])
    assert len(left(tmp_path)) == 2 and all(other.place.name in name for name in left(tmp_path))


def test_a_copy_of_another_length_is_named(server: Publisher, tmp_path: Path) -> None:
    [file] = published(server, tmp_path)
    file.place.parent.mkdir(parents=True)
    file.place.write_bytes(b"half")
    with pytest.raises(DataError, match="has 4 bytes, and 1,000 are published; remove it"):
        is_here(file)
