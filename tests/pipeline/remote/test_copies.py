"""Copies of published files, for a while or kept, and the lists that name them."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pipeline.base.errors import DataError
from pipeline.execution.workers import local_executor
from pipeline.remote.copies import (
    PublishedFile,
    fetch_all,
    fetched,
    is_here,
    passing_path,
    published_list,
    read_beginning,
    remove_copies,
)
from tests.pipeline.remote.publishers import Publisher, cut, publisher


@pytest.fixture
def server() -> Iterator[Publisher]:
    with publisher() as found:
        yield found


def published(server: Publisher, folder: Path, count: int = 1) -> list[PublishedFile]:
    paths = server.put_month("2019-02", {f"{n:05d}": bytes([n]) * 1000 for n in range(count)})
    return [
        PublishedFile(url=f"{server.address}/{path}", path=path, size=1000, downloads=folder)
        for path in paths
    ]


def left(folder: Path) -> list[str]:
    files = (path for path in folder.rglob("*.*") if path.is_file() and path.suffix != ".lock")
    return sorted(path.name for path in files)


def test_a_copy_lasts_as_long_as_it_is_used(server: Publisher, tmp_path: Path) -> None:
    [file] = published(server, tmp_path)
    with ThreadPoolExecutor(2) as pool:  # one fetches it for both
        assert [*pool.map(fetched, [file] * 2)] == [passing_path(file)] * 2
    assert passing_path(file).read_bytes() == bytes(1000)
    assert not is_here(file) and len(server.gets()) == 1
    remove_copies([file])
    assert not left(tmp_path)


def test_what_was_fetched_before_is_used_and_stays(server: Publisher, tmp_path: Path) -> None:
    files = published(server, tmp_path, 3)
    server.moods[files[1].path] = [cut(100)]
    fetch_all(files[:2], local_executor(1))
    assert left(tmp_path) == [file.place.name for file in files[:2]]
    fetch_all(files, local_executor(1))
    assert len(server.gets()) == 4
    assert fetched(files[0]) == files[0].place == tmp_path / files[0].path
    remove_copies(files)
    assert left(tmp_path) == [file.place.name for file in files]
    assert read_beginning(files[2], 3) == bytes([2] * 3) and len(server.gets()) == 4
    files[0].place.write_bytes(b"half")
    with pytest.raises(DataError, match="has 4 bytes, and 1,000 are published; remove it"):
        is_here(files[0])


def test_a_list_is_read_once_and_checked_before_it_is_kept(tmp_path: Path) -> None:
    path, answers = tmp_path / "deep" / "list.json", [b"<html>", b"[1]", b'{"a": 1}']

    def parse(found: Any) -> Any:
        return found["a"]

    for _ in range(2):
        with pytest.raises(DataError, match="is not a list; run"):
            published_list(path, lambda: answers.pop(0), parse)
    assert published_list(path, lambda: b'{"a": 2}', parse, recording=False) == 2
    assert not path.parent.exists()
    for _ in range(2):
        assert published_list(path, lambda: answers.pop(0), parse) == 1
    for damaged in (b"{", b"[]", b"[" * 100_000, json.dumps("x" * (17 << 20)).encode()):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=f"remove {path} to read it again"):
            published_list(path, lambda: b"", parse)
