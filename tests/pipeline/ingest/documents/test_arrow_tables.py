"""Arrow files and streams by batches, every type of string, damaged and hostile files."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipeline.base.errors import DataError
from pipeline.ingest.documents import arrow_tables
from pipeline.ingest.documents.read import cut
from pipeline.ingest.documents.records import BadRecord, Record
from tests.pipeline.ingest.documents.raw_files import arrow, columns, parquet, records, source
from tests.pipeline.ingest.files import texts_of

TABLE = pa.table({
    "id": [1, 2, 3, 4, 5], "text": ["One.", "Two.", None, "Four.", "Five."],
    "m": [{"b": f"Inner {n}."} if n else None for n in range(5)],
})  # fmt: skip
KINDS = [
    pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(),
    pa.binary_view(), pa.dictionary("int32", "string"), pa.dictionary("int8", "binary"),
]  # fmt: skip


@pytest.mark.parametrize("shape", ["file", "stream", "parquet"])
def test_batches_and_row_groups_are_pieces(tmp_path: Path, shape: str) -> None:
    contents = [columns(TABLE, shape)]
    if shape != "parquet":
        contents += [arrow(TABLE, shape, compression=name) for name in ("lz4", "zstd")]
    for content in contents:
        found = source(tmp_path, content)
        assert found.format == ("parquet" if shape == "parquet" else "arrow")
        assert [(piece.start, piece.stop) for piece in cut(found, 1)] == [(0, 1), (1, 2), (2, 3)]
        assert sum(piece.weight for piece in cut(found, 1)) == found.size
        for piece_bytes in (1, 1 << 20):
            assert records(found, piece_bytes) == [
                Record("news@0", "1", "One."), Record("news@1", "2", "Two."),
                BadRecord("news:3", "null text"),
                Record("news@3", "4", "Four."), Record("news@4", "5", "Five."),
            ]  # fmt: skip


@pytest.mark.parametrize("shape", ["file", "stream", "parquet"])
def test_every_type_of_string(tmp_path: Path, shape: str) -> None:
    values = ["One.", None, "Zwei \u00e9."]
    arrays = [pa.array(values).cast(kind) for kind in KINDS]
    arrays.append(pa.ExtensionArray.from_storage(pa.json_(), pa.array(values)))
    if shape != "parquet":
        arrays.append(pa.RunEndEncodedArray.from_arrays([1, 2, 3], pa.array(values)))
    for array in arrays:
        content = columns(pa.table({"text": array}), shape, 3)
        assert records(source(tmp_path, content)) == [
            Record("news@0", "news", "One."), BadRecord("news:2", "null text"),
            Record("news@2", "news", "Zwei \u00e9."),
        ], array.type  # fmt: skip
    for kind in (pa.string(), pa.binary()):
        table = pa.table({"text": pa.array([b"One.", b"caf\xe9", b"Three."]).view(kind)})
        assert records(source(tmp_path, columns(table, shape, 3))) == [
            Record("news@0", "news", "One."), BadRecord("news:2", "invalid UTF-8"),
            Record("news@2", "news", "Three."),
        ]  # fmt: skip
    # a column in a column
    content = columns(TABLE, shape)
    first, *rest = records(source(tmp_path, content, text_field="m.b"), 1)
    assert first == BadRecord("news:1", "null text")
    assert texts_of(rest) == [f"Inner {n}." for n in range(1, 5)]
    for field in ("m.c", "m", "text.b"):
        with pytest.raises(DataError, match=f"column {field}"):
            source(tmp_path, content, text_field=field)


def test_dictionaries_and_large_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = ["a", "b", "a", "c", "b"]
    table = pa.table({"text": pa.array(values).cast(pa.dictionary("int32", "string"))})
    for shape in ("file", "stream"):
        found = source(tmp_path, arrow(table, shape))
        assert len(cut(found, 1)) == 1 and texts_of(records(found)) == values
    # large batches are mapped, or refused
    expected = records(source(tmp_path, arrow(TABLE, "stream", 5)))
    monkeypatch.setattr(arrow_tables, "_MAPPED_BYTES", 10)
    assert records(source(tmp_path, arrow(TABLE, "stream", 5))) == expected
    monkeypatch.undo()
    monkeypatch.setattr(arrow_tables, "_MOST_BYTES", 1 << 20)
    table = pa.table({"text": ["word " * 400_000]})
    with pytest.raises(DataError, match="a compressed record batch of 2 MB"):
        records(source(tmp_path, arrow(table, "file", compression="zstd")))
    assert len(records(source(tmp_path, arrow(table, "file")))) == 1


@pytest.mark.parametrize("shape", ["file", "stream"])
def test_damaged_files_are_one_line(tmp_path: Path, shape: str) -> None:
    """Cut anywhere or with random bytes in it: some error with the file's name, or records. pyarrow
    reads the first of two streams or files in a row, and nothing else."""
    content = arrow(TABLE, shape)
    rng = random.Random(0)
    cases: list[bytes] = [content[:size] for size in range(8, len(content) - 12, 13)]
    for _ in range(60):
        place = rng.randrange(8, len(content) - 8)
        cases.append(content[:place] + rng.randbytes(4) + content[place + 4 :])
    for case in cases:
        try:
            found: list[Any] = records(source(tmp_path, case))
        except DataError as error:
            assert str(tmp_path / "file") in str(error) and "\n" not in str(error)
        else:
            assert len(found) <= 5
    one, two = (arrow(pa.table({"text": [text]}), shape) for text in ("One.", "Two."))
    for content in (one + two, one + two[:-30], one + b"rubbish!"):
        with pytest.raises(DataError, match="file is truncated or damaged"):
            records(source(tmp_path, content))
    if shape == "stream":
        assert len(records(source(tmp_path, one + bytes(64)))) == 1, "padding may follow"


def test_without_a_text_column(tmp_path: Path) -> None:
    none, numbers = pa.table({"story": ["x"], "n": [1]}), pa.table({"text": [1]})
    for table, message in (
        (none, "no column text or body or content, only story, n"),
        (numbers, "column text holds int64"), (pa.table({"text": [[1]]}), "column text holds list"),
    ):  # fmt: skip
        for shape in ("file", "stream", "parquet"):
            with pytest.raises(DataError, match=message):
                source(tmp_path, columns(table, shape))
    assert source(tmp_path, parquet(none), text_field="story")
