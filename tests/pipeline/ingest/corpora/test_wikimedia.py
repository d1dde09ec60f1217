"""Dumps, from lists as Wikimedia has them."""

import hashlib
import json
from pathlib import Path

import pytest

from pipeline.base.errors import ConfigError, DataError
from pipeline.ingest.corpora.wikimedia import list_dump
from pipeline.remote.copies import PublishedFile
from tests.pipeline.remote.publishers import Publisher

DUMP = "enwiki/20260101"
STATUS = f"{DUMP}/dumpstatus.json"
PARTS = {"10.xml-p5p9.bz2": b"late", "1.xml-p1p2.bz2": b"one", "2.xml-p3p4.bz2": b"two"}


def listed(server: Publisher, folder: Path, dump: str = DUMP) -> list[PublishedFile]:
    return list_dump(dump, folder)


def test_parts_in_the_order_of_pages(server: Publisher, tmp_path: Path) -> None:
    paths = server.put_dump(DUMP, PARTS)
    files = listed(server, tmp_path)
    assert [file.path for file in files] == [paths[1], paths[2], paths[0]]
    assert [file.size for file in files] == [3, 3, 4]
    assert files[0].hash == hashlib.sha1(b"one").hexdigest()
    assert files[0].url == f"{server.address}/{paths[1]}"
    asked = len(server.asked)
    assert listed(server, tmp_path) == files and len(server.asked) == asked
    [path] = server.put_dump("simplewiki/20260101", {".xml.bz2": b"all"})
    assert [file.path for file in listed(server, tmp_path, "simplewiki/20260101")] == [path]


def test_what_is_no_dump_or_no_list_of_one_is_refused(server: Publisher, tmp_path: Path) -> None:
    for dump in ("enwiki", "enwiki/2026-01-01", "../20260101", "/enwiki/20260101"):
        with pytest.raises(ConfigError, match="give one wiki and a date"):
            listed(server, tmp_path, dump)
    assert not server.asked
    with pytest.raises(DataError, match=r"dumpstatus.json cannot be fetched \(HTTP 404"):
        listed(server, tmp_path)
    server.put_dump(DUMP, PARTS, status="in-progress")
    with pytest.raises(DataError, match="in-progress"):
        listed(server, tmp_path)
    server.put_dump(DUMP, {"1.xml-p1p2.bz2/../../x": b"x"})
    with pytest.raises(DataError, match="has no file of articles"):
        listed(server, tmp_path)
    wrong = {"enwiki-20260101-pages-articles.xml.bz2": {"size": "1", "sha1": "no"}}
    job = json.dumps({"jobs": {"articlesdump": {"status": "done", "files": wrong}}}).encode()
    for content in (b"<html>", b"[]", b'{"jobs": 1}', job, b"[" * 100_000):
        server.files[STATUS] = content
        with pytest.raises(DataError, match="is not a list"):
            listed(server, tmp_path)
    assert not [*tmp_path.rglob("*.json")]
    # lengths and hashes that are none
    sizes = ("-1", "true", "9" * 5000, str(10**18), "1.5", '"1"', f'1, "sha1": "{"0" * 39}x"')
    (tmp_path / DUMP).mkdir(parents=True)
    for size in sizes:
        about = f'{{"sha1": "{"0" * 40}", "size": {size}}}'
        job = (
            f'{{"status": "done", "files": {{"enwiki-20260101-pages-articles.xml.bz2": {about}}}}}'
        )
        (tmp_path / STATUS).write_text(f'{{"jobs": {{"articlesdump": {job}}}}}')
        with pytest.raises(DataError, match=r"dumpstatus\.json to read it again"):
            listed(server, tmp_path)
