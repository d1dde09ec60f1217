from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipeline.base.errors import DataError
from pipeline.data.shards.manifest import hash_file, read_manifest
from pipeline.data.shards.token_counts import TOKEN_COUNTS, count_ids, read_counts, write_counts


def test_special_ids_are_not_counted() -> None:
    counts = count_ids(np.array([0, 1, 1, 3, 0], np.uint16), np.arange(4) < 1)
    assert counts.tolist() == [0, 2, 0, 1] and counts.dtype == np.uint64


def test_counts_are_read_as_written_or_refused(prepared: Path, tmp_path: Path) -> None:
    counts = np.array([0, 2, 1 << 40], np.uint64)
    write_counts(tmp_path, counts)
    path = tmp_path / TOKEN_COUNTS
    assert path.read_bytes()[16:] == bytes([0, 0, 0, 0, 0, 1, 0, 0])  # little-endian
    entry = {"bytes": 24, "xxh3_64": hash_file(path)}
    manifest = replace(read_manifest(prepared), files={TOKEN_COUNTS: entry})
    assert np.array_equal(read_counts(tmp_path, manifest, 3), counts)
    with pytest.raises(DataError, match="of 4 ids expected"):
        read_counts(tmp_path, manifest, 4)
    path.write_bytes(bytes(24))
    with pytest.raises(DataError, match=r"token_counts\.bin is damaged: xxh3_64"):
        read_counts(tmp_path, manifest, 3)
    path.unlink()
    with pytest.raises(DataError, match=r"token_counts\.bin is missing"):
        read_counts(tmp_path, manifest, 3)
