"""Rows of Parquet files; column types are tested in test_arrow_tables.py."""

import hashlib
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.base.errors import DataError
from pipeline.ingest.documents.parquet import (
    group_bytes,
    read_rows,
    read_strings,
    read_table_rows,
    table_format,
    text_columns,
)
from tests.pipeline.ingest.documents.raw_files import columns, parquet


def test_rows_of_some_groups_and_strings_of_all_columns(tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    table = pa.table({"id": list(range(7)), "text": list("abcdefg"), "n": [0] * 7})
    pq.write_table(table, path, row_group_size=2)
    assert text_columns(path, ("body", "text")) == ("text",)
    assert len(group_bytes(path)) == 4 and all(size > 0 for size in group_bytes(path))
    rows = list(read_rows(path, range(1, 3), ("text",), ("url", "id")))
    assert rows == [(2, "c", (2,)), (3, "d", (3,)), (4, "e", (4,)), (5, "f", (5,))]
    assert next(read_rows(path, range(3, 4), ("text",), ())) == (6, "g", ())
    assert next(read_rows(path, range(3, 4), ("text",), ("text",))) == (6, "g", ("g",))
    # each group has its own dictionary
    path = str(tmp_path / "file")
    nested = pa.list_(pa.dictionary(pa.int32(), pa.string()))
    lists = pa.array([["b"], ["c", None], []], nested)
    table = pa.table({"a": lists, "n": [1, 2, 3], "d": list("def")})
    pq.write_table(table, path, row_group_size=1)
    content = (tmp_path / "file").read_bytes()
    assert table_format(content) == "Parquet" and table_format(b"text") == ""
    assert [*read_strings(path)] == ["b", "d", "c", "e", "f"]
    assert [*read_strings("not there", content)] == ["b", "d", "c", "e", "f"]


@pytest.mark.parametrize("sizes", [[1 << 19] * 64, [*[9] * 200, *[1 << 19] * 64]])
def test_large_texts_are_decoded_a_few_at_a_time(tmp_path: Path, sizes: list[int]) -> None:
    """64 texts of half a megabyte, all of which one batch held."""
    texts = [chr(97 + index % 26) * size for index, size in enumerate(sizes)]
    path = str(tmp_path / "large.parquet")
    pq.write_table(pa.table({"text": texts}), path, use_dictionary=False)
    found, expected = hashlib.blake2b(), hashlib.blake2b()
    for text in texts:
        expected.update(text.encode())
    del texts
    tracemalloc.start()
    for _, text, _ in read_rows(path, range(1), ("text",), ()):
        found.update(text.encode())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 << 20 and found.digest() == expected.digest()


def test_whole_rows_or_damage_in_one_line(tmp_path: Path) -> None:
    """Of Parquet, an Arrow file and an Arrow stream, or their content."""
    rows = [{"words": ["a", "b"], "n": 1}, {"words": [], "n": None}, {"words": ["c"], "n": 3}]
    path = tmp_path / "in"
    for shape in ("file", "stream", "parquet"):
        content = columns(pa.Table.from_pylist(rows), shape)
        path.write_bytes(content)
        assert [*read_table_rows(str(path))] == rows
        assert [*read_table_rows("absent", content)] == rows
        twice = pa.table([["a"], ["b"]], names=["x", "x"])
        with pytest.raises(DataError, match="in has 2 columns named 'x'"):
            [*read_table_rows("in", columns(twice, shape))]
    # pyarrow decodes names only when they are asked for
    path = tmp_path / "x.parquet"
    content = parquet(pa.table({"text": ["One."], "names": ["x"]}))
    path.write_bytes(content[:-5])
    with pytest.raises(DataError, match="is truncated or damaged"):
        [*read_table_rows(str(path))]
    path.write_bytes(content.replace(b"names", b"\xaa\xaa\xaa\xaa\xaa"))
    with pytest.raises(DataError, match=r"x\.parquet is truncated or damaged \('utf-8' codec"):
        text_columns(str(path), ("text",))
