"""Takes the text of documents out of extracted files, where every later `prepare` would find it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from pipeline.base.files import one_at_a_time, whole_file
from pipeline.config.settings import fingerprint
from pipeline.data.text.cleaning import clean
from pipeline.data.text.giants import in_pieces
from pipeline.execution.ledger import lock_of
from pipeline.ingest.documents.parquet import EXTRACTION_MARK, open_parquet
from pipeline.ingest.documents.records import Record
from pipeline.ingest.extraction.document_tables import open_writer

PURGED = "taken down"
"""The reason for which such a row is dropped from then on."""
_KEPT = ("file", "at", "dropped")
"""Columns of such a row; the others hold text, or say whose it was."""


def purge(path: Path, text_hashes: npt.NDArray[np.uint64], seed: int) -> int:
    """Drop every document of an extracted file with one of these texts; returns how many.

    text_hashes: of cleaned texts, as in documents.parquet; seed: of those shards. The file is
    replaced as a whole, and is another one for the fingerprints of shards. Its rows stay, and so do
    the ids of the others.
    """
    with one_at_a_time(lock_of(path)), open_parquet(str(path)) as file:
        chosen = [*_chosen(file, text_hashes, seed)]
        count = sum(int(rows.sum()) for rows in chosen)
        if not count:
            return 0
        schema = file.schema_arrow
        before = schema.metadata[EXTRACTION_MARK].decode()
        # another mark, so that shards of the file as it is now are not taken for those made before
        mark = fingerprint({"before": before, "purged": sorted(map(int, text_hashes))})
        schema = schema.with_metadata(schema.metadata | {EXTRACTION_MARK: mark.encode()})
        is_plain = file.metadata.row_group(0).column(0).compression == "UNCOMPRESSED"
        with whole_file(path) as temporary, open_writer(temporary, schema, is_plain) as writer:
            for group, rows in enumerate(chosen):
                table = file.read_row_group(group).replace_schema_metadata(schema.metadata)
                writer.write_table(_without(table, rows))
    return count


def _chosen(
    file: pq.ParquetFile, text_hashes: npt.NDArray[np.uint64], seed: int
) -> Iterator[npt.NDArray[np.bool_]]:
    """For each row group, which rows have one of the texts, or a part of it."""
    wanted = set(text_hashes.tolist())
    for group in range(file.num_row_groups):
        texts = file.read_row_group(group, ["text"])["text"].to_pylist()
        yield np.array(
            [text is not None and not wanted.isdisjoint(_hashes(text, seed)) for text in texts],
            np.bool_,
        )


def _hashes(text: str, seed: int) -> set[int]:
    """Hashes of the documents that a text becomes, see `read_batches`."""
    cleaned = clean([part.text for part in in_pieces(Record("@0", "", text))])
    view = cleaned.buffer.data
    bounds = itertools.pairwise(cleaned.offsets.tolist())
    return {xxhash.xxh3_64_intdigest(view[start : stop - 1], seed) for start, stop in bounds}


def _without(table: pa.Table, rows: npt.NDArray[np.bool_]) -> pa.Table:
    if not rows.any():
        return table
    mask = pa.array(rows)
    for number, field in enumerate(table.schema):
        if field.name not in _KEPT:
            kept = [None if gone else value for gone, value in zip(rows, table[number].to_pylist())]
            table = table.set_column(number, field, pa.array(kept, field.type))
    dropped = table.schema.get_field_index("dropped")
    reasons = pa.compute.if_else(mask, PURGED, table["dropped"])
    return table.set_column(dropped, table.schema.field(dropped), reasons)
