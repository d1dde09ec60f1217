"""A list is read once, and what is damaged is not used."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.data.fetching.kept_lists import LIST, Entries, kept_list
from pipeline.errors import DataError


def checked(entries: Entries) -> Entries:
    return [{"path": entry["path"]} for entry in entries]


def test_a_list_is_read_once(tmp_path: Path) -> None:
    read: list[int] = []

    def look() -> Entries:
        read.append(1)
        return [{"path": "a", "more": 1}]

    for _ in range(2):
        assert kept_list(tmp_path / "x", look, checked, recording=True) == [{"path": "a"}]
    assert len(read) == 1
    assert kept_list(tmp_path / "y", look, checked, recording=False) == [{"path": "a"}]
    assert len(read) == 2 and not (tmp_path / "y").exists()


def test_a_damaged_list_is_named(tmp_path: Path) -> None:
    for content in ("", "{", "[1]", "[{}]"):
        (tmp_path / LIST).write_text(content)
        with pytest.raises(DataError, match=r"\.list\.json is damaged; remove it"):
            kept_list(tmp_path, list, checked, recording=True)
