"""Counts how often Parquet files are opened, and which row groups are read."""

from collections.abc import Callable
from typing import Any

import pyarrow.parquet as pq
import pytest


def count_reads(monkeypatch: pytest.MonkeyPatch) -> tuple[list[object], list[int]]:
    """From now on, an item for each footer that is parsed, and the row groups in order."""
    opened: list[object] = []
    groups: list[int] = []

    def noting(owner: Any, name: str, note: Callable[..., object]) -> None:
        function = getattr(owner, name)

        def noted(*given: Any, **named: Any) -> Any:
            note(*given)
            return function(*given, **named)

        monkeypatch.setattr(owner, name, noted)

    for owner, name in ((pq, "read_schema"), (pq, "read_table"), (pq.ParquetFile, "__init__")):
        noting(owner, name, lambda *given: opened.append(given))
    noting(pq.ParquetFile, "read_row_group", lambda _, group: groups.append(group))
    return opened, groups
