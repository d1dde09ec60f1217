"""CSV and TSV: header, delimiters, quotes, bad rows; as a stream."""

from pathlib import Path

import pytest

from pipeline.base.errors import DataError
from pipeline.ingest.documents import csv_tables
from pipeline.ingest.documents.csv_tables import find_dialect
from pipeline.ingest.documents.read import cut
from pipeline.ingest.documents.records import BadRecord, Record, Source
from tests.pipeline.ingest.documents.raw_files import COMPRESS, records
from tests.pipeline.ingest.files import sniffed, texts_of

TABLE = (
    b'\xef\xbb\xbfid,text,url\r\n1,"One, ""two""\nthree.",u\r\n2,caf\xe9,v\r\n3,x\r\n4,Four.,\r\n'
    b'5,"ok",z,extra\r\n6,"last",q'
)


def table(folder: Path, content: bytes, name: str = "a.csv", **options: str) -> Source:
    return sniffed(folder / name, content, **options)


def test_rows_become_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = "another number of values than columns"
    for compression in ("", "gz"):
        found = table(tmp_path, COMPRESS[compression](TABLE))
        assert found.format == "csv" and len(cut(found, 1)) == 1
        assert records(found) == [
            Record("a.csv@0", "u", 'One, "two"\nthree.'), BadRecord("a.csv:2", "invalid UTF-8"),
            BadRecord("a.csv:3", wrong), Record("a.csv@3", "4", "Four."),
            BadRecord("a.csv:5", wrong), Record("a.csv@5", "q", "last"),
        ]  # fmt: skip
    # which are numbered over blocks
    monkeypatch.setattr(csv_tables, "BLOCK_BYTES", 64)
    rows = [f'{n},"Row {n}\nof it."' if n % 7 else f"{n},a,b" for n in range(1, 50)]
    found = records(table(tmp_path, ("id,text\n" + "\n".join(rows)).encode()))
    names = [r.id if isinstance(r, Record) else r.where for r in found]
    assert names == [f"a.csv@{n - 1}" if n % 7 else f"a.csv:{n}" for n in range(1, 50)]


def test_dialects(tmp_path: Path) -> None:
    text = b'id\ttext\n1\t"One\n2\ttwo" said\n3\tx\n'  # a quote is text
    for head, delimiter, is_quoted in (
        (b"id,text\n1,One\n2,Two\n", ",", True), (b"id;text\n1;One, two\n", ";", True),
        (b"id|text\n1|One, two\n", "|", True), (b"text\nOne, two\n", "\t", True),
        (b'id\ttext\n1\t"One\ttwo"\n2\tTwo\n', "\t", True), (text, "\t", False),
    ):  # fmt: skip
        found = find_dialect(head, ("text",))
        assert (found.delimiter, found.is_quoted) == (delimiter, is_quoted), head
    assert texts_of(records(table(tmp_path, text, "a.tsv"))) == ['"One', 'two" said', "x"]


def test_a_table_is_known_by_its_header_or_its_name(tmp_path: Path) -> None:
    assert table(tmp_path, b"id\ttext\n1\tOne.\n", "part-0000").format == "csv"
    assert table(tmp_path, b"id,story\n1,One.\n", "x", text_field="story").format == "csv"
    assert table(tmp_path, b'text\n"One."\n"Two."\n').format == "csv"
    for text in (b"text, body\nand content.\n", b"text,body\n", b"One,text here\nTwo,x\n"):
        assert table(tmp_path, text, "notes").format == "text"
    assert table(tmp_path, b"text\nOne.\n", "notes").format == "text"  # one column is no table
    for first in (b"1,The cat sat.", b"story\nOne."):
        with pytest.raises(DataError, match=r"no column text .*(header|first line must name)"):
            table(tmp_path, first + b"\n2,It did.\n")


def test_a_row_is_longer_than_the_blocks_of_its_file_unless_its_quote_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = b"id,text\n" + b'1,"%s"\n2,Short.\n' % (b"a, " * 200_000)
    for name, given in (("a.csv", content), ("a.csv.gz", COMPRESS["gz"](content))):
        found = texts_of(records(table(tmp_path, given, name)))
        assert [len(text) for text in found] == [600_000, 6]
    monkeypatch.setattr(csv_tables, "BLOCK_BYTES", 1000)
    content = b"id,text\n" + b'1,"a, b"\n' * 8000 + b'2,"open\n' + b"3,c\n" * 1000
    with pytest.raises(DataError, match=r"a\.csv cannot be read after row .*quote may be open"):
        records(table(tmp_path, content))
