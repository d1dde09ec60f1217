"""documents.parquet names exactly the sequences that hold a part of a document."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.base.errors import DataError
from pipeline.data.rows.pack import pack
from pipeline.data.shards.document_index import DOCUMENTS, document_table, verify_documents
from pipeline.data.tokenizers.token_ids import Tokens
from tests.pipeline.data.rows.test_pack import BOS, EOS, FORMATS, VOCABULARY, data

COUNT = 30
FIRST_ID = 10
"""The id of document 0; every token of document d is FIRST_ID + d."""


def documents() -> Tokens:
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 12, COUNT)
    lengths = rng.integers(1, 30, counts.sum())
    starts = np.concatenate([[0], np.cumsum(lengths)])
    ends = starts[np.concatenate([[0], np.cumsum(counts)])]
    ids = np.repeat(FIRST_ID + np.arange(COUNT), np.diff(ends))
    return Tokens(ids.astype(np.uint16), ends, starts[:-1])


def made(settings: str, draws: int) -> tuple[pa.Table, pa.Table, list[set[int]]]:
    """The index, columns of the rows, and the documents whose ids are in each row."""
    rows = pack(data(settings), documents(), VOCABULARY, "news", 0, draws)
    sequences = np.arange(7 << 32, (7 << 32) + len(rows), dtype=np.uint64)
    hashes = np.arange(COUNT, dtype=np.uint64) << np.uint64(50)
    table = document_table("news", [[str(d) for d in range(COUNT)]] * 3, hashes, rows, sequences)
    assert table["text_hash"].to_numpy().tolist() == hashes.tolist()
    marks = pa.ListArray.from_arrays(rows.document_offsets, rows.document_starts)
    columns = pa.table({"sequence": sequences, "document_starts": marks})
    held = [
        set((rows.ids[a:b].astype(int) - FIRST_ID).tolist()) - {BOS - FIRST_ID, EOS - FIRST_ID}
        for a, b in zip(rows.offsets, rows.offsets[1:])
    ]
    return table, columns, held


@pytest.mark.parametrize("draws", [1, 3])
@pytest.mark.parametrize("settings", FORMATS)
def test_each_document_names_the_sequences_that_hold_it(
    settings: str, draws: int, tmp_path: Path
) -> None:
    if draws > 1 and settings in FORMATS[:2]:
        pytest.skip("not drawn")
    table, columns, held = made(settings, draws)
    for document, entry in enumerate(table.to_pylist()):
        named = list(range(entry["first_sequence"], entry["last_sequence"] + 1))
        named += entry["other_sequences"]
        rows = [(7 << 32) + row for row, inside in enumerate(held) if document in inside]
        assert sorted(named) == rows
    pq.write_table(table, tmp_path / DOCUMENTS)
    verify_documents(tmp_path, "train-00000.arrow", columns)


def test_a_wrong_index_is_refused(tmp_path: Path) -> None:
    table, columns, _ = made(FORMATS[4], 1)
    entries = table.to_pylist()
    lender = next(number for number, entry in enumerate(entries) if entry["other_sequences"])
    entries[lender]["other_sequences"].pop()
    pq.write_table(pa.Table.from_pylist(entries, table.schema), tmp_path / DOCUMENTS)
    with pytest.raises(DataError, match="does not name the documents of sequence"):
        verify_documents(tmp_path, "train-00000.arrow", columns)
    entries[lender]["other_sequences"] = [1]
    pq.write_table(pa.Table.from_pylist(entries, table.schema), tmp_path / DOCUMENTS)
    with pytest.raises(DataError, match="documents of sequence 1 "):
        verify_documents(tmp_path, "train-00000.arrow", columns)
    pq.write_table(table.drop_columns(["last_sequence"]), tmp_path / DOCUMENTS)
    with pytest.raises(DataError, match="has no column last_sequence: it is damaged, or"):
        verify_documents(tmp_path, "train-00000.arrow", columns)
