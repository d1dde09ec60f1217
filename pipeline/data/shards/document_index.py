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

from collections.abc import Sequence
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
SEQUENCE_COLUMNS = ("first_sequence", "last_sequence", "other_sequences")
TAKEN_DOWN = "taken_down"
"""Column of shards from which documents were taken down; absent where none was."""


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


def documents_of(directory: Path, sequences: npt.NDArray[np.uint64]) -> pa.Table:
    """Where the documents of a shard are: SEQUENCE_COLUMNS and TAKEN_DOWN, in order.

    sequences: [rows] of the shard.
    """
    path = directory / DOCUMENTS
    names = with_taken_down(path, pq.read_schema(path).names, SEQUENCE_COLUMNS)
    within = [("first_sequence", ">=", sequences[0]), ("first_sequence", "<=", sequences[-1])]
    documents = pq.read_table(path, columns=names, filters=within)
    if TAKEN_DOWN not in names:
        documents = documents.append_column(TAKEN_DOWN, pa.array(np.zeros(len(documents), bool)))
    first = documents["first_sequence"].to_numpy()
    places = np.minimum(np.searchsorted(sequences, first), len(sequences) - 1)
    return documents.filter(pa.array(sequences[places] == first))  # others are of other shards


def verify_documents(directory: Path, file: str, rows: pa.Table) -> None:
    """Raise DataError unless each row of a shard is named by as many documents as it holds.

    file: of the shard; rows: its table.
    """
    path = directory / DOCUMENTS
    sequences = rows["sequence"].to_numpy()
    documents = documents_of(directory, sequences)
    first, last = (documents[name].to_numpy() for name in SEQUENCE_COLUMNS[:2])
    ends = np.searchsorted(sequences, last, side="right")
    others = documents["other_sequences"].combine_chunks().flatten().to_numpy()
    found = np.zeros(len(sequences) + 1, np.int64)
    np.add.at(found, np.searchsorted(sequences, first), 1)
    np.add.at(found, ends, -1)
    found = np.cumsum(found[:-1])
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
