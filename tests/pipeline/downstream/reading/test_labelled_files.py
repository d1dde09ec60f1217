"""One table in every format that people have; and what is no table, in one line."""

import bz2
import csv
import gzip
import io
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from pipeline.base.errors import DataError
from pipeline.downstream.reading import labelled_files
from pipeline.downstream.reading.labelled_files import columns_shown, is_json, open_table

ROWS = [
    {"review": 'He said "no", twice; really', "stars": "neg", "by": "Ann"},
    {"review": "Zoë's film,\nwith two lines", "stars": "pos", "by": "Bo|b"},
    {"review": '"Quoted"', "stars": "pos", "by": "\u4e2d"},
]


def delimited(mark: str) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, ROWS[0], delimiter=mark, lineterminator="\n")
    writer.writeheader()
    writer.writerows(ROWS)
    return text.getvalue().encode()


def arrow(open_: Callable[..., Any]) -> bytes:
    table, sink = pa.Table.from_pylist(ROWS), io.BytesIO()
    with open_(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return sink.getvalue()


def parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(ROWS), sink, row_group_size=2)
    return sink.getvalue()


LINES = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS).encode()
FILES = {
    "x.csv": (delimited(","), "comma-separated"),
    "semicolon.csv": (delimited(";"), "semicolon-separated"),
    "windows.csv": (delimited(";").replace(b"\n", b"\r\n"), "semicolon-separated"),
    "excel.csv": (b"\xef\xbb\xbfsep=;\r\n" + delimited(";"), "semicolon-separated"),
    "mac.csv": (delimited(",").replace(b"\n", b"\r"), "comma-separated"),
    "mac.jsonl": (LINES.replace(b"\n", b"\r"), "JSON lines"),
    "bar.txt": (delimited("|"), "bar-separated"),
    "x.tsv": (delimited("\t"), "tab-separated"),
    "tab": (delimited("\t"), "tab-separated"),
    "mark.csv": (b"\xef\xbb\xbf" + delimited(","), "comma-separated"),
    "excel.txt": (delimited("\t").decode().encode("utf-16"), "tab-separated"),
    "wide.csv": (delimited(",").decode().encode("utf-16-be"), "comma-separated"),
    "x.jsonl": (LINES, "JSON lines"),
    "lines": (LINES, "JSON lines"),
    "x.json": (json.dumps(ROWS, indent=1).encode(), "JSON array"),
    "x.parquet": (parquet(), "Parquet"),
    "x.arrow": (arrow(pa.ipc.new_file), "Arrow"),
    "data-00000-of-00001.arrow": (arrow(pa.ipc.new_stream), "Arrow"),
    "x.csv.gz": (gzip.compress(delimited(",")), "comma-separated"),
    "x.jsonl.zst": (zstandard.compress(LINES), "JSON lines"),
    "x.tsv.xz": (lzma.compress(delimited("\t")), "tab-separated"),
    "x.bz2": (bz2.compress(delimited(";")), "semicolon-separated"),
    "x.parquet.gz": (gzip.compress(parquet()), "Parquet"),
}


PLACES = {"x.csv": "line 5", "x.json": "element 3", "x.parquet": "row 3"}


@pytest.mark.parametrize("name", FILES)
def test_every_format_gives_the_same_rows_and_their_places(name: str, tmp_path: Path) -> None:
    content, form = FILES[name]
    path = tmp_path / name
    path.write_bytes(content)
    table = open_table(path, ("review", "stars"))
    assert (table.form, table.columns) == (form, ("review", "stars", "by"))
    places, rows = map(list, zip(*table.rows, strict=True))
    if name in PLACES:
        assert places[-1] == f"{path} {PLACES[name]}"
    if name == "windows.csv":
        rows[1] = {**(rows[1] or {}), "review": ROWS[1]["review"]}
    assert rows == ROWS
    assert open_table(path).columns == table.columns


def test_quotes_of_a_table_are_text_unless_all_rows_then_fit(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    for lines, expected in (
        ('"Great" she said\tpos\nfine\tneg\n', '"Great" she said'),
        ('"Great, she said\tpos\nfine"\tneg\n', '"Great, she said'),
        ('"Great\tfilm"\tpos\nfine\tneg\n', "Great\tfilm"),
        ('"a ""fine"" film"\tpos\nfine\tneg\n', 'a "fine" film'),
    ):
        path.write_text(f"text\tlabel\n{lines}")
        assert next(row["text"] for _, row in open_table(path).rows if row) == expected
    path.write_text('text\tlabel\n"quoted"\tpos\n')
    ((_, row),) = open_table(path, ("text",), is_published=True).rows
    assert row == {"text": '"quoted"', "label": "pos"}


def test_what_is_no_table(tmp_path: Path) -> None:
    for name, content, message in (
        ("x.xlsx", b"PK\x03\x04rest", "zip archive"),
        ("x.csv", b"t,l\n\xff\xe9,1\n", "UTF-8: invalid start byte"),
        ("x.csv", b"\xff\xfet\0,\0l\0\n\0a", "UTF-16-LE: truncated data"),
        ("x", bytes(range(32)) * 9, "is binary"),
        ("x.json", b'[{"a": 1}, 5]', "element 2 is not"),
        ("x.json", b'[{"a": 1}, {"a"', "is not one JSON array: "),
        ("x.gz", gzip.compress(b"t,l\na,1\n" * 99)[:-9], "is truncated;"),
        ("x.parquet", parquet()[:-9], "or damaged"),
        ("x.arrow", arrow(pa.ipc.new_file)[:-300], "or damaged"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=message) as error:
            [*open_table(tmp_path / name).rows]
        assert "\n" not in str(error.value)
    with pytest.raises(DataError, match="does not exist"):
        labelled_files.read_content(tmp_path / "none")
    with pytest.raises(DataError, match="is a directory"):
        labelled_files.read_decoded(tmp_path)


def test_names() -> None:
    for name, ending in {
        "a.CSV": "csv",
        "b.tsv.gz": "tsv",
        "c.txt": "",
        "d.jsonl": "jsonl",
    }.items():
        assert labelled_files.name_ending(Path(name)) == ending
    assert is_json(Path("x"), ' {"a": 1}') and not is_json(Path("x"), "{\tO\n")
    assert columns_shown(["a"]) == "'a'"
    assert columns_shown([str(i) for i in range(14)]).endswith("'11' and 2 more")
