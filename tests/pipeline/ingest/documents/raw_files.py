"""Raw files for tests: how they are written, sniffed and read."""

from __future__ import annotations

import gzip
import io
import lzma
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from pipeline.ingest.documents.read import cut, read
from pipeline.ingest.documents.records import BadRecord, Record, Source
from pipeline.ingest.documents.sniff import sniff
from pipeline.ingest.documents.where import with_line

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    "gz": gzip.compress,
    "zst": zstandard.ZstdCompressor().compress,
    "xz": lzma.compress,
}


LINES = b'{"text": "One.", "url": "http://a/1"}\n{"text": "Two."}\n'


RECORDS = [Record("news@0", "http://a/1", "One."), Record("news@38", "news", "Two.")]


def source(folder: Path, content: bytes, **options: str | bool) -> Source:
    path = folder / "file"
    path.write_bytes(content)
    return sniff(path, "corpus", "news", **options)  # type: ignore[arg-type]


def records(source: Source, piece_bytes: int = 1 << 20) -> list[Record | BadRecord]:
    """The records of a file, cut into pieces; bad ones are named by line wherever the cuts are."""
    found = [record for piece in cut(source, piece_bytes) for record in read(piece)]
    return [named(record, source) if isinstance(record, BadRecord) else record for record in found]


def named(record: BadRecord, source: Source) -> BadRecord:
    return BadRecord(with_line(f"{record.where}: ", [source])[: -len(": ")], record.reason)


def parquet(table: pa.Table, rows: int = 2) -> bytes:
    stream = io.BytesIO()
    pq.write_table(table, stream, row_group_size=rows)
    return stream.getvalue()
