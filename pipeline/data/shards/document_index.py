"""documents.parquet: for each document, every sequence that holds a part of it.

This answers takedown requests. All sequences from `first_sequence` to `last_sequence` hold a part
of the document. `other_sequences` are those of other documents with a random second segment from
it (NSP), and those of later draws (`data.segments.draws`). Sequence ids are the `sequence` column
of the rows.

`text_hash` is the hash of the cleaned text that decides whether the document is held out. It allows
comparing directories by text, since ids only name places in files.

Shards that `pipeline.takedown` wrote have one more column, `taken_down`: whether the tokens of the
document are pads. Such a document has no `origin` any more, since a URL often holds the title.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.base.errors import DataError
from pipeline.data.rows.sentence_rows import Rows

DOCUMENTS = "documents.parquet"
DOCUMENTS_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("corpus", pa.string()),
        pa.field("origin", pa.string()),
        pa.field("licence", pa.string()),
        pa.field("first_sequence", pa.uint64()),
        pa.field("last_sequence", pa.uint64()),
        pa.field("other_sequences", pa.list_(pa.uint64())),
        pa.field("text_hash", pa.uint64()),
    ]
)
REPEATED = ["corpus", "licence"]
"""Columns that Parquet writes with a dictionary. Ids and addresses differ, so that looking them up
in one doubles the time, and the file grows by a fifth (2026-11)."""
SEQUENCE_COLUMNS = ("first_sequence", "last_sequence", "other_sequences")
TAKEN_DOWN = "taken_down"
"""Column of shards from which documents were taken down; absent where none was."""
_FIELDS = [*(DOCUMENTS_SCHEMA.field(name) for name in SEQUENCE_COLUMNS), (TAKEN_DOWN, pa.bool_())]
# pa.array, which `empty_table` calls, imports pandas: a quarter second of every command.
_NO_DOCUMENTS = pa.Table.from_batches([], pa.schema(_FIELDS))
_ANY_SEQUENCE = (0, (1 << 64) - 1)


def is_held_out(sequences: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """[n] whether sequence ids belong to validation rows, by bit 32."""
    held_out: npt.NDArray[np.bool_] = (sequences >> np.uint64(32)) & np.uint64(1) == 1
    return held_out


def document_table(
    corpus: str,
    named: list[list[str]],
    hashes: npt.NDArray[np.uint64],
    rows: Rows,
    sequences: npt.NDArray[np.uint64],
) -> pa.Table:
    """The documents of `rows`, in order.

    named: their ids, origins and licences; hashes: [documents] of their text; sequences: [rows].
    """
    documents = len(rows.first_row)
    # by document, so that the rows of each are one stretch of `others`
    order = np.lexsort((rows.elsewhere[:, 1], rows.elsewhere[:, 0]))
    owners, others = rows.elsewhere[order].T
    offsets = np.searchsorted(owners, np.arange(documents + 1)).astype(np.int32)
    ids, origins, licences = named
    columns = [
        ids, [corpus] * documents, origins, licences,
        sequences[rows.first_row],
        sequences[rows.last_row],
        pa.ListArray.from_arrays(pa.array(offsets), pa.array(sequences[others])),
        hashes,
    ]  # fmt: skip
    return pa.table(columns, schema=DOCUMENTS_SCHEMA)


def with_taken_down(path: Path, there: list[str], names: Sequence[str]) -> list[str]:
    """Columns to read of documents.parquet: `names`, and TAKEN_DOWN if it is `there`.

    Raises DataError if one of the names is not.
    """
    if missing := set(names) - set(there):
        raise DataError(
            f"{path} has no column {min(missing)}: it is damaged, or of a version before 0.2.0; "
            "copy it again, or run pipeline.prepare into a new directory"
        )
    return [*names, *({TAKEN_DOWN} & set(there))]


class DocumentIndex:
    """documents.parquet of a directory, opened when it is first read, once per process.

    A row group holds the documents of one part of the text. The footer of thousands of them takes
    longer to parse than the few that a shard needs take to read, so the file stays open.
    """

    def __init__(self, directory: Path) -> None:
        """directory: of shards."""
        self.path = directory / DOCUMENTS

    def tables(self, names: Sequence[str] = DOCUMENTS_SCHEMA.names) -> Iterator[pa.Table]:
        """All row groups in order: the columns `names`, then TAKEN_DOWN.

        Raises DataError if the file is missing or damaged, as `documents_of` does.
        """
        for group in range(self._opened.num_row_groups):
            yield self._read(group, names)

    def documents_of(self, sequences: npt.NDArray[np.uint64]) -> pa.Table:
        """The places of a shard's documents: SEQUENCE_COLUMNS and TAKEN_DOWN, in order.

        sequences: [rows] of the shard.
        """
        found = []
        for group in self._bounds.holding(sequences[0], sequences[-1]):
            documents = self._read(group, SEQUENCE_COLUMNS)
            first = documents["first_sequence"].to_numpy()
            places = np.minimum(np.searchsorted(sequences, first), len(sequences) - 1)
            own = sequences[places] == first  # others are of other shards
            found.append(documents.filter(pa.array(own)))
        return pa.concat_tables(found) if found else _NO_DOCUMENTS

    @functools.cached_property
    def _opened(self) -> pq.ParquetFile:
        with self._named():
            return pq.ParquetFile(self.path)

    @functools.cached_property
    def _bounds(self) -> _Bounds:
        with self._named():
            with_taken_down(self.path, self._opened.schema_arrow.names, SEQUENCE_COLUMNS)
            return _Bounds.read(self._opened)

    def _read(self, group: int, names: Sequence[str]) -> pa.Table:
        with self._named():
            wanted = with_taken_down(self.path, self._opened.schema_arrow.names, names)
            # Other workers use the other cores.
            table = self._opened.read_row_group(group, columns=wanted, use_threads=False)
        if TAKEN_DOWN not in wanted:
            table = table.append_column(TAKEN_DOWN, pa.array(np.zeros(len(table), np.bool_)))
        return table.select([*names, TAKEN_DOWN])

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Name the file in errors."""
        try:
            yield
        except FileNotFoundError as error:
            raise DataError(f"{self.path} is missing; copy it again") from error
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{self.path} is damaged: {error}; copy it again") from error


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The range of `first_sequence` in each row group: arrays [row groups]."""

    least: npt.NDArray[np.uint64]
    most: npt.NDArray[np.uint64]
    least_from: npt.NDArray[np.uint64]
    """Least of this group and those after it."""
    most_until: npt.NDArray[np.uint64]
    """Most of this group and those before it."""

    @classmethod
    def read(cls, file: pq.ParquetFile) -> _Bounds:
        """Bounds by the statistics of the row groups; a group without them may hold any."""
        column = file.schema.names.index("first_sequence")
        groups = (file.metadata.row_group(group) for group in range(file.num_row_groups))
        chunks = (group.column(column).statistics for group in groups)
        ranges = [
            (chunk.min, chunk.max) if chunk is not None and chunk.has_min_max else _ANY_SEQUENCE
            for chunk in chunks
        ]
        least, most = np.array(ranges, np.uint64).reshape(-1, 2).T
        least_from = np.minimum.accumulate(least[::-1])[::-1]
        return cls(least, most, least_from, np.maximum.accumulate(most))

    def holding(self, first: np.uint64, last: np.uint64) -> list[int]:
        """The row groups that can hold a document between two sequences, in order."""
        # both bounds are monotonic, so bisection leaves few of thousands of groups
        begin = np.searchsorted(self.most_until, first)
        end = np.searchsorted(self.least_from, last, "right")
        between = slice(begin, end)
        holds = (self.least[between] <= last) & (self.most[between] >= first)
        found: list[int] = (begin + np.flatnonzero(holds)).tolist()
        return found


def verify_documents(path: Path, documents: pa.Table, file: str, rows: pa.Table) -> None:
    """Raise DataError unless each row of a shard is named by as many documents as it holds.

    path: of the index; documents: of the shard, from it; file: of the shard; rows: its table.
    """
    sequences = rows["sequence"].to_numpy()
    first, last = (documents[name].to_numpy() for name in SEQUENCE_COLUMNS[:2])
    ends = np.searchsorted(sequences, last, side="right")
    others = documents["other_sequences"].combine_chunks().flatten().to_numpy()
    # +1 where a document starts and -1 after its end: the running sum is the documents of each row
    found = np.zeros(len(sequences) + 1, np.int64)
    np.add.at(found, np.searchsorted(sequences, first), 1)  # unlike +=, counts equal places
    np.add.at(found, ends, -1)
    found = np.cumsum(found[:-1])
    # a damaged id may lie beyond the last row
    at = np.minimum(np.searchsorted(sequences, others), len(sequences) - 1)
    wrong = sequences[at] != others
    np.add.at(found, at[~wrong], 1)
    held = rows["document_starts"].combine_chunks().value_lengths().to_numpy()
    if wrong.any() or (found != held).any():
        odd = others[wrong][0] if wrong.any() else sequences[np.flatnonzero(found != held)[0]]
        raise DataError(
            f"{path} does not name the documents of sequence {odd} ({file}); run pipeline.prepare "
            "again"
        )
