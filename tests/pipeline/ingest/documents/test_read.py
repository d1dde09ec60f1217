"""Raw files to records: every format and compression, ranges, bad records, bad files."""

import gzip
import io
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
from pipeline.ingest.documents.records import BadRecord, Piece, Record, Source
from pipeline.ingest.documents.sniff import sniff
from tests.pipeline.ingest.documents.raw_files import (
    COMPRESS,
    LINES,
    RECORDS,
    parquet,
    records,
    source,
)


def test_parquet(tmp_path: Path) -> None:
    table = pa.table({"url": ["u", None, "w", ""], "text": ["One.", "Two.", None, "Four."]})
    found = source(tmp_path, parquet(table))
    assert (found.format, found.compression) == ("parquet", "")
    assert [(piece.start, piece.stop) for piece in cut(found, 1)] == [(0, 1), (1, 2)]
    assert [(piece.start, piece.stop) for piece in cut(found, 1 << 20)] == [(0, 2)]
    for piece_bytes in (1, 1 << 20):
        assert records(found, piece_bytes) == [
            Record("news@0", "u", "One."),
            Record("news@1", "news", "Two."),
            BadRecord("news:3", "null text"),
            Record("news@3", "news", "Four."),
        ]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary("int32", "string")])
def test_parquet_kinds_of_strings(tmp_path: Path, kind: pa.DataType) -> None:
    table = pa.table({"body": pa.array(["One."]).cast(kind), "id": [7]})
    assert records(source(tmp_path, parquet(table))) == [Record("news@0", "7", "One.")]


def test_parquet_value_that_is_not_utf8(tmp_path: Path) -> None:
    texts = pa.array([b"One.", b"caf\xe9", b"Three."]).view(pa.string())
    assert records(source(tmp_path, parquet(pa.table({"text": texts})))) == [
        Record("news@0", "news", "One."),
        BadRecord("news:2", "invalid UTF-8"),
        Record("news@2", "news", "Three."),
    ]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"story": ["One."], "n": [1]}, "no column text or body or content, only story, n"),
        ({"text": [1]}, "column text holds int64, not strings"),
    ],
)
def test_parquet_without_a_text_column(tmp_path: Path, table: dict, message: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(DataError, match=message):
        source(tmp_path, parquet(pa.table(table)))
    assert source(tmp_path, parquet(pa.table({"story": ["One."]})), text_field="story")


FULL = {"text": "Text.", "content": "Content."}
"""What the fields of a record hold, and the text that it has, or why it has none."""
FIELDS: dict[str, tuple[dict[str, Any], str | BadRecord]] = {
    "both": (FULL, "Text."),
    "null text": (FULL | {"text": None}, "Content."),
    "empty text": (FULL | {"text": ""}, ""),
    "no text": ({"content": "Content."}, "Content."),
    "text of another type": (FULL | {"text": 5}, "Content."),
    "body": (FULL | {"text": None, "body": "Body."}, "Body."),
    "null content": (FULL | {"content": None}, "Text."),
    "null and empty body": (FULL | {"text": None, "body": ""}, ""),
    "both null": ({"text": None, "content": None}, BadRecord("news:1", "null text")),
}
CHOSEN: dict[str, tuple[dict[str, Any], str | BadRecord]] = {
    "text": (FULL, "Content."),
    "null content": (FULL | {"content": None}, BadRecord("news:1", "null text")),
    "empty content": (FULL | {"content": ""}, ""),
}
CASES = {("", name): case for name, case in FIELDS.items()}
CASES |= {("content", name): case for name, case in CHOSEN.items()}


def written(format: str, fields: dict[str, Any]) -> bytes:
    """A file of one record, and one that has all fields, so that columns have their types."""
    rows = [fields, {name: 1 if value == 5 else "x" for name, value in fields.items()}]
    if format == "jsonl":
        return b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    if format == "json_array":
        return json.dumps(rows).encode()
    if format == "csv":
        cells = [
            ["1", *("" if row[name] is None else row[name] for name in fields)] for row in rows
        ]
        return "".join(
            "\t".join(map(str, row)) + "\n" for row in (["id", *fields], *cells)
        ).encode()
    table = pa.table({"id": ["1", "2"]} | {name: [row[name] for row in rows] for name in fields})
    stream = io.BytesIO()
    if format == "parquet":
        pq.write_table(table, stream)
    else:
        with pa.ipc.new_stream(stream, table.schema) as writer:
            writer.write_table(table)
    return stream.getvalue()


@pytest.mark.parametrize("format", ["jsonl", "json_array", "csv", "parquet", "arrow"])
@pytest.mark.parametrize(("text_field", "case"), CASES)
def test_one_rule_chooses_the_text(tmp_path: Path, format: str, text_field: str, case: str) -> None:
    fields, expected = CASES[text_field, case]
    if format == "csv":  # it has neither nulls nor types: each value is a string
        wanted = (text_field,) if text_field else ("text", "body", "content")
        expected = str(next(fields[name] for name in wanted if name in fields) or "")
    found = source(tmp_path, written(format, fields), text_field=text_field)
    assert found.format == format
    first, _ = records(found)
    assert (first.text if isinstance(first, Record) else first) == expected


def test_a_damaged_text_is_not_another_column_s(tmp_path: Path) -> None:
    texts = pa.array([b"caf\xe9", None, b"One."]).view(pa.string())
    table = pa.table({"text": texts, "content": ["Another.", "Two.", "Another."]})
    assert records(source(tmp_path, parquet(table))) == [
        BadRecord("news:1", "invalid UTF-8"),
        Record("news@1", "news", "Two."),
        Record("news@2", "news", "One."),
    ]


def test_several_members_frames_and_streams(tmp_path: Path) -> None:
    skippable = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"size"  # as pzstd writes
    for compression, before in (("gz", b""), ("zst", skippable), ("zst", b""), ("xz", b"")):
        parts = [COMPRESS[compression](part) for part in (LINES[:20], LINES[20:], b"")]
        assert records(source(tmp_path, before + b"".join(parts))) == RECORDS


# --- pieces

JSON_FILE = b'{"text": "One."}\n\n{"text": "Two."}\n \n{"bad\n{"text": "Three."}\n'
TEXT_FILE = b"One.\n\nTwo,\ntwo.\n \n\n\t\n  Three.\nThree.\n\n"


@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
@pytest.mark.parametrize("end", ["as it is", "no final newline"])
@pytest.mark.parametrize("content", [JSON_FILE, TEXT_FILE, b"\n\n" + TEXT_FILE])
@pytest.mark.parametrize("block", [1, 3, 1 << 22])
def test_ranges_give_each_record_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    content: bytes, end: str, newline: bytes, bom: bytes, block: int,
) -> None:  # fmt: skip
    content = bom + content.replace(b"\n", newline)
    found = source(tmp_path, content if end == "as it is" else content.rstrip(),
                   plain_text="blank_lines")  # fmt: skip
    whole = records(found)
    texts = [record.text for record in whole if isinstance(record, Record)]
    assert [text.split()[0].strip(".,") for text in texts] == ["One", "Two", "Three"]
    monkeypatch.setattr("pipeline.ingest.documents.byte_blocks.BLOCK_BYTES", block)
    monkeypatch.setattr("pipeline.ingest.documents.byte_blocks.OVERRUN_BYTES", min(block, 4))
    for piece_bytes in range(1, found.size + 2):
        assert records(found, piece_bytes) == whole
    for record in whole:  # and it is the piece in which the record begins
        if isinstance(record, Record):
            begin = int(record.id.split("@")[1])
            assert list(read(Piece(found, begin, begin + 1, 1))) == [record]


def test_what_cannot_be_cut_is_one_piece(tmp_path: Path) -> None:
    for found in (source(tmp_path, gzip.compress(LINES)), source(tmp_path, b"One.\n\nTwo.")):
        assert cut(found, 1) == [Piece(found, 0, found.size, found.size)]
    found = source(tmp_path, LINES)
    assert len(LINES) == 55
    assert cut(found, 40) == [Piece(found, 0, 40, 40), Piece(found, 40, 55, 15)]


def test_bytes_of_pieces(tmp_path: Path) -> None:
    for content in (LINES, gzip.compress(LINES), b"One.\n\nTwo."):
        found = source(tmp_path, content)
        assert sum(piece.weight for piece in cut(found, 10)) == len(content)
    # Row groups of equal size, but for the last one with half the rows.
    table = pa.table({"text": [f"{n:>5000}" for n in range(35)]})
    stream = io.BytesIO()
    pq.write_table(table, stream, row_group_size=10, compression="none", use_dictionary=False)
    found = source(tmp_path, stream.getvalue())
    sizes = [piece.weight for piece in cut(found, 1)]
    assert sum(sizes) == found.size
    assert [size * 7 / found.size for size in sizes] == pytest.approx([2, 2, 2, 1], rel=0.05)
    assert [piece.weight for piece in cut(found, 1 << 30)] == [found.size]


# --- files that cannot be used


@pytest.mark.parametrize("compression", ["gz", "zst", "xz"])
def test_truncated_and_damaged(tmp_path: Path, compression: str) -> None:
    text = b"".join(b'{"text": "%d"}\n' % (n * 7919 % 10007) for n in range(200_000))
    content = COMPRESS[compression](text)
    path = tmp_path / "file"
    found = source(tmp_path, content)
    for size in (len(content) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(DataError, match=f"{path} is truncated"):
            records(found)
    middle = len(content) // 2
    path.write_bytes(content[:middle] + bytes(64) + content[middle + 64 :])
    with pytest.raises(DataError, match=f"{path} is damaged"):
        records(found)
    path.write_bytes(content + b"not the same kind")
    with pytest.raises(DataError, match=f"{path} is damaged"):
        records(found)
    path.write_bytes(content[:10])
    with pytest.raises(DataError, match=f"{path} is (truncated|empty)"):
        sniff(path, "corpus", "news")


def test_damaged_parquet(tmp_path: Path) -> None:
    content = parquet(pa.table({"text": [f"{n:>50}" for n in range(1000)]}), 1000)
    for damaged in (content[:-1], content[: len(content) // 2], b"PAR1"):
        with pytest.raises(DataError, match="file is truncated or damaged"):
            source(tmp_path, damaged)
    found = source(tmp_path, content)
    (tmp_path / "file").write_bytes(content[:4] + bytes(500) + content[504:])
    with pytest.raises(DataError, match="file is truncated or damaged"):
        records(found)


# --- the shipped sample


def test_sample_reads_without_a_bad_record() -> None:
    folder = SAMPLE_FILES
    counts = {}
    for corpus in ("articles", "books", "news", "stories", "web"):
        found = [
            record
            for path in sorted((folder / corpus).iterdir())
            for record in records(sniff(path, corpus, f"{corpus}/{path.name}"))
        ]
        assert all(isinstance(record, Record) for record in found)
        assert len({record.id for record in found if isinstance(record, Record)}) == len(found)
        counts[corpus] = len(found)
    assert counts == {"articles": 44, "books": 3, "news": 214, "stories": 50, "web": 33}


def test_credits_name_every_sample_file() -> None:
    folder = SAMPLE_FILES
    credits = (folder / "CREDITS.md").read_text()
    files = [path.relative_to(folder).as_posix() for path in folder.glob("*/*")]
    assert len(files) >= 5
    assert [name for name in files if f"`{name}`" not in credits] == []


EDGE = 1 << 16


def text_file(path: Path, content: bytes) -> Source:
    path.write_bytes(content)
    return sniff(path, "news", "a.txt")


def test_the_place_does_not_count_but_name_size_and_ends_do(tmp_path: Path) -> None:
    content = b"".join(b"%07d\n" % number for number in range(3 * EDGE // 8))
    first = text_file(tmp_path / "a.txt", content)
    (tmp_path / "b").mkdir()
    identity = file_identity(first)
    assert file_identity(text_file(tmp_path / "b" / "c.txt", content)) == identity
    for other in (b"9" + content[1:], content[:-2] + b"9\n", content[:EDGE] + content[EDGE + 8 :]):
        assert file_identity(text_file(tmp_path / "a.txt", other)) != identity
    middle = content[:EDGE] + b"x" + content[EDGE + 1 :]
    assert file_identity(text_file(tmp_path / "a.txt", middle)) == identity  # too much to read


def test_how_a_file_is_read_counts(tmp_path: Path) -> None:
    first = text_file(tmp_path / "a.txt", b"One.\n\nTwo.\n")
    for other in (
        replace(first, corpus="web"), replace(first, licence="CC0"),
        replace(first, plain_text="blank_lines"), replace(first, text_field="body"),
    ):  # fmt: skip
        assert file_identity(other) != file_identity(first)


def test_ends_of_a_short_file_overlap(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "b").write_bytes(b"xx")
    assert file_ends(str(tmp_path / "a")) != file_ends(str(tmp_path / "b"))
