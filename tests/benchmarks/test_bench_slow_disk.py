"""What is asked of the file system from text to a resumed training, with 2,000 splits."""

from pathlib import Path

import pytest

from tests.benchmarks.bench_slow_disk import COMMANDS, count_splits, measure, write_corpus
from tests.benchmarks.file_system_calls import metadata

MOST = {
    # a split has a piece, which has 11 files, and 7 files for the process that publishes
    "prepare, to the last split": 90,
    "prepare, publishing": 54,
    "train, first step": 1.4,
    "train, resumed": 1.4,
    "inspect --verify": 11,
}
"""Calls for metadata per split with rows to train on; eight share a shard of eleven files.

The last quarter of so many splits is cut into smaller tasks (FINER), and some of these have only
held-out rows, or no document: they ask, too, and do not count.
"""


@pytest.mark.slow
def test_calls_for_each_of_2000_splits(tmp_path: Path) -> None:
    work = tmp_path / "work"
    write_corpus(work, 2000)
    calls = {what: found for what, (_, found) in zip(COMMANDS, measure(work, 2))}
    splits = count_splits(work / "shards")
    assert splits > 1900
    asked = {what: metadata(found) / splits for what, found in calls.items()}
    assert {what: each for what, each in asked.items() if each > MOST[what]} == {}, asked
