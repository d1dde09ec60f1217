"""Shard files are read back as written, and keep their size limits."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import xxhash

from pipeline.base.errors import DataError
from pipeline.data.rows.masks import Masking
from pipeline.data.rows.sentence_rows import Rows
from pipeline.data.shards import arrow_files
from pipeline.data.shards.manifest import Shard
from tests.pipeline.data.small_shards import random_rows

SPECIAL = np.isin(np.arange(50_265), [0, 1, 2, 3, 50_264])
MASKING = Masking.described(
    {"scheme": "token", "rate": 0.15, "split": [0.8, 0.1]}, SPECIAL, SPECIAL, seed=0
)


def make_rows(count: int, length: int, dtype: type = np.uint16) -> Rows:
    return random_rows([length] * count, 50_000, dtype)


def table_of(rows: Rows, corpus: str = "a") -> pa.Table:
    sequences = np.arange(len(rows), dtype=np.uint64)
    content = arrow_files.encode_rows(rows, corpus, ["a", "b"], sequences, "none")
    return pa.ipc.open_file(content).read_all()


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_rows_and_masks_come_back(
    compression: arrow_files.Compression, dtype: type, tmp_path: Path
) -> None:
    rows, path = make_rows(1500, 60, dtype), tmp_path / "file"
    sequences = np.arange(7 << 32, (7 << 32) + 1500, dtype=np.uint64)
    path.write_bytes(arrow_files.encode_rows(rows, "b", ["a", "b"], sequences, compression))
    table = arrow_files.read_table(path)
    ids, offsets = arrow_files.ragged(table["input_ids"])
    assert np.array_equal(ids, rows.ids) and ids.dtype == dtype
    assert np.array_equal(offsets, rows.offsets)
    assert table["sequence"].to_pylist() == sequences.tolist()
    assert {*table["corpus"].to_pylist(), *table["pair_label"].to_pylist()} == {"b", -1}
    masks = MASKING.draw(rows.ids, rows.offsets, "b", sequences, 0)
    path.write_bytes(arrow_files.encode_masks(masks, compression))
    table = arrow_files.read_table(path)
    for column, values, offsets in (
        ("positions", masks.positions, masks.position_offsets),
        ("actions", masks.actions, masks.action_offsets),
        ("random_ids", masks.random_ids, masks.random_offsets),
    ):
        found, found_offsets = arrow_files.ragged(table[column])
        assert np.array_equal(found, values) and np.array_equal(found_offsets, offsets)


def test_ten_masks_have_the_promised_size() -> None:
    """Bytes per token at 512, overhead included."""
    rows = make_rows(4096, 512)
    sequences = np.arange(4096, dtype=np.uint64)
    drawn = list(MASKING.draw_duplicates(rows.ids, rows.offsets, "a", sequences, range(10)))
    for compression, most in (("none", 2.2), ("zstd", 1.45)):
        size = sum(len(arrow_files.encode_masks(masks, compression)) for masks in drawn)
        assert size / len(rows.ids) <= most, compression


def test_a_slice_of_a_table_is_read_from_its_own_rows() -> None:
    rows = make_rows(1500, 60)
    column = table_of(rows)["input_ids"]
    for part, first in ((column.slice(1000, 100), 1000), (column.chunk(0).slice(200, 100), 200)):
        ids, offsets = arrow_files.ragged(part)
        assert np.array_equal(ids, rows.ids[60 * first :][:6000]) and offsets[-1] == 6000


def test_record_batches_end_with_their_piece(tmp_path: Path) -> None:
    assert arrow_files.batch_rows((1500, 1024, 3)).tolist() == [1024, 476, 1024, 3]
    assert arrow_files.batch_rows((1, 2048)).tolist() == [1, 1024, 1024]
    assert arrow_files.batch_rows((0,)).tolist() == arrow_files.batch_rows(()).tolist() == []
    pieces, path = (1500, 1024, 3), tmp_path / "rows"
    tables = [table_of(make_rows(count, 9)) for count in pieces]
    arrow_files.write_tables(path, tables[0].schema, tables, "none")
    shard = Shard(
        file="", split="train", sequences=2527, tokens=0, bytes=0, xxh3_64="", masks=(),
        pieces=pieces,
    )  # fmt: skip
    for piece, table in zip(arrow_files.read_pieces(path, shard), tables, strict=True):
        assert piece.equals(table)
    for wrong in ((1500, 1023, 4), (2527,), (3, 1024, 1500), (1024, 476, 1024)):
        with pytest.raises(DataError, match="not cut into the record batches"):
            arrow_files.read_pieces(path, replace(shard, pieces=wrong))


@pytest.mark.parametrize("counts", [(700, 700, 700), (3, 2045), (1024,), (5,)])
def test_tables_of_any_length_make_batches_of_1024(counts: tuple[int, ...], tmp_path: Path) -> None:
    pieces = [table_of(make_rows(count, 60), "ab"[n % 2]) for n, count in enumerate(counts)]
    path = tmp_path / "all"
    entry = arrow_files.write_tables(path, pieces[0].schema, arrow_files.regroup(pieces), "none")
    file = pa.ipc.open_file(path)
    lengths = [len(file.get_batch(number)) for number in range(file.num_record_batches)]
    assert lengths[:-1] == [1024] * (len(lengths) - 1) and 0 < lengths[-1] <= 1024
    assert arrow_files.read_table(path).equals(pa.concat_tables(pieces))
    content = path.read_bytes()
    hashed = xxhash.xxh3_64_hexdigest(content)
    assert entry == {"file": "all", "bytes": len(content), "xxh3_64": hashed}


@pytest.mark.parametrize("name", [b"\xffnput_ids", b"input_idz"])
def test_a_file_with_other_columns_is_damaged(name: bytes, tmp_path: Path) -> None:
    """Also where a name is no text."""
    path, table = tmp_path / "rows.arrow", table_of(make_rows(3, 9))
    arrow_files.write_tables(path, table.schema, [table], "none")
    arrow_files.read_table(path)
    path.write_bytes(path.read_bytes().replace(b"input_ids", name))
    with pytest.raises(DataError, match=f"{path} is damaged: its columns"):
        arrow_files.read_table(path)
