"""documents.parquet: for each document, every sequence that holds a part of it.

So it is known which rows hold a text that someone wants removed. All sequences from
`first_sequence` to `last_sequence` hold a part of the document. `other_sequences` are those of
other documents with a random second segment from it (NSP), and those of later draws
(`data.segments.draws`). Sequence ids are the `sequence` column of the rows.

`text_hash` is the hash of the cleaned text that decides whether the document is held out. It allows
comparing directories by text, since ids only name places in files.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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


def require_columns(path: Path, there: list[str], names: Sequence[str]) -> None:
    """Raise DataError unless documents.parquet, which has the columns `there`, has all `names`."""
    if missing := set(names) - set(there):
        raise DataError(
            f"{path} has no column {min(missing)}: it is damaged, or of a version before 0.2.0; "
            "copy it again, or run pipeline.prepare into a new directory"
        )


class DocumentIndex:
    """documents.parquet of a directory, opened when it is first read, once per process.

    A row group holds the documents of one part of the text. The footer of thousands of them takes
    longer to parse than the few that a shard needs take to read, so the file stays open.
    """

    def __init__(self, directory: Path) -> None:
        """directory: of shards."""
        self.path = directory / DOCUMENTS

    def documents_of(
        self, sequences: npt.NDArray[np.uint64], names: Sequence[str] = SEQUENCE_COLUMNS
    ) -> pa.Table:
        """The documents whose first row is one of these, in order: the columns `names`.

        sequences: [rows], ascending. Raises DataError if the file is missing, damaged or lacks a
        column.
        """
        found = []
        with self._named():
            least, most = self._bounds
            for group in np.flatnonzero((least <= sequences[-1]) & (most >= sequences[0])).tolist():
                # other workers use the other cores
                documents = self._opened.read_row_group(group, columns=names, use_threads=False)
                first = documents["first_sequence"].to_numpy()
                places = np.minimum(np.searchsorted(sequences, first), len(sequences) - 1)
                found.append(documents.filter(pa.array(sequences[places] == first)))
        schema = pa.schema([DOCUMENTS_SCHEMA.field(name) for name in names])
        # not pa.concat_tables([]) or empty_table, which import pandas: a quarter second
        return pa.concat_tables(found) if found else pa.Table.from_batches([], schema)

    @functools.cached_property
    def _opened(self) -> pq.ParquetFile:
        file = pq.ParquetFile(self.path)
        require_columns(self.path, file.schema_arrow.names, SEQUENCE_COLUMNS)
        return file

    @functools.cached_property
    def _bounds(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
        """[row groups] least and most `first_sequence`; a group without statistics may hold any."""
        file = self._opened
        column = file.schema.names.index("first_sequence")
        groups = (file.metadata.row_group(group) for group in range(file.num_row_groups))
        chunks = (group.column(column).statistics for group in groups)
        ranges = [
            (chunk.min, chunk.max) if chunk is not None and chunk.has_min_max else _ANY_SEQUENCE
            for chunk in chunks
        ]
        least, most = np.array(ranges, np.uint64).reshape(-1, 2).T
        return least, most

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Name the file in errors."""
        try:
            yield
        except FileNotFoundError as error:
            raise DataError(f"{self.path} is missing; copy it again") from error
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{self.path} is damaged: {error}; copy it again") from error


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
