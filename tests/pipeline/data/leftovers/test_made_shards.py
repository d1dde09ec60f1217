"""Shards are found wherever they are below the root, with what they were made of."""

from pathlib import Path

import pytest

from pipeline.base.errors import ConfigError
from pipeline.data.leftovers.made_shards import read_made_shards
from pipeline.data.shards.manifest import INPUTS, MANIFEST
from pipeline.execution.work_directory import WORK
from pipeline.ingest.documents.parquet import extracted_hash
from tests.pipeline.data.leftovers.stored import extracted_dump, write_shards


def test_shards_and_what_they_read(tmp_path: Path) -> None:
    root = tmp_path / "root"
    path = extracted_dump(root)
    one = write_shards(root / "shards" / "one", path)
    two = write_shards(root / "arms" / "deep" / "two", path)
    other = write_shards(tmp_path / "other", path)
    linked = write_shards(tmp_path / "linked", path)
    (root / "shards" / "link").symlink_to(linked)
    (linked / WORK).mkdir()
    (one / WORK).mkdir()
    made = read_made_shards(root, [other])
    expected = sorted(map(str, [one, two, other, root / "shards" / "link"]))
    assert made.need([extracted_hash(str(path)), "another"]) == expected
    assert (made.count, made.work, made.doubts) == (4, [one / WORK], [])


def test_unfinished_and_unclear_shards_are_doubts(tmp_path: Path) -> None:
    (tmp_path / "shards" / "half" / WORK).mkdir(parents=True)
    old, damaged, unnamed = (
        write_shards(tmp_path / "shards" / name) for name in ("old", "damaged", "unnamed")
    )
    (old / INPUTS).unlink()
    (damaged / INPUTS).write_bytes(b"PAR1")
    (unnamed / MANIFEST).write_text("{}")
    assert read_made_shards(tmp_path, []).doubts == [
        f"{damaged} does not say what it was made of, and may need it",
        f"the unfinished shards in {tmp_path / 'shards/half'} may need it",
        f"{old} does not say what it was made of, and may need it",
        f"{unnamed} does not say which shards they are, and may need it",
    ]
    with pytest.raises(ConfigError, match="is not a directory of complete shards"):
        read_made_shards(tmp_path, [tmp_path / "none"])


def test_shards_belong_to_those_that_they_were_made_from(tmp_path: Path) -> None:
    one = write_shards(tmp_path / "shards" / "one")
    two = write_shards(tmp_path / "shards" / "two", parent="one")
    lineages = {"one": [str(one), str(two)], "two": [str(two)]}
    assert read_made_shards(tmp_path, []).lineages == lineages
