"""Tables of documents: what is read of them is what the readers gave."""

import bz2
import gzip
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from pipeline.execution.workers import local_executor
from pipeline.ingest.documents import read as documents_read
from pipeline.ingest.documents.read import cut
from pipeline.ingest.documents.records import EXTRACTED, BadRecord, Dropped, Extract, Record, Source
from pipeline.ingest.documents.sniff import sniff
from pipeline.ingest.extraction import document_tables
from pipeline.ingest.extraction.document_tables import (
    EXTRACTION_COLUMNS,
    extract_tables,
    piece_tables,
    regrouped,
)
from pipeline.ingest.extraction.extract import extract
from pipeline.ingest.extraction.formats import is_extracted
from tests.pipeline.ingest.documents.test_books import NEW
from tests.pipeline.ingest.files import bad_of, good_of, put, read_all, sniffed, texts_of
from tests.pipeline.ingest.tars import extracted

WORDS = "Ein Satz. \u00a0 Cafe\u0301 \U0001f600 zwei."
LINES = "\ufeff" + "\r\n".join(f"{WORDS} {n}" + "\n" * (n % 3) for n in range(60))
BAD = LINES.encode() + b"\n\n" + b"\xff\xfe broken\n\nThe end.\n"
DOC = "".join(
    f'<doc id="{n}" url="http://w/{n}" title="T{n}">\nT{n}\n\n{WORDS if n % 4 else ""}\n</doc>\n'
    for n in range(12)
)
BOOK = NEW.format(book="It was [Pg 12] late. [Illustration: a cat]\n\n" * 40)
ARRAY = '[{"text": "One.", "id": 7}, {"text": null}, {"text": "", "url": "http://a"}]'
WIKI = '{"id": "1", "url": "https://x/?curid=1", "text": "A ( ; born 1809) man."}\n{"id": 3}\n'
TABLE = 'id,text\n4,"One, two"\n5,a,b\n,\n'
FILES: dict[str, tuple[str, bytes, dict[str, object]]] = {
    "file": ("a.txt", LINES.encode(), {}),
    "blank_lines": ("a.txt", BAD, {"plain_text": "blank_lines"}),
    "lines": ("a.txt", BAD, {"plain_text": "lines"}),
    "lines.gz": ("a.txt.gz", gzip.compress(BAD), {"plain_text": "lines"}),
    "lines.bz2": ("a.txt.bz2", bz2.compress(BAD), {"plain_text": "lines"}),
    "book": ("b.txt", BOOK.encode(), {"plain_text": "book"}),
    "doc": ("wiki_00", DOC.encode(), {}),
    "wiki_jsonl": ("wiki_00", WIKI.encode(), {}),
    "json_array": ("a.json", ARRAY.encode(), {}),
    "csv": ("a.csv", TABLE.encode(), {}),
}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_tables, "GROUP_BYTES", 500)


def made(folder: Path, name: str) -> Source:
    file, content, options = FILES[name]
    path = put(folder / name / file, content)
    return sniff(path, "corpus", f"sub/{file}", **options)  # type: ignore[arg-type]


def test_extracted_records_are_those_of_the_file(tmp_path: Path) -> None:
    every: list[object] = []
    for name in FILES:
        source = made(tmp_path, name)
        assert is_extracted(source)
        (found,) = extract([source], tmp_path / "documents", local_executor(1))
        assert found.format == EXTRACTED and found.raw_format == source.format
        expected, got = read_all(source), read_all(found)
        # bad records are named by line where a unit starts the file, else by byte
        assert good_of(got) == good_of(expected), name
        assert [bad.reason for bad in bad_of(got)] == [bad.reason for bad in bad_of(expected)]
        assert all(bad.where.startswith("sub/") for bad in bad_of(got))
        assert expected and read_all(found, piece_bytes=300) == got
        every += expected
    assert {type(record) for record in every} == {Record, Dropped, BadRecord}
    assert any(record.cut for record in every if isinstance(record, Record))
    assert "" in texts_of(every)


def test_a_large_compressed_file_is_extracted_whatever_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.jsonl.gz"
    content = gzip.compress(b'{"text": "One."}\n{"text": "Two."}\n{"no": 1}\n')
    source = sniffed(path, content)
    assert extracted(path, tmp_path / "documents") == source
    monkeypatch.setattr(documents_read, "MOST_WHOLE_BYTES", 10)
    found = extracted(path, tmp_path / "documents")
    assert found.format == EXTRACTED
    assert read_all(found) == read_all(source)
    # the name is the one of the reading
    source = made(tmp_path, "csv")
    documents = tmp_path / "documents"
    (first,) = extract([source], documents, local_executor(1))
    (second,) = extract([replace(source, name="x/a.csv")], documents, local_executor(1))
    assert first.path == second.path
    ids = {record.id for record in read_all(second) if isinstance(record, Record)}
    assert ids == {"x/a.csv@0", "x/a.csv@2"}


def test_regrouped_tables_have_all_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(document_tables, "GROUP_BYTES", 5000)
    (whole,) = extract_tables([])
    assert whole.schema.names == EXTRACTION_COLUMNS and not whole.num_rows
    found = [
        Extract(str(n), "", "", "\u00e9" * (n * 37 % 900), "" if n % 5 else "x", "", "", "", 0)
        for n in range(300)
    ]
    monkeypatch.setattr(document_tables, "GROUP_BYTES", 1 << 30)
    (whole,) = extract_tables(found)
    monkeypatch.setattr(document_tables, "GROUP_BYTES", 5000)
    parts = [whole.slice(at, 23) for at in range(0, 300, 23)]
    groups = [*regrouped(parts)]
    assert pa.concat_tables(groups).equals(whole)
    sizes = [sum(len(text or "") for text in group["text"].to_pylist()) for group in groups]
    assert all(5000 <= size < 5900 for size in sizes[:-1])
    assert [group.num_rows for group in regrouped([])] == [0]
    # rows without text fill tables
    (piece,) = cut(sniffed(tmp_path / "a.csv", b"id,text\n" + b"1,\n2,x,y\n" * 50), 1 << 20)
    (whole,) = piece_tables([piece])
    monkeypatch.setattr(document_tables, "TABLE_ROWS", 7)
    monkeypatch.setattr(document_tables, "GROUP_ROWS", 16)
    parts = [*piece_tables([piece])]
    assert {part.num_rows for part in parts[:-1]} == {7}
    groups = [*regrouped(parts)]
    assert [group.num_rows for group in groups] == [16] * 6 + [4]
    assert pa.concat_tables(groups).equals(whole)
