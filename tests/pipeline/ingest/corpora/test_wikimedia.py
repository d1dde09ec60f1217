"""Dumps, from lists as Wikimedia has them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.base.errors import ConfigError, DataError
from pipeline.ingest.corpora.wikimedia import list_dump
from pipeline.remote import retries
from pipeline.remote.kept_lists import Keeping
from tests.pipeline.remote.publishers import Publisher, publisher

DUMP = "enwiki/20260101"
PARTS = {"10.xml-p5p9.bz2": b"late", "1.xml-p1p2.bz2": b"one", "2.xml-p3p4.bz2": b"two"}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Publisher]:
    monkeypatch.setattr(retries, "sleep", lambda seconds: None)
    with publisher() as found:
        yield found


def test_parts_in_the_order_of_pages(server: Publisher, tmp_path: Path) -> None:
    paths = server.put_dump(DUMP, PARTS)
    files = list_dump(DUMP, server.address, Keeping(downloads=tmp_path, is_kept=True))
    assert [file.path for file in files] == [paths[1], paths[2], paths[0]]
    assert [file.size for file in files] == [3, 3, 4]
    assert files[0].hash == hashlib.sha1(b"one").hexdigest()
    assert files[0].url == f"{server.address}/{paths[1]}" and files[0].is_kept
    asked = len(server.asked)
    assert list_dump(DUMP, server.address, Keeping(downloads=tmp_path, is_kept=True)) == files
    assert len(server.asked) == asked


def test_a_small_wiki_has_one_file(server: Publisher, tmp_path: Path) -> None:
    [path] = server.put_dump("simplewiki/20260101", {".xml.bz2": b"all"})
    [file] = list_dump(
        "simplewiki/20260101", server.address, Keeping(downloads=tmp_path, is_kept=False)
    )
    assert file.path == path


def test_a_mirror_without_hashes_in_its_list(server: Publisher, tmp_path: Path) -> None:
    server.put_dump(DUMP, PARTS)
    status = json.loads(server.files[f"{DUMP}/dumpstatus.json"])
    for about in status["jobs"]["articlesdump"]["files"].values():
        del about["sha1"]
    server.files[f"{DUMP}/dumpstatus.json"] = json.dumps(status).encode()
    files = list_dump(DUMP, server.address, Keeping(downloads=tmp_path, is_kept=False))
    assert files[0].hash == hashlib.sha1(b"one").hexdigest()


@pytest.mark.parametrize("dump", ["enwiki", "enwiki/2026-01-01", "../20260101", "/enwiki/20260101"])
def test_what_names_no_dump_is_refused(dump: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give a wiki and a date"):
        list_dump(dump, "http://127.0.0.1:9", Keeping(downloads=tmp_path, is_kept=False))


def test_a_dump_that_is_not_finished_is_refused(server: Publisher, tmp_path: Path) -> None:
    server.put_dump(DUMP, PARTS, status="in-progress")
    with pytest.raises(DataError, match="in-progress; wait for it, or name an earlier date"):
        list_dump(DUMP, server.address, Keeping(downloads=tmp_path, is_kept=False))
    assert not [*tmp_path.iterdir()] or not [*tmp_path.rglob(".list.json")]


def test_what_is_no_list_of_the_dump_is_refused(server: Publisher, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"dumpstatus.json does not exist \(HTTP 404\)"):
        list_dump(DUMP, server.address, Keeping(downloads=tmp_path, is_kept=False))
    server.put_dump(DUMP, {"1.xml-p1p2.bz2/../../x": b"x"})
    with pytest.raises(DataError, match="lists no file of articles"):
        list_dump(DUMP, server.address, Keeping(downloads=tmp_path, is_kept=False))
    wrong = {"enwiki-20260101-pages-articles.xml.bz2": {"size": "1", "sha1": "no"}}
    for content in (b"<html>", b"[]", b'{"jobs": 1}', json.dumps(
        {"jobs": {"articlesdump": {"status": "done", "files": wrong}}}
    ).encode()):  # fmt: skip
        server.files[f"{DUMP}/dumpstatus.json"] = content
        with pytest.raises(DataError, match="is not a list of a dump"):
            list_dump(DUMP, server.address, Keeping(downloads=tmp_path, is_kept=False))
    (tmp_path / DUMP / ".list.json").write_text('[{"name": "../x", "size": 1, "hash": ""}]')
    with pytest.raises(DataError, match="is damaged; remove it"):
        list_dump(DUMP, server.address, Keeping(downloads=tmp_path, is_kept=False))


@pytest.mark.parametrize("size", ["-1", "true", "9" * 5000, str(10**18), "1.5", '"1"'])
def test_what_is_no_length_is_refused(server: Publisher, tmp_path: Path, size: str) -> None:
    [path] = server.put_dump(DUMP, {".xml.bz2": b"all"})
    status = server.files[f"{DUMP}/dumpstatus.json"]
    server.files[f"{DUMP}/dumpstatus.json"] = status.replace(
        b'"size": 3', f'"size": {size}'.encode()
    )
    with pytest.raises(DataError, match="is not a list of a dump"):
        list_dump(DUMP, server.address, Keeping(downloads=tmp_path, is_kept=False))
    entry = f'[{{"name": "{Path(path).name}", "size": {size}, "hash": "{"0" * 40}"}}]'
    (tmp_path / DUMP / ".list.json").write_text(entry)
    with pytest.raises(DataError, match="is damaged; remove it"):
        list_dump(DUMP, server.address, Keeping(downloads=tmp_path, is_kept=False))


def test_a_list_that_is_nested_deeply_is_refused(server: Publisher, tmp_path: Path) -> None:
    server.files[f"{DUMP}/dumpstatus.json"] = b"[" * 100_000
    with pytest.raises(DataError, match=r"is not a list of a dump .*nested too deeply"):
        list_dump(DUMP, server.address, Keeping(downloads=tmp_path, is_kept=False))
