"""Zip archives: files of every format in them, and hostile ones."""

import errno
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.base.errors import DataError
from pipeline.execution.workers import local_executor
from pipeline.ingest.corpora.sources import corpus_sources
from pipeline.ingest.documents.records import BadRecord, Extract, PlainText
from pipeline.ingest.extraction import zip_archives
from pipeline.ingest.extraction.extract import extract
from pipeline.ingest.extraction.formats import format_of
from tests.pipeline.ingest.documents.raw_files import parquet
from tests.pipeline.ingest.files import bad_of, put, sniffed, texts_of
from tests.pipeline.ingest.tars import extracted
from tests.pipeline.ingest.web_archive import page
from tests.temporaries import temporary_of_the_dead


def archive(path: Path, files: dict[str, bytes | str], **options: int) -> Path:
    with zipfile.ZipFile(path, "w", **options) as file:  # type: ignore[arg-type]
        for name, content in files.items():
            file.writestr(name, content)
    return path


def read(path: Path, plain_text: PlainText = "blank_lines") -> list[Extract | BadRecord]:
    source = sniffed(path, plain_text=plain_text)
    assert source.format == "zip"
    return [*format_of(source).begin(source)]  # type: ignore[union-attr]


def texts(path: Path, plain_text: PlainText = "blank_lines") -> list[str]:
    return texts_of(read(path, plain_text))


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
def test_files_of_every_format(tmp_path: Path, method: int) -> None:
    files = {
        "a.jsonl": b'{"text": "One.", "url": "u"}\n{"no": 1}\n', "b.json": '[{"text": "Two."}]',
        "c.csv": "id,text\n1,Three.\n", "d/e.txt": "Four.\n\nStill four.",
        "f.parquet": parquet(pa.table({"text": ["Five."]})), "g.html": page("Six"),
        "__MACOSX/._a": "x", ".hidden": "x", "empty": "",
    }  # fmt: skip
    path = archive(tmp_path / "a.zip", files, compression=method)
    found = [text for text in texts(path) if text]
    assert found[:5] == ["One.", "Two.", "Three.", "Four.\n\nStill four.", "Five."]
    assert len(found) == 6 and found[5].startswith("Six") and "<" not in found[5]
    assert bad_of(read(path)) == [BadRecord("a.zip/a.jsonl:2", "no text field")]


def test_one_file_is_read_as_if_it_were_not_packed(tmp_path: Path) -> None:
    """How its text is read is part of the mark of what is extracted from it."""
    path = archive(tmp_path / "a.zip", {"a.txt": "One.\n\nTwo.\nMore."})
    expected = {"": ["One.", "Two.\nMore."], "lines": ["One.", "Two.", "More."]}
    assert texts(path) == expected[""] and texts(path, "lines") == expected["lines"]
    for plain_text, rows in expected.items():
        sources = corpus_sources("mine", [str(path)], plain_text=plain_text)[1]
        [made] = extract(sources, tmp_path / "out", local_executor(1))
        assert pq.read_table(made.path)["text"].to_pylist() == rows


def test_names_and_links_are_harmless(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("link")
    link.external_attr = 0o120777 << 16
    path = archive(tmp_path / "a.zip", {"../../up\n.txt": "One.", "/root.txt": "Two."})
    with zipfile.ZipFile(path, "a") as file:
        file.writestr(link, "/etc/passwd")
    found = [item for item in read(path) if isinstance(item, Extract)]
    assert [item.text for item in found] == ["One.", "Two.", ""]
    assert found[2].dropped == "link or device in an archive"
    assert {file.name for file in tmp_path.iterdir()} == {"a.zip"}
    assert [item.id for item in found] == ["../../up\\n.txt@0", "/root.txt@0", "link"]


def test_what_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    inner = archive(path, {"a": "One."}).read_bytes()
    for files, message in (
        ({"inner.zip": inner}, r"a\.zip: inner\.zip is zip archive"),
        ({"a.txt": b"0" * (65 << 20)}, r"a\.zip holds 68 MB in 0\.1 MB"),
        ({"a.csv": b"1,2\n"}, r"a\.zip: a\.csv has no column text"),
    ):
        with pytest.raises(DataError, match=message):
            read(archive(path, files, compression=zipfile.ZIP_DEFLATED))
    content = archive(path, {"a.txt": "One."}).read_bytes()
    central = content.index(b"PK\x01\x02")
    encrypted = content[: central + 8] + b"\x01" + content[central + 9 :]
    for damaged, message in (
        (encrypted, r"a\.zip is encrypted \('a\.txt'\)"),
        (content[: len(content) // 2], r"a\.zip is truncated or damaged"),
        (content[:-5], r"a\.zip is truncated or damaged"),
        (content.replace(b"One.", b"Two."), r"a\.zip is truncated or damaged \(Bad CRC"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=message):
            read(path)
    # two archives are not one: zipfile reads the last of them and says nothing about the other
    one = archive(tmp_path / "one.zip", {"a.txt": "One."}).read_bytes()
    two = archive(tmp_path / "two.zip", {"b.txt": "Two."}).read_bytes()
    for content, where in ((one + two, "before"), (one + two[:40], "after"), (one + b"x", "after")):
        path.write_bytes(content)
        with pytest.raises(DataError, match=rf"a\.zip is damaged \(bytes {where} the archive"):
            read(path)
    path.write_bytes(one + bytes(512))
    assert texts(path) == ["One."]


def test_an_archive_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its directory grows with its files: read for each of them, 3,000 took half a minute."""
    path = archive(tmp_path / "a.zip", {f"{number}.txt": f"Text {number}." for number in range(9)})
    opened = []

    class Counted(zipfile.ZipFile):
        def __init__(self, file: str) -> None:
            opened.append(file)
            super().__init__(file)

    monkeypatch.setattr(zipfile, "ZipFile", Counted)
    assert texts(path) == [f"Text {number}." for number in range(9)]
    assert len(opened) <= 2, "to be cut into units, and to be read"


def test_members_are_unpacked_beside_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk is the one that is named, and the next run removes what a killed one left."""
    path = archive(put(tmp_path / "in/a.zip"), {"a.jsonl": '{"text": "One."}\n', "b.txt": "Two."})
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "full"))
    documents = tmp_path / "documents"
    seen: list[set[str]] = []
    cut = zip_archives.cut

    def look(*arguments: Any) -> Any:
        seen.append({entry.suffix for entry in documents.iterdir()})
        return cut(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(zip_archives, "cut", look)
        extracted(path, documents)
    assert len(seen) == 2 and all(".tmp" in there for there in seen)
    assert not [*documents.glob("*.tmp")]
    left = temporary_of_the_dead(documents / "member")
    left.write_bytes(b"half")
    extracted(path, documents)
    assert not left.exists()

    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(DataError, match=rf"cannot write {documents}2/.*No space left on device"):
        extracted(path, tmp_path / "documents2")
