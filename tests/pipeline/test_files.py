"""Files are complete or absent."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.errors import DataError
from pipeline.files import write_whole


@pytest.mark.parametrize("lasting", [True, False])
def test_no_temporary_file_remains(lasting: bool, tmp_path: Path) -> None:
    write_whole(tmp_path / "a", memoryview(b"one"), lasting=lasting)
    assert (tmp_path / "a").read_bytes() == b"one"
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_whole(tmp_path / "a", b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pipeline.files.os.fsync", full)
    with pytest.raises(DataError, match="No space left on device"):
        write_whole(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["a"]
