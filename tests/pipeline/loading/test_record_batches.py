"""Record batches in memory: located, loaded, dropped, and compared with the manifest."""

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pipeline.base.errors import DataError
from pipeline.data.shards import arrow_files
from pipeline.data.shards.manifest import MANIFEST, read_manifest
from pipeline.loading.dataset import Dataset
from pipeline.loading.record_batches import BUS_MESSAGE, Columns, Layout, map_file
from pipeline.loading.resolve import ROW_COLUMNS
from tests.pipeline.loading.conftest import prepare_directory
from tests.pipeline.preparing import rewrite

ROWS = ((1500,), (1024,), (300,))
SCHEMA = arrow_files.rows_schema(np.dtype(np.uint16))

CODE = """
import os, sys
from pathlib import Path
import numpy as np
from pipeline.loading.record_batches import announce_bus_errors
from pipeline.loading.dataset import Dataset
announce_bus_errors()
announce_bus_errors()
dataset = Dataset.open(Path(sys.argv[1]))
rows = np.arange(int(dataset.piece_rows.sum()))
dataset.records(rows, 0)
print("read", flush=True)
for shard in dataset.shards:
    os.truncate(dataset.directory / shard.masks[0].file, 1000)
dataset.records(rows, 0)
print("read again")
"""


def columns(directory: Path) -> Columns:
    names = [f"rows/train-{number:05}.arrow" for number in range(3)]
    files = [(name, (directory / name).stat().st_size) for name in names]
    return Columns(directory, files, Layout.of(ROWS), SCHEMA, ROW_COLUMNS)


def loaded(source: Columns) -> list[int]:
    return [int(block) for block in np.flatnonzero(source.addresses["input_ids"]["data"])]


def test_rows_are_located_in_record_batches_of_shards_and_pieces() -> None:
    layout = Layout.of(ROWS)
    assert layout.row_starts.tolist() == [0, 1024, 1500, 2524, 2824]
    assert layout.file_starts.tolist() == [0, 2, 3, 4]
    blocks, inside = layout.locate(np.array([0, 1023, 1024, 1499, 1500, 2523, 2524, 2823]))
    assert blocks.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert inside.tolist() == [0, 1023, 0, 475, 0, 1023, 0, 299]
    assert [layout.shard_of(block) for block in range(4)] == [0, 0, 1, 2]
    # pieces end in the middle of a file
    layout = Layout.of(((1500, 3), (1024,), (2, 2048, 300)))
    assert np.diff(layout.row_starts).tolist() == [1024, 476, 3, 1024, 2, 1024, 1024, 300]
    assert [layout.blocks_of(shard) for shard in range(3)] == [range(3), range(3, 4), range(4, 8)]
    assert layout.rows_of(2) == range(1500, 1503)
    blocks, inside = layout.locate(rows := np.array([1499, 1500, 1503, 2527, 2529, 4876]))
    assert blocks.tolist() == [1, 2, 3, 4, 5, 7] and inside.tolist() == [475, 0, 0, 0, 0, 300 - 1]
    assert layout.shards_of_rows(rows).tolist() == [0, 0, 1, 2, 2, 2]
    assert Layout.of(()).file_starts.tolist() == [0]


def test_damage_is_named_by_the_row_of_its_file(tmp_path: Path) -> None:
    directory = prepare_directory(tmp_path / "news", (40, (30, 1030, 5)), duplicates=1)
    dataset = Dataset.open(directory)
    for row, (name, own) in {39: ("00000", 39), 70: ("00001", 30), 1104: ("00001", 1064)}.items():
        blocks, inside = dataset._layout.locate(np.array([row]))
        said = str(dataset._rows.damage(int(blocks[0]), int(inside[0])))
        assert f"rows/train-{name}.arrow is damaged: row {own} has impossible" in said


def test_other_pieces_than_the_manifest_says(tmp_path: Path) -> None:
    """The number of record batches is the same."""
    directory = prepare_directory(tmp_path / "news", ((40, 30, 20),), duplicates=0)
    path = directory / MANIFEST
    path.write_text(path.read_text().replace("40,\n    30", "30,\n    40"))
    dataset = Dataset(directory, manifest := read_manifest(directory), manifest.of("train"))
    with pytest.raises(DataError, match="40 rows, the manifest expects 30"):
        dataset._rows.map(np.array([0]))


def test_a_shard_is_mapped_as_a_whole_when_needed(random_shards: Path) -> None:
    source = columns(random_shards)
    source.map(np.array([1, 1]))
    assert loaded(source) == [0, 1]
    before = source.addresses.copy()
    source.map(np.array([0, 3]))
    assert loaded(source) == [0, 1, 3]
    assert np.array_equal(source.addresses[:2], before[:2])
    assert source.addresses["second_segment"]["offsets"].tolist() == [0] * 4
    assert source.addresses["pair_label"]["items"][[0, 1, 3]].min() >= 300
    assert source.corpus_of(3) == "news"


def test_a_mapped_file_is_its_bytes_and_keeps_no_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 40)
    before = len([*Path("/proc/self/fd").iterdir()])
    whole = map_file(path, 10_240)
    part = whole.slice(255, 2)
    del whole
    path.unlink()
    assert part.to_pybytes() == b"\xff\x00"
    assert len([*Path("/proc/self/fd").iterdir()]) == before
    with pytest.raises(DataError, match="is missing"):
        map_file(path, 10_240)
    path.write_bytes(b"")
    with pytest.raises(DataError, match="0 bytes, the manifest says 10,240"):
        map_file(path, 10_240)
    with pytest.raises(OSError, match="Invalid argument"):
        map_file(path, 0)


def test_record_batches_used_longest_ago_are_dropped(random_shards: Path) -> None:
    source = columns(random_shards)
    with ThreadPoolExecutor(2) as pool:
        for needed, keep, expected in (
            ([0, 2], 1, [0, 2]),
            ([1], 1, [1, 2]),
            ([2], 1, [1, 2]),
            ([3], 1, [2, 3]),
            ([0], 0, [0]),
        ):
            source.request(np.array(needed), pool)
            held = source.wait(np.array(needed), pool, keep)  # else it may be freed
            assert len(held) == len(needed)
            assert loaded(source) == expected
            assert source.corpus_of(needed[0]) == "news"


@pytest.mark.parametrize("kept", [1400, 900])
def test_rows_that_are_missing_are_named(damaged: Path, kept: int) -> None:
    path = damaged / "rows/train-00000.arrow"
    rewrite(path, arrow_files.read_table(path).slice(0, kept))
    with pytest.raises(DataError, match=r"rows/train-00000\.arrow has .* prepare it again"):
        columns(damaged).map(np.array([0]))


def test_a_column_of_another_type_is_named(damaged: Path) -> None:
    path = damaged / "rows/train-00002.arrow"
    table = arrow_files.read_table(path)
    index = table.schema.get_field_index("pair_label")
    rewrite(path, table.set_column(index, "pair_label", pa.array([0] * 300, pa.int32())))
    with pytest.raises(DataError, match=r"rows/train-00002\.arrow .* pair_label of int8"):
        columns(damaged).read(3)


def test_columns_outside_the_mapping_are_refused(damaged: Path, compressed: Path) -> None:
    """Arrow decompresses, or swaps bytes, into memory that is freed while its address is kept."""
    shutil.copy(compressed / "rows/train-00001.arrow", damaged / "rows")
    source = columns(damaged)
    with pytest.raises(DataError, match=r"rows/train-00001\.arrow is compressed") as raised:
        source.map(np.array([2]))
    assert raised.value.file == damaged / "rows/train-00001.arrow"
    assert loaded(source) == []
    assert source.read(2).num_rows == 1024  # which keeps the memory


def test_a_file_that_gets_shorter_while_mapped_is_one_line(prepared: Path, tmp_path: Path) -> None:
    data = shutil.copytree(prepared, tmp_path / "data")
    result = subprocess.run(
        [sys.executable, "-c", CODE, str(data)], capture_output=True, timeout=120, check=False
    )
    assert (result.returncode, result.stdout) == (2, b"read\n")
    assert result.stderr == BUS_MESSAGE and BUS_MESSAGE.count(b"\n") == 1
