"""The summary of selection decisions against a plain dictionary."""

import os
import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.base.errors import DataError
from pipeline.data.selection.decision_summary import DecisionSummary, newest
from pipeline.data.selection.decisions import SCHEMA

Row = tuple[str, str, "str | None", int]
"""id, corpus, drop reason, number of the document that is kept for it."""


def write(directory: Path, files: list[list[Row]]) -> Path:
    """Write decisions, one file per task."""
    directory.mkdir(parents=True)
    for number, rows in enumerate(files):
        columns = [pa.array(column) for column in zip(*rows)]
        table = pa.table(columns, names=SCHEMA.names)
        pq.write_table(table.cast(SCHEMA), directory / f"{number:06d}.parquet")
    return directory


def many(documents: int) -> list[list[Row]]:
    rng = random.Random(0)
    rows: list[Row] = []
    for number in range(documents):
        corpus = "wikipedia" if number < documents // 2 else "cc-news"
        reason, cluster = None, number
        if number and rng.random() < 0.3:
            cluster = rows[rng.randrange(number)][3]
            reason = "near-duplicate" if corpus == "cc-news" else "exact copy"
        elif rng.random() < 0.1:
            reason = "too short"
        rows.append((f"f@{number}", corpus, reason, cluster))
    third = documents // 3
    return [rows[:third], rows[third : 2 * third], rows[2 * third :]]


def test_every_reason_is_found_and_pairs_are_correct(tmp_path: Path) -> None:
    files = many(3000)
    rows = [row for file in files for row in file]
    decided = DecisionSummary.read(write(tmp_path / "d", files), pairs=50)
    for id, corpus, reason, _ in rows:
        assert decided.why(corpus, id) == (reason or "")
    assert decided.why("stories", "f@1") == "" and decided.documents == len(rows)
    dropped = Counter(decided.reasons[code] for code in decided.codes)
    assert dropped == Counter(reason for _, _, reason, _ in rows if reason)
    sizes = Counter(cluster for _, _, _, cluster in rows)
    assert decided.clusters == Counter(size for size in sizes.values() if size > 1)
    by_name = {(corpus, id): (reason, cluster) for id, corpus, reason, cluster in rows}
    assert decided.pairs == DecisionSummary.read(write(tmp_path / "e", files), 90).pairs[:50]
    assert len(decided.pairs) == 50
    for pair in decided.pairs:
        reason, cluster = by_name[pair.dropped]
        assert pair.dropped != pair.kept
        assert pair.reason == reason and rows[cluster][:2] == pair.kept[::-1]


def test_directories_without_decisions_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    rows: list[list[Row]] = [[("a", "x", None, 0), ("b", "x", None, 1)]]
    decided = DecisionSummary.read(write(tmp_path / "none" / "dropped", rows), 3)
    assert decided.why("x", "a") == "" and not decided.pairs and not decided.clusters
    with pytest.raises(DataError, match="has no decisions"):
        DecisionSummary.read(tmp_path / "a", 3)
    pq.write_table(pa.table({"text": ["x"]}), tmp_path / "a" / "0.parquet")
    with pytest.raises(DataError, match="holds files that are not decisions"):
        DecisionSummary.read(tmp_path / "a", 3)
    with pytest.raises(DataError, match="run pipeline"):
        newest(tmp_path / "b")
    for older in ("c", "none"):
        (tmp_path / older).mkdir(exist_ok=True)
        os.utime(tmp_path / older, (1, 1))
    assert newest(tmp_path) == tmp_path / "a"
