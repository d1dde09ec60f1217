"""Shards are compared with the settings of a run, and with each other."""

from pathlib import Path

import pytest

from pipeline.base.errors import DataError
from pipeline.loading.compatibility import check_datasets
from pipeline.loading.dataset import Dataset
from tests.pipeline.loading.conftest import LENGTH, prepare_directory


def test_datasets_must_match_the_run(random_shards: Path, tmp_path: Path) -> None:
    other = prepare_directory(tmp_path / "books", (20,), tokenizer="bb" * 32)
    datasets = [Dataset.open(random_shards), Dataset.open(other)]
    settings = {"duplicates": 10, "sequence_length": LENGTH}
    check_datasets(datasets[:1], settings)
    with pytest.raises(DataError, match=r"duplicates=10, .* 5; .* --set data\.duplicates=10 "):
        check_datasets(datasets[:1], settings | {"duplicates": 5})
    with pytest.raises(DataError, match=r"tokenizer sha256 bbbbbbbbbbbbbbbb, .* aaaaaaaaaaaaaaaa"):
        check_datasets(datasets, settings)
    with pytest.raises(DataError, match="the run's is cccc"):
        check_datasets(datasets[:1], settings, "cc" * 32)
