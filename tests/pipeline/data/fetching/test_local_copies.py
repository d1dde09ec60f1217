"""Copies of published files: one at a time for a while, or kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.base.errors import DataError
from pipeline.data.corpora.published import Selected
from pipeline.data.documents.records import Source
from pipeline.data.fetching import http_files
from pipeline.data.fetching.local_copies import (
    fetch_all,
    fetched,
    is_here,
    passing_path,
    remove_copies,
    remove_copy,
)
from pipeline.execution.workers import local_executor
from tests.pipeline.data.publishers import Publisher, cut, publisher


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Publisher]:
    monkeypatch.setattr(http_files, "sleep", lambda seconds: None)
    with publisher() as found:
        yield found


def published(server: Publisher, folder: Path, count: int = 1, **more: bool) -> list[Source]:
    server.put_month("2019-02", {f"{n:05d}": bytes([n]) * 1000 for n in range(count)})
    return Selected(months="2019-02", mirrors=[server.address], **more).sources(folder)["cc-news"]


def left(folder: Path) -> list[str]:
    files = (path for path in folder.rglob("*.*") if path.is_file() and path.suffix != ".lock")
    return sorted(path.name for path in files if path.name != ".list.json")


def test_a_copy_lasts_as_long_as_it_is_used(server: Publisher, tmp_path: Path) -> None:
    [source] = published(server, tmp_path)
    copy = fetched(source)
    assert Path(copy.path).read_bytes() == bytes(1000) and copy.path != source.path
    assert replace(copy, path=source.path) == source
    assert left(tmp_path) == [passing_path(source).name] and not is_here(source)
    assert fetched(source) == copy and len(server.gets()) == 1
    remove_copy(source)
    assert not left(tmp_path)


def test_a_copy_that_is_kept_has_the_published_path(server: Publisher, tmp_path: Path) -> None:
    [source] = published(server, tmp_path, is_kept=True)
    for _ in range(2):
        assert fetched(source) == source
        remove_copy(source)
    assert left(tmp_path) == [source.name] and is_here(source)
    assert len(server.gets()) == 1


def test_what_was_fetched_before_is_used_and_stays(server: Publisher, tmp_path: Path) -> None:
    sources = published(server, tmp_path, 3)
    server.moods[sources[1].path.removeprefix(f"{tmp_path}/")] = [cut(100)]
    fetch_all(sources[:2], tmp_path, local_executor(1))
    assert left(tmp_path) == [source.name for source in sources[:2]]
    fetch_all(sources, tmp_path, local_executor(1))
    assert len(server.gets()) == 4
    assert fetched(sources[0]) == sources[0]
    remove_copy(sources[0])
    assert left(tmp_path) == [source.name for source in sources]


def test_what_nobody_needs_is_removed(server: Publisher, tmp_path: Path) -> None:
    done, other = published(server, tmp_path, 2)
    for source in (done, other):
        copy = passing_path(source)
        copy.write_bytes(b"x")
        copy.with_suffix(".part").write_bytes(b"y")
    remove_copies([done])
    assert len(left(tmp_path)) == 2 and all(other.name in name for name in left(tmp_path))
    remove_copies([replace(other, published=None)])
    assert len(left(tmp_path)) == 2


def test_a_copy_of_another_length_is_named(server: Publisher, tmp_path: Path) -> None:
    [source] = published(server, tmp_path)
    Path(source.path).write_bytes(b"half")
    with pytest.raises(DataError, match="has 4 bytes, and 1,000 are published; remove it"):
        is_here(source)
