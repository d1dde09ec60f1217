"""Selection decisions for the documents of a task: one row per document, in reading order.

`dropped` is null, or the reason for dropping the document. `cluster` is the number, in the group,
of the document that is kept for its cluster: its own number if it is kept.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.base.errors import DataError
from pipeline.data.text.documents import DocumentBatch, DocumentCounts, read_batches
from pipeline.ingest.documents.records import Piece, ReadSpan
from pipeline.ingest.documents.unchanged import has_content

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("corpus", pa.dictionary(pa.int32(), pa.string())),
        pa.field("dropped", pa.dictionary(pa.int32(), pa.string())),
        pa.field("cluster", pa.uint32()),
    ]
)
_ROWS = 1 << 14


@dataclass(slots=True)
class Decisions:
    """The decisions of a task, read batch by batch."""

    path: Path
    rows: Iterator[pa.RecordBatch]
    ids: list[str]
    reasons: list[str | None]

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator[Decisions]:
        """Open the decisions at the first document. Raises DataError if the file does not exist."""
        try:
            # pre_buffer would read ahead the whole file, of which one batch is needed at a time
            file = pq.ParquetFile(path, pre_buffer=False)
        except (pa.ArrowException, OSError) as error:
            raise _stale(path) from error
        with file:
            yield cls(path, file.iter_batches(_ROWS, columns=["id", "dropped"]), [], [])

    def of_next(self, ids: list[str]) -> list[str | None]:
        """The reason for dropping each of the next documents; None if it is kept.

        Raises DataError if the decisions are about other documents.
        """
        # batches of decisions and of documents end at different rows
        while len(self.ids) < len(ids) and (rows := next(self.rows, None)) is not None:
            self.ids += rows["id"].to_pylist()
            self.reasons += rows["dropped"].to_pylist()
        count = len(ids)
        if self.ids[:count] != ids:  # shifted by one row, other documents would be dropped
            raise _stale(self.path)
        reasons = self.reasons[:count]
        self.ids, self.reasons = self.ids[count:], self.reasons[count:]
        return reasons

    def check_end(self) -> None:
        """Raise DataError if decisions about more documents follow."""
        if self.ids or next(self.rows, None) is not None:
            raise _stale(self.path)

    def check_content(self, pieces: tuple[Piece, ...]) -> None:
        """Raise DataError if the files changed since the decisions were made."""
        for piece, span in zip(pieces, read_spans(self.path)):  # hashes of what selection has read
            if not has_content(piece.source, [span]):
                raise DataError(
                    f"{piece.source.path} changed after its documents were selected; restore it, "
                    f"or remove {self.path.parent}, name another --output and rerun"
                )


SPANS = b"tenfold_read"
"""Metadata key of surveys and decisions: what was read of each piece."""


def spans_metadata(spans: list[ReadSpan]) -> dict[bytes, bytes]:
    """The metadata that `read_spans` reads, for a Parquet file about the pieces."""
    return {SPANS: json.dumps(spans).encode()}


def read_spans(path: Path) -> list[ReadSpan]:
    """The spans of the pieces that a survey or decisions are about."""
    return spans_in(pq.read_metadata(path))


def spans_in(about: pq.FileMetaData) -> list[ReadSpan]:
    """`read_spans` of a file whose metadata was read."""
    rows: list[list[Any]] = json.loads(about.metadata[SPANS])
    return [ReadSpan(*row) for row in rows]


def _stale(path: Path) -> DataError:
    return DataError(f"{path} does not match the current documents; remove {path.parent} and rerun")


def read_kept(
    pieces: tuple[Piece, ...],
    decisions: Path | None,
    seed: int,
    counts: DocumentCounts,
    most_characters: int = sys.maxsize,
) -> Iterator[DocumentBatch]:
    """`read_batches` without the documents that selection dropped, which are counted.

    decisions: for the documents of exactly these pieces; None: all are kept; most_characters: of a
    batch, before documents are dropped.
    """
    if decisions is None:
        yield from read_batches(pieces, seed, counts, most_characters)
        return
    with Decisions.open(decisions) as decided:
        decided.check_content(pieces)
        for batch in read_batches(pieces, seed, counts, most_characters):
            reasons = decided.of_next(batch.ids)
            sizes = (np.diff(batch.offsets) - 1).tolist()
            for id, reason, size in zip(batch.ids, reasons, sizes, strict=True):
                if reason is not None:
                    counts.leave_out(id, reason, size)
            kept = np.array([reason is None for reason in reasons])
            if kept.any():
                yield batch.only(kept)
        decided.check_end()
