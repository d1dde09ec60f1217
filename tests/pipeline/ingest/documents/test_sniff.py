"""The format of a file is detected from its first bytes; other data are refused."""

from __future__ import annotations

import gzip
import json
import lzma
import os
from pathlib import Path

import pytest

from pipeline.base.errors import DataError
from pipeline.ingest.documents import byte_blocks
from pipeline.ingest.documents import sniff as module
from pipeline.ingest.documents.sniff import read_head, sniff
from tests.pipeline.ingest.documents.raw_files import LINES, records, source


def write(folder: Path, content: bytes) -> str:
    (folder / "file").write_bytes(content)
    return str(folder / "file")


@pytest.fixture(params=[1, 2, 1 << 16])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_blocks, "BLOCK_BYTES", request.param)
    monkeypatch.setattr(byte_blocks, "OVERRUN_BYTES", request.param)


@pytest.mark.usefixtures("block")
def test_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEAD_BYTES", 4)
    for content, head in (
        (b"", b""),
        (b"0123", b"0123"),
        (b"01234", b"01234"),
        (b"0" * 9, b"00000"),
    ):
        assert read_head(write(tmp_path, content), "") == head
        assert read_head(write(tmp_path, lzma.compress(content)), "xz") == head


def test_format_by_content_not_suffix(tmp_path: Path) -> None:
    (tmp_path / "wiki_00").write_bytes(b'\n {"id": "12", "url": "u", "text": "One."}')
    assert sniff(tmp_path / "wiki_00", "c", "n").format == "jsonl"
    (tmp_path / "a.txt.gz").write_bytes(b'{"text": "One."}')
    assert sniff(tmp_path / "a.txt.gz", "c", "n").format == "jsonl"
    (tmp_path / "a.csv").write_bytes(b'{"text": "One."}')
    assert sniff(tmp_path / "a.csv", "c", "n").format == "jsonl"


def test_damaged_lines_before_a_record_longer_than_the_head(tmp_path: Path) -> None:
    long = b'{"text": "' + b"word " * 20_000 + b'"}\n'
    assert source(tmp_path, b"# exported\n" + long).format == "jsonl"
    assert source(tmp_path, long).format == "jsonl"
    assert source(tmp_path, b"\xef\xbb\xbf" + long).format == "jsonl"


WITHOUT_MARK = ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
SPEECH = b'"Where?"\n\n"There!"\n\nHe looked.\n\n"Indeed."\n'


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("file", b'["One."]\n["Two.", 2]\n', "seems to be JSON lines of arrays or strings"),
        ("file", b'"One."\n"Two."\n\n"Three."', "seems to be JSON lines of arrays or strings"),
        ("a.json", b"One.", "is named as JSON, but no line is an object"),
        ("a.jsonl.zst", b"One.", "is named as JSON, but no line is an object"),
        ("a.NDJSON.gz", b"[1]\nOne.\n2", "is named as JSON, but no line is an object"),
    ],
)
def test_data_that_would_be_read_as_text(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"{path} {message}.*; convert it .*--plain-text"):
        sniff(path, "corpus", "news")
    assert sniff(path, "corpus", "news", forced_text=True).format == "text"
    path.rename(tmp_path / "blob")  # as in a cache, where the link has the name
    with pytest.raises(DataError, match=message):
        sniff(tmp_path / "blob", "corpus", name)


@pytest.mark.parametrize(
    "text", [SPEECH, b"[1]\nOne.\nTwo.\n", b"{{Infobox}}\n", b"{| class\n", b"[[Link]] one.\n"]
)
def test_text_that_is_not_data(tmp_path: Path, text: bytes) -> None:
    assert source(tmp_path, text).format == "text"


def test_text_with_an_example_of_json_can_be_forced(tmp_path: Path) -> None:
    text = b'Such as\n{"a": 1}\nis called an object.\n'
    assert source(tmp_path, text).format == "jsonl"
    assert source(tmp_path, text, forced_text=True).format == "text"
    assert source(tmp_path, LINES, forced_text=True).format == "jsonl"


@pytest.mark.parametrize("size", [1, 5000])
@pytest.mark.parametrize("indent", [0, 2])
def test_json_over_several_lines(tmp_path: Path, size: int, indent: int) -> None:
    documents = [{"text": f"\u00e9 {n}.", "n": [n, False]} for n in range(size)]
    for value, shape in (
        ({"documents": documents}, "one JSON object over several lines, not one a line"),
        ([[n, n] for n in range(size)], "one JSON array"),
    ):
        content = json.dumps(value, indent=indent, ensure_ascii=False).encode()
        for whole in (content, b"\xef\xbb\xbf\n" + content, content + b"\n" + content):
            for forced_text in (False, True):
                with pytest.raises(DataError, match=f"is {shape}"):
                    source(tmp_path, whole, forced_text=forced_text)
    with pytest.raises(DataError, match="one JSON object over several lines"):
        source(tmp_path, b'{"documents": [\n{"text": "a"},\n{"text": "b"}\n]}')


def test_head_is_cut_anywhere_in_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = json.dumps({"a": [1.5e3, True, None, "\u00e9\n\\"], "b": {"c": "d"}}, indent=1)
    for size in range(12, len(content)):
        monkeypatch.setattr("pipeline.ingest.documents.sniff.HEAD_BYTES", size)
        with pytest.raises(DataError, match="one JSON object over several lines"):
            source(tmp_path, content.encode())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"filedesc://a.arc 0.0.0.0 20100101000000 text/plain 3\n1 0 A\n\n", "is an ARC file"),
        (b"", "is empty"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (bytes(range(256)), "is binary"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "is binary"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" * 9, "is binary"),
        *[
            (text.encode(encoding), f"is {encoding[:6].upper()} text, not UTF-8")
            for text in ("One.", '{"text": "One."}\n', "\n中文。\n", "Ένα. 🙂 " * 30_000)
            for encoding in ("utf-16", "utf-32", *WITHOUT_MARK)
        ],
        (gzip.compress("One.".encode("utf-32"), mtime=0), "is UTF-32"),
        (b"BZh91AY&SY", "is truncated"),
    ],
)
def test_files_that_are_something_else(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=f"{tmp_path / 'file'} {message}"):
        source(tmp_path, content)


def test_missing_file_and_directory(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing\.txt does not exist"):
        sniff(tmp_path / "nothing.txt", "corpus", "news")
    with pytest.raises(DataError, match="is a directory"):
        sniff(tmp_path, "corpus", "news")
    with pytest.raises(DataError, match=r"file/below does not exist"):
        source(tmp_path, LINES)
        sniff(tmp_path / "file" / "below", "corpus", "news")
    found = source(tmp_path, LINES)
    (tmp_path / "file").unlink()
    with pytest.raises(DataError, match="file cannot be read: No such file"):
        records(found)


def test_what_is_not_a_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/null", tmp_path / "pipe"):
        with pytest.raises(DataError, match=f"{path} is not a regular file; give files"):
            sniff(path, "corpus", "news")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(DataError, match="loop is a symbolic link that leads back to itself"):
        sniff(tmp_path / "loop", "corpus", "news")
    with pytest.raises(DataError, match="cannot be read: File name too long"):
        sniff(tmp_path / ("x" * 300), "corpus", "news")
