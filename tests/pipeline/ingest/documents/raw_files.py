"""Raw files for tests: how they are written, sniffed and read."""

import gzip
import io
import lzma
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from pipeline.ingest.documents import byte_blocks
from pipeline.ingest.documents.records import BadRecord, Dropped, Record, Source
from pipeline.ingest.documents.sniff import sniff
from pipeline.ingest.documents.where import with_line
from tests.pipeline.ingest.files import read_all

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes, "gz": gzip.compress, "zst": zstandard.compress, "xz": lzma.compress,
}  # fmt: skip
LINES = b'{"text": "One.", "url": "http://a/1"}\n{"text": "Two."}\n'
RECORDS = [Record("news@0", "http://a/1", "One."), Record("news@38", "news", "Two.")]


def source(folder: Path, content: bytes, **options: str | bool) -> Source:
    path = folder / "file"
    path.write_bytes(content)
    return sniff(path, "corpus", "news", **options)  # type: ignore[arg-type]


def records(source: Source, piece_bytes: int = 1 << 20) -> list[Record | Dropped | BadRecord]:
    """The records of a file, cut into pieces; bad ones are named by line wherever the cuts are."""
    return [
        BadRecord(with_line(f"{item.where}: ", [source])[: -len(": ")], item.reason)
        if isinstance(item, BadRecord)
        else item
        for item in read_all(source, piece_bytes=piece_bytes)
    ]


def parquet(table: pa.Table, rows: int = 2, compression: str = "snappy") -> bytes:
    stream = io.BytesIO()
    pq.write_table(table, stream, row_group_size=rows, compression=compression)
    return stream.getvalue()


def arrow(table: pa.Table, shape: str, rows: int = 2, compression: str | None = None) -> bytes:
    """shape: file or stream."""
    sink = io.BytesIO()
    create = {"file": pa.ipc.new_file, "stream": pa.ipc.new_stream}[shape]
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with create(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=rows)
    return sink.getvalue()


def columns(table: pa.Table, shape: str, rows: int = 2) -> bytes:
    """shape: parquet, file or stream."""
    return parquet(table, rows) if shape == "parquet" else arrow(table, shape, rows)


def in_blocks(monkeypatch: pytest.MonkeyPatch, size: int, overrun: int | None = None) -> None:
    """Read files some bytes at a time."""
    monkeypatch.setattr(byte_blocks, "BLOCK_BYTES", size)
    monkeypatch.setattr(byte_blocks, "OVERRUN_BYTES", overrun or size)


def count_searched(monkeypatch: pytest.MonkeyPatch, module: object, name: str) -> list[int]:
    """The bytes before each search with a pattern of a module, from where it starts."""
    pattern, sizes = getattr(module, name), list[int]()

    def counted(find: Callable[[bytes, int], Any]) -> Callable[[bytes, int], Any]:
        return lambda buffer, begin: sizes.append(len(buffer) - begin) or find(buffer, begin)

    counting = SimpleNamespace(search=counted(pattern.search), finditer=counted(pattern.finditer))
    monkeypatch.setattr(module, name, counting)
    return sizes
