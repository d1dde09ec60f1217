"""CSV and TSV: header, delimiters, quotes, bad rows; as a stream."""

import csv
import io
from pathlib import Path
from typing import Literal

import pytest

from pipeline.base.errors import DataError
from pipeline.ingest.documents import csv_tables
from pipeline.ingest.documents.byte_blocks import BOM
from pipeline.ingest.documents.read import cut
from pipeline.ingest.documents.records import BadRecord, Record, Source
from tests.pipeline.ingest.documents.raw_files import COMPRESS, in_blocks, records
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


FILL = "word " * 60
LONG = "".join(f"{n}\t{FILL}{n}\n" for n in range(300))  # longer than what is seen of a file first


def pandas(values: list[str], quoting: Literal[0, 1] = csv.QUOTE_MINIMAL) -> str:
    stream = io.StringIO()
    csv.writer(stream, quoting=quoting, lineterminator="\n").writerows([["text"], *zip(values)])
    return stream.getvalue()


PANDAS = [
    'She said "hi", twice.\nThen left.',
    "Plain.",
    "A\ttab, and a bar | here",
    '"',
    "One; two",
]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("id,text\n1,One\n2,Two\n", ["One", "Two"]),
        ("id;text\n1;One, two\n", ["One, two"]),
        ("id|text\n1|One, two\n", ["One, two"]),
        ("text\nOne, two\nAnd\tthree\n", ["One, two", "And\tthree"]),
        ('id\ttext\n1\t"One\ttwo"\n2\tTwo\n', ["One\ttwo", "Two"]),
        ('id\ttext\n1\t"One\n2\ttwo" said\n3\tx\n', ['"One', 'two" said', "x"]),
        ('text\tid\n"Two\nlines"\t1\n', ["Two\nlines"]),
        ('text,id\n"One, two",1\n5" disk,2\n', ["One, two", '5" disk']),
        (pandas(PANDAS), PANDAS),
        (pandas(PANDAS, csv.QUOTE_ALL), PANDAS),
        ('text\n"Hi" he said.\n"No.\n"Oh!"\n', ['"Hi" he said.', '"No.', '"Oh!"']),
        # also where the first quotes come late, and beside rows of another length
        (f'id\ttext\n{LONG}1\t"Late\n2\tand "more"\n', [FILL, '"Late', 'and "more"']),
        (f'id\ttext\n{LONG}1\t"Late\n2\n3\t"Oh" and "no"\n', [FILL, '"Late', '"Oh" and "no"']),
        (f'id\ttext\n{LONG}1\t"Late\nlines"\n', [FILL, "Late\nlines"]),
    ],
)  # fmt: skip
def test_quotes_enclose_values_or_are_text_by_the_whole_file(
    content: str, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = records(table(tmp_path, content.encode(), "a.tsv"))
    texts = texts_of([record for record in found if isinstance(record, Record)])
    # wherever blocks end, in which lines end with CR, LF or both
    for number, end in enumerate(("\r", "\n", "\r\n")):
        in_blocks(monkeypatch, 5 if FILL not in content else 500)
        ended = BOM + content.replace("\n", end).encode()
        again = texts_of(records(table(tmp_path, ended, f"{number}.tsv")))
        assert [text.replace(end, "\n") for text in again] == texts
    if FILL in expected:
        assert all(text == f"{FILL}{n}" for n, text in enumerate(texts[:300]))
        texts, expected = texts[300:], expected[1:]
    assert texts == expected


@pytest.mark.parametrize(
    "ending", [b'400\t"open\n', b'400\t"open', b'1\t"Two\nlines"\n400\t"cut\n2\tb']
)
def test_a_quote_that_is_open_at_the_end_is_damage(ending: bytes, tmp_path: Path) -> None:
    found = table(tmp_path, b"id\ttext\n" + LONG.encode() + ending, "a.tsv")
    line = 302 + 2 * ending.startswith(b"1")
    with pytest.raises(DataError, match=rf"a\.tsv: a quote in the row of line {line} "):
        records(found)


def test_two_columns_of_one_name_are_refused_if_they_are_read(tmp_path: Path) -> None:
    for name, head in (
        ("a.csv", b"text,text"),
        ("table", b"id,text,text"),
        ("b.csv", b"id,id,text"),
    ):
        with pytest.raises(
            DataError, match=rf"{name} has 2 columns named '{head.split(b',')[1].decode()}'"
        ):
            table(tmp_path, head + b"\n" + head + b"\n", name)
    assert texts_of(records(table(tmp_path, b"x,x,text\n1,2,One\n"))) == ["One"]


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
    with pytest.raises(DataError, match=r"a\.csv: a quote in the row of line 8,002 "):
        records(table(tmp_path, content))
    with pytest.raises(DataError, match=r"a\.csv has a line of over "):
        records(table(tmp_path, b"id,text\n1," + b"a" * 2000))
