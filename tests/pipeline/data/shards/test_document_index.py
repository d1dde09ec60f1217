"""documents.parquet names exactly the sequences that hold a part of a document."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.base.errors import DataError
from pipeline.data.rows.pack import pack
from pipeline.data.shards.document_index import (
    DOCUMENTS,
    DOCUMENTS_SCHEMA,
    DocumentIndex,
    document_table,
    verify_documents,
)
from tests.pipeline.data.parquet_reads import count_reads
from tests.pipeline.data.rows.test_pack import BOS, EOS, FORMATS, SIZE, VOCABULARY, data
from tests.pipeline.data.rows.toys import FIRST_ID, lists, random_tokens, with_own_ids

COUNT = 30


def made(settings: str, draws: int) -> tuple[pa.Table, pa.Table, list[set[int]]]:
    """The index, columns of the rows, and the documents whose ids are in each row."""
    source = with_own_ids(random_tokens(COUNT, 20, 30, SIZE))
    rows = pack(data(settings), source, VOCABULARY, "news", 0, draws)
    sequences = np.arange(7 << 32, (7 << 32) + len(rows), dtype=np.uint64)
    hashes = np.arange(COUNT, dtype=np.uint64) << np.uint64(50)
    table = document_table("news", [[str(d) for d in range(COUNT)]] * 3, hashes, rows, sequences)
    assert table["text_hash"].to_numpy().tolist() == hashes.tolist()
    marks = pa.ListArray.from_arrays(rows.document_offsets, rows.document_starts)
    columns = pa.table({"sequence": sequences, "document_starts": marks})
    held = [{id - FIRST_ID for id in row if id not in (BOS, EOS)} for row in lists(rows)]
    return table, columns, held


def compare(directory: Path, table: pa.Table, columns: pa.Table) -> None:
    pq.write_table(table, directory / DOCUMENTS)
    index = DocumentIndex(directory)
    found = index.documents_of(columns["sequence"].to_numpy())
    verify_documents(index.path, found, "train-00000.arrow", columns)


@pytest.mark.parametrize("settings", FORMATS)
def test_each_document_names_the_sequences_that_hold_it(settings: str, tmp_path: Path) -> None:
    for draws in (1,) if settings in FORMATS[:2] else (1, 3):
        table, columns, held = made(settings, draws)
        for document, entry in enumerate(table.to_pylist()):
            named = list(range(entry["first_sequence"], entry["last_sequence"] + 1))
            named += entry["other_sequences"]
            rows = [(7 << 32) + row for row, inside in enumerate(held) if document in inside]
            assert sorted(named) == rows, draws
        compare(tmp_path, table, columns)


def test_a_wrong_index_is_refused(tmp_path: Path) -> None:
    table, columns, _ = made(FORMATS[4], 1)
    entries = table.to_pylist()
    lender = next(number for number, entry in enumerate(entries) if entry["other_sequences"])
    entries[lender]["other_sequences"].pop()
    with pytest.raises(DataError, match="does not name the documents of sequence"):
        compare(tmp_path, pa.Table.from_pylist(entries, table.schema), columns)
    entries[lender]["other_sequences"] = [1]
    with pytest.raises(DataError, match="documents of sequence 1 "):
        compare(tmp_path, pa.Table.from_pylist(entries, table.schema), columns)
    with pytest.raises(DataError, match="has no column last_sequence"):
        compare(tmp_path, table.drop_columns(["last_sequence"]), columns)


def write_groups(directory: Path, groups: list[list[int]], **options: object) -> DocumentIndex:
    """documents.parquet whose row groups hold documents of one sequence each."""
    with pq.ParquetWriter(directory / DOCUMENTS, DOCUMENTS_SCHEMA, **options) as writer:
        for group in groups:
            rows = [{"id": str(n), "first_sequence": n, "last_sequence": n} for n in group]
            writer.write_table(pa.Table.from_pylist(rows, DOCUMENTS_SCHEMA))
    return DocumentIndex(directory)


@pytest.mark.parametrize("parts", [5, 200])
def test_a_shard_costs_the_same_however_many_parts_there_are(
    parts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts have train documents, then held-out ones, as those of prepare."""
    opened, read = count_reads(monkeypatch)
    bases = [part << 33 for part in range(parts)]
    held_out = [base | 1 << 32 for base in bases]
    groups = [[base, base + 1, held] for base, held in zip(bases, held_out)]
    index = write_groups(tmp_path, groups)
    for base in bases[:4]:
        found = index.documents_of(np.array([base, base + 1], np.uint64))
        assert found["first_sequence"].to_pylist() == [base, base + 1]
    assert (len(opened), read) == (1, [0, 1, 2, 3])
    found = index.documents_of(np.array(held_out[2:4], np.uint64))
    assert found["first_sequence"].to_pylist() == held_out[2:4]
    assert (len(opened), read[4:]) == (1, [2, 3])


@pytest.mark.parametrize("statistics", [True, False])
def test_row_groups_in_any_order(statistics: bool, tmp_path: Path) -> None:
    """Also empty ones, and sequences of 64 bits."""
    rng = np.random.default_rng(0)
    top = (1 << 64) - 100
    values = rng.permutation(60).reshape(20, 3)
    groups = [[], *([top + int(value) for value in group] for group in values), []]
    index = write_groups(tmp_path, groups, write_statistics=statistics)
    for _ in range(50):
        low, high = sorted(rng.integers(0, 62, 2).tolist())
        sequences = np.arange(low, high + 1, dtype=np.uint64) + np.uint64(top)
        found = index.documents_of(sequences)["first_sequence"].to_pylist()
        assert found == [first for group in groups for first in group if first in set(sequences)]


def test_documents_that_cannot_be_read(tmp_path: Path) -> None:
    rows = np.array([1, 2], np.uint64)
    write_groups(tmp_path, [[1, 2]])
    path = tmp_path / DOCUMENTS
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(DataError, match="is damaged"):
        DocumentIndex(tmp_path).documents_of(rows)
    path.unlink()
    with pytest.raises(DataError, match="is missing"):
        DocumentIndex(tmp_path).documents_of(rows)
