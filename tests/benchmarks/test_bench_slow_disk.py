"""What is asked of the file system from text to a resumed training, with 2,000 splits."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.data.shards.manifest import read_manifest
from tests.benchmarks.bench_slow_disk import COMMANDS, measure, write_corpus
from tests.benchmarks.file_system_calls import metadata

MOST = {
    # a split has a shard, which has 11 files, and 7 files for the process that publishes
    "prepare, to the last split": 90,
    "prepare, publishing": 29,
    "train, first step": 13,
    "train, resumed": 13,
    "inspect --verify": 90,
}
"""Calls for metadata per shard of eleven files."""


@pytest.mark.slow
def test_calls_for_each_of_2000_splits(tmp_path: Path) -> None:
    work = tmp_path / "work"
    write_corpus(work, 2000)
    calls = {what: found for what, (_, found) in zip(COMMANDS, measure(work, 2))}
    shards = len(read_manifest(work / "shards").shards)
    assert shards > 1900
    asked = {what: metadata(found) / shards for what, found in calls.items()}
    assert {what: each for what, each in asked.items() if each > MOST[what]} == {}, asked
