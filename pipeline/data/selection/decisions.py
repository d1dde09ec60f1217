"""What the group stage decided of a task's documents, a row each in the order of reading.

`dropped` is null or says why a document is left out; `cluster` is the number, in the group, of the
document that stands for it and all that are like it: its own number when it stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.data.documents.records import Piece
from pipeline.data.text.documents import DocumentBatch, DocumentCounts, read_batches
from pipeline.errors import DataError

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
    """A task's decisions, taken one batch of documents after the other."""

    path: Path
    rows: Iterator[pa.RecordBatch]
    ids: list[str]
    reasons: list[str | None]

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator[Decisions]:
        """Decisions from the first document on; DataError when there is no such file."""
        try:
            file = pq.ParquetFile(path, pre_buffer=False)
        except (pa.ArrowException, OSError) as error:
            raise _stale(path) from error
        with file:
            yield cls(path, file.iter_batches(_ROWS, columns=["id", "dropped"]), [], [])

    def of_next(self, ids: list[str]) -> list[str | None]:
        """Why each of the documents that are read next is left out; None for those that stay.

        DataError when these are not the documents that the decisions are about.
        """
        while len(self.ids) < len(ids) and (rows := next(self.rows, None)) is not None:
            self.ids += rows["id"].to_pylist()
            self.reasons += rows["dropped"].to_pylist()
        count = len(ids)
        if self.ids[:count] != ids:
            raise _stale(self.path)
        reasons = self.reasons[:count]
        self.ids, self.reasons = self.ids[count:], self.reasons[count:]
        return reasons

    def check_end(self) -> None:
        """DataError when there are decisions about further documents."""
        if self.ids or next(self.rows, None) is not None:
            raise _stale(self.path)


def _stale(path: Path) -> DataError:
    return DataError(
        f"{path} is not about the documents that are there now; remove {path.parent} and run again"
    )


def read_kept(
    pieces: tuple[Piece, ...], decisions: Path | None, seed: int, counts: DocumentCounts
) -> Iterator[DocumentBatch]:
    """`read_batches` without what the group stage left out, which is counted, too.

    decisions: about the documents of just these pieces; None: all of them stay.
    """
    batches = read_batches(pieces, seed, counts)
    if decisions is None:
        yield from batches
        return
    with Decisions.open(decisions) as decided:
        for batch in batches:
            reasons = decided.of_next(batch.ids)
            for reason in filter(None, reasons):
                counts.drop(reason)
            kept = np.array([reason is None for reason in reasons])
            counts.left_out += int((np.diff(batch.offsets) - 1)[~kept].sum())
            if kept.any():
                yield batch.only(kept)
        decided.check_end()
