"""Counts how often Parquet files are opened, and which row groups are read."""

from dataclasses import dataclass, field
from typing import Any

import pyarrow.parquet as pq
import pytest


@dataclass(slots=True)
class Reads:
    """What this process has read of Parquet files."""

    opened: int = 0
    """Files whose footer was parsed, however they were read."""
    groups: list[int] = field(default_factory=list)
    """Row groups in the order they were read."""


def count_reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """What is read from now on."""
    found = Reads()

    def opening(function: Any) -> Any:
        def counted(*given: Any, **named: Any) -> Any:
            found.opened += 1
            return function(*given, **named)

        return counted

    read_group = pq.ParquetFile.read_row_group

    def read(self: Any, group: int, **named: Any) -> Any:
        found.groups.append(group)
        return read_group(self, group, **named)

    monkeypatch.setattr(pq, "read_schema", opening(pq.read_schema))
    monkeypatch.setattr(pq, "read_table", opening(pq.read_table))
    monkeypatch.setattr(pq.ParquetFile, "__init__", opening(pq.ParquetFile.__init__))
    monkeypatch.setattr(pq.ParquetFile, "read_row_group", read)
    return found
