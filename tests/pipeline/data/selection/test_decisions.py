"""Decisions match the documents that are read, or it is an error."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.base.errors import DataError
from pipeline.data.selection.decisions import SCHEMA, Decisions

IDS = [f"a@{number}" for number in range(40_000)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Decisions that drop every third document."""
    dropped = ["exact copy" if number % 3 == 0 else None for number in range(len(IDS))]
    columns = [
        pa.array(IDS),
        pa.array(["news"] * len(IDS)).dictionary_encode(),
        pa.array(dropped).dictionary_encode(),
        pa.array(range(len(IDS)), pa.uint32()),
    ]
    pq.write_table(pa.table(columns, schema=SCHEMA), tmp_path / "000000.parquet")
    return tmp_path / "000000.parquet"


def test_batches_of_any_size(path: Path) -> None:
    reasons: list[str | None] = []
    with Decisions.open(path) as decisions:
        for size in (1, 17_000, 3, 22_996):
            reasons += decisions.of_next(IDS[len(reasons) : len(reasons) + size])
        decisions.check_end()
    assert [reason is None for reason in reasons] == [bool(i % 3) for i in range(40_000)]
    assert set(reasons) == {None, "exact copy"}


def test_other_documents(path: Path) -> None:
    with Decisions.open(path) as decisions:
        decisions.of_next(IDS[:10])
        with pytest.raises(DataError, match="does not match the current documents; remove"):
            decisions.of_next(IDS[11:20])


def test_fewer_and_more_documents(path: Path) -> None:
    with Decisions.open(path) as decisions:
        decisions.of_next(IDS[:-1])
        with pytest.raises(DataError, match="does not match the current documents"):
            decisions.check_end()
        with pytest.raises(DataError, match="does not match the current documents"):
            decisions.of_next([IDS[-1], "a@40000"])


def test_no_such_file(tmp_path: Path) -> None:
    with (
        pytest.raises(DataError, match="does not match the current documents"),
        Decisions.open(tmp_path / "000000.parquet"),
    ):
        pass
