"""Raw files to records: every format and compression, ranges, bad records, bad files."""

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.base.errors import DataError
from pipeline.ingest.corpora.sources import SAMPLE_FILES
from pipeline.ingest.documents.read import cut, file_ends, file_identity, read
from pipeline.ingest.documents.records import BadRecord, Piece, Record
from pipeline.ingest.documents.sniff import sniff
from tests.pipeline.ingest.documents.raw_files import (
    LINES,
    columns,
    in_blocks,
    parquet,
    records,
    source,
)
from tests.pipeline.ingest.files import put, sniffed, texts_of


def test_origins_and_damaged_texts_of_parquet(tmp_path: Path) -> None:
    table = pa.table({"url": ["u", None, ""], "text": ["One.", "Two.", "Three."]})
    assert records(source(tmp_path, parquet(table))) == [
        Record("news@0", "u", "One."), Record("news@1", "news", "Two."),
        Record("news@2", "news", "Three."),
    ]  # fmt: skip
    # a damaged text is not another column's
    texts = pa.array([b"caf\xe9", None, b"One."]).view(pa.string())
    table = pa.table({"text": texts, "content": ["Another.", "Two.", "Another."]})
    assert records(source(tmp_path, parquet(table))) == [
        BadRecord("news:1", "invalid UTF-8"), Record("news@1", "news", "Two."),
        Record("news@2", "news", "One."),
    ]  # fmt: skip


FULL = {"text": "Text.", "content": "Content."}
NULL = BadRecord("news:1", "null text")
CASES: list[tuple[str, dict[str, Any], str | BadRecord]] = [
    ("", FULL, "Text."),
    ("", FULL | {"text": None}, "Content."),
    ("", FULL | {"text": ""}, ""),
    ("", {"content": "Content."}, "Content."),
    ("", FULL | {"text": 5}, "Content."),
    ("", FULL | {"text": None, "body": "Body."}, "Body."),
    ("", FULL | {"content": None}, "Text."),
    ("", FULL | {"text": None, "body": ""}, ""),
    ("", {"text": None, "content": None}, NULL),
    ("content", FULL, "Content."),
    ("content", FULL | {"content": None}, NULL),
    ("content", FULL | {"content": ""}, ""),
]
"""The text field that is asked for, what the fields of a record hold, and the text that it has, or
why it has none."""


def written(format: str, fields: dict[str, Any]) -> bytes:
    """A file of one record, and one that has all fields, so that columns have their types."""
    rows = [fields, {name: 1 if value == 5 else "x" for name, value in fields.items()}]
    if format == "jsonl":
        return b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    if format == "json_array":
        return json.dumps(rows).encode()
    if format == "csv":
        cells = [["id", *fields], *(["1", *(row[name] or "" for name in fields)] for row in rows)]
        return "".join("\t".join(map(str, row)) + "\n" for row in cells).encode()
    table = pa.table({"id": ["1", "2"]} | {name: [row[name] for row in rows] for name in fields})
    return columns(table, "stream" if format == "arrow" else format)


@pytest.mark.parametrize("format", ["jsonl", "json_array", "csv", "parquet", "arrow"])
def test_one_rule_chooses_the_text(tmp_path: Path, format: str) -> None:
    for text_field, fields, expected in CASES:
        if format == "csv":  # it has neither nulls nor types: each value is a string
            wanted = (text_field,) if text_field else ("text", "body", "content")
            expected = str(next(fields[name] for name in wanted if name in fields) or "")
        found = source(tmp_path, written(format, fields), text_field=text_field)
        assert found.format == format
        first, _ = records(found)
        assert (first.text if isinstance(first, Record) else first) == expected, fields


# --- pieces

JSON_FILE = b'{"text": "One."}\n\n{"text": "Two."}\n \n{"bad\n{"text": "Three."}\n'
TEXT_FILE = b"One.\n\nTwo,\ntwo.\n \n\n\t\n  Three.\nThree.\n\n"


@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("content", [JSON_FILE, TEXT_FILE, b"\n\n" + TEXT_FILE])
@pytest.mark.parametrize("block", [1, pytest.param(3, marks=pytest.mark.slow), 1 << 22])
def test_ranges_give_each_record_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, bom: bytes, block: int
) -> None:
    for newline in (b"\n", b"\r\n"):
        whole_file = bom + content.replace(b"\n", newline)
        for given in (whole_file, whole_file.rstrip()):
            found = source(tmp_path, given, plain_text="blank_lines")
            whole = records(found)
            assert [text.split()[0].strip(".,") for text in texts_of(whole)] == [
                "One", "Two", "Three",
            ]  # fmt: skip
            with monkeypatch.context() as small:
                in_blocks(small, block, min(block, 4))
                for piece_bytes in range(1, found.size + 2):
                    assert records(found, piece_bytes) == whole
                for record in whole:  # and it is the piece in which the record begins
                    if isinstance(record, Record):
                        begin = int(record.id.split("@")[1])
                        assert list(read(Piece(found, begin, begin + 1, 1))) == [record]


def test_pieces_and_their_bytes(tmp_path: Path) -> None:
    """What cannot be cut is one piece."""
    for found in (source(tmp_path, gzip.compress(LINES)), source(tmp_path, b"One.\n\nTwo.")):
        assert cut(found, 1) == [Piece(found, 0, found.size, found.size)]
    found = source(tmp_path, LINES)
    assert len(LINES) == 55
    assert cut(found, 40) == [Piece(found, 0, 40, 40), Piece(found, 40, 55, 15)]
    assert sum(piece.weight for piece in cut(found, 10)) == 55
    # Row groups of equal size, but for the last one with half the rows.
    path = tmp_path / "file"
    table = pa.table({"text": [f"{n:>5000}" for n in range(35)]})
    pq.write_table(table, path, row_group_size=10, compression="none", use_dictionary=False)
    found = sniffed(path)
    sizes = [piece.weight for piece in cut(found, 1)]
    assert sum(sizes) == found.size
    assert [size * 7 / found.size for size in sizes] == pytest.approx([2, 2, 2, 1], rel=0.05)
    assert [piece.weight for piece in cut(found, 1 << 30)] == [found.size]


# --- files that cannot be used


def test_damaged_parquet(tmp_path: Path) -> None:
    content = parquet(pa.table({"text": [f"{n:>50}" for n in range(1000)]}), 1000)
    for damaged in (content[:-1], content[: len(content) // 2], b"PAR1"):
        with pytest.raises(DataError, match="file is truncated"):
            source(tmp_path, damaged)
    found = source(tmp_path, content)
    (tmp_path / "file").write_bytes(content[:4] + bytes(500) + content[504:])
    with pytest.raises(DataError, match="file is truncated"):
        records(found)


def test_the_shipped_sample_is_credited_and_reads_without_a_bad_record() -> None:
    counts = {}
    credits = (SAMPLE_FILES / "CREDITS.md").read_text()
    for corpus in ("articles", "books", "news", "stories", "web"):
        found = []
        for path in sorted((SAMPLE_FILES / corpus).iterdir()):
            assert f"`{corpus}/{path.name}`" in credits
            found += records(sniff(path, corpus, f"{corpus}/{path.name}"))
        assert all(isinstance(record, Record) for record in found)
        assert len({record.id for record in found if isinstance(record, Record)}) == len(found)
        counts[corpus] = len(found)
    assert counts == {"articles": 44, "books": 3, "news": 214, "stories": 50, "web": 33}
    assert {path.parent.name for path in SAMPLE_FILES.glob("*/*")} == {*counts}


EDGE = 1 << 16


def test_what_a_file_is_known_by(tmp_path: Path) -> None:
    """Its name, size, ends, and how it is read; not its place, nor what is too much to read."""
    content = b"".join(b"%07d\n" % number for number in range(3 * EDGE // 8))
    path = tmp_path / "a.txt"
    identity = file_identity(sniffed(path, content))
    assert file_identity(sniffed(tmp_path / "b" / "a.txt", content)) == identity
    for other in (b"9" + content[1:], content[:-2] + b"9\n", content[:EDGE] + content[EDGE + 8 :]):
        assert file_identity(sniffed(path, other)) != identity
    middle = content[:EDGE] + b"x" + content[EDGE + 1 :]
    assert file_identity(sniffed(path, middle)) == identity
    first = sniffed(path, b"One.\n\nTwo.\n")
    for changed in (
        replace(first, corpus="web"), replace(first, licence="CC0"), replace(first, name="b.txt"),
        replace(first, plain_text="blank_lines"), replace(first, text_field="body"),
    ):  # fmt: skip
        assert file_identity(changed) != file_identity(first)
    short = [file_ends(str(put(tmp_path / x, x))) for x in ("x", "xx")]
    assert short[0] != short[1], "ends of a short file overlap"
