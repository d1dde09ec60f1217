"""Decisions match the documents that are read, or it is an error."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.base.errors import DataError
from pipeline.data.selection.decisions import SCHEMA, Decisions

IDS = [f"a@{number}" for number in range(40_000)]


def test_decisions_match_documents_in_batches_of_any_size(tmp_path: Path) -> None:
    """Those of other, fewer or more documents do not, nor do those that are gone."""
    path = tmp_path / "000000.parquet"
    dropped = [None if i % 3 else "exact copy" for i in range(len(IDS))]
    columns = {"id": IDS, "corpus": ["news"] * len(IDS), "dropped": dropped,
               "cluster": range(len(IDS))}  # fmt: skip
    assert SCHEMA.names == [*columns], "of files that there are"
    pq.write_table(pa.table(columns).cast(SCHEMA), path)
    reasons: list[str | None] = []
    with Decisions.open(path) as decisions:
        for size in (1, 17_000, 3, 22_996):
            reasons += decisions.of_next(IDS[len(reasons) : len(reasons) + size])
        decisions.check_end()
    assert [reason is None for reason in reasons] == [bool(i % 3) for i in range(40_000)]
    assert set(reasons) == {None, "exact copy"}
    says = "does not match the current documents"
    with Decisions.open(path) as decisions:
        decisions.of_next(IDS[:10])
        with pytest.raises(DataError, match=f"{says}; remove"):
            decisions.of_next(IDS[11:20])
    with Decisions.open(path) as decisions:
        decisions.of_next(IDS[:-1])
        with pytest.raises(DataError, match=says):
            decisions.check_end()
        with pytest.raises(DataError, match=says):
            decisions.of_next([IDS[-1], "a@40000"])
    path.unlink()
    with pytest.raises(DataError, match=says), Decisions.open(path):
        pass
