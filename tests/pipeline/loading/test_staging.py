"""A staged copy is identical and complete, and holds only what was requested."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pipeline.data.shards.manifest import MANIFEST
from pipeline.errors import DataError
from pipeline.loading.dataset import Dataset
from pipeline.loading.staging import stage


def test_a_staged_copy_reads_the_same(random_shards: Path, tmp_path: Path) -> None:
    copy = stage(random_shards, tmp_path, duplicates=[0])
    assert copy == tmp_path / "news"
    assert not list(copy.glob("mask-1/*.arrow")) and not list(copy.glob(".*"))
    for path in filter(Path.is_file, copy.rglob("*")):
        original = random_shards / path.relative_to(copy)
        assert path.read_bytes() == original.read_bytes()
    assert {path.name for path in copy.iterdir()} == {MANIFEST, "rows", "mask-0"}
    rows = np.array([0, 2823])
    expected = Dataset.open(random_shards).records(rows, 0).fields
    sizes = ["tokens", "predictions"]
    staged = Dataset.open(copy)
    assert np.array_equal(staged.records(rows, 0).fields[sizes], expected[sizes])
    with pytest.raises(DataError, match=r"mask-1/train-00000\.arrow.*stage duplicate 1 too"):
        staged.records(rows, 1)
    before = {path.name: path.stat().st_mtime_ns for path in copy.glob("mask-0/*.arrow")}
    stage(random_shards, tmp_path, duplicates=[0, 1])
    assert before == {path.name: path.stat().st_mtime_ns for path in copy.glob("mask-0/*.arrow")}
    assert len(staged.records(rows, 1).fields) == 2


def test_a_copy_of_other_data_is_not_mixed_in(
    prepare: Callable[..., Path], random_shards: Path, tmp_path: Path
) -> None:
    stage(random_shards, tmp_path / "node", duplicates=[0])
    other = prepare(tmp_path / "other" / "news", (100,))
    with pytest.raises(DataError, match="holds a copy of other data"):
        stage(other, tmp_path / "node", duplicates=[0])


def test_staging_reports_the_space_it_needs(
    random_shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(DataError, match=r"0\.0 GB free, staging needs"):
        stage(random_shards, tmp_path, duplicates=[0])


def test_staging_refuses_files_that_differ(random_shards: Path, tmp_path: Path) -> None:
    damaged = Path(shutil.copytree(random_shards, tmp_path / "from" / "news"))
    content = bytearray((damaged / "rows/train-00002.arrow").read_bytes())
    content[5000] ^= 1
    (damaged / "rows/train-00002.arrow").write_bytes(content)
    with pytest.raises(DataError, match=r"rows/train-00002\.arrow is damaged"):
        stage(damaged, tmp_path / "to", duplicates=[0])
    assert not (tmp_path / "to" / "news" / "rows/train-00002.arrow").exists()
    assert not (tmp_path / "to" / "news" / MANIFEST).exists()
    with pytest.raises(DataError, match="duplicates 0 to 9"):
        stage(random_shards, tmp_path / "to", duplicates=[10])
