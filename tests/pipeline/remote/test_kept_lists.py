"""A list is read once, and what is damaged is not used."""

from pathlib import Path

import pytest

from pipeline.base.errors import DataError
from pipeline.remote import kept_lists
from pipeline.remote.kept_lists import LIST, Entries, Keeping, kept_list, published_files


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


def test_a_damaged_or_huge_list_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damage = ("", "{", "{}", "[1]", "[{}]", "[" * 100_000, "[" + "9" * 5000, '["\\ud800"]')
    for content in (*damage, '[{"path": "a"}]'):
        if content not in damage:
            monkeypatch.setattr(kept_lists, "_MOST_BYTES", 9)
        (tmp_path / LIST).write_text(content)
        with pytest.raises(DataError, match=r"\.list\.json is damaged; remove it"):
            kept_list(tmp_path, list, checked, recording=True)


def test_files_of_a_list(tmp_path: Path) -> None:
    """Their paths are below the address, whether entries have paths or names."""
    entries = [{"path": "a/b/1", "size": 3, "version": "v"}, {"name": "2", "size": 4, "hash": "h"}]
    keeping = Keeping(downloads=tmp_path, is_kept=True)
    files = published_files("a/b", entries, keeping, base="http://x", connections=2)
    assert [(file.url, file.path, file.size, file.hash, file.version) for file in files] == [
        ("http://x/a/b/1", "a/b/1", 3, "", "v"),
        ("http://x/a/b/2", "a/b/2", 4, "h", ""),
    ]
    assert all(file.is_kept and file.connections == 2 for file in files)
