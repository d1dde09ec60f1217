"""Shards of every format equal those of the version that recorded them, see `formats.py`.

If a change is intended, record again with `python -m tests.golden.record formats`, and say why.
"""

import json
from pathlib import Path
from typing import get_args

import pytest

from pipeline.ingest.documents.records import EXTRACTED, FORMAT_NAMES, PlainText
from tests.golden import formats
from tests.golden.recording import GOLDEN

RECORDED = json.loads((GOLDEN / "formats.json").read_bytes())


@pytest.fixture(scope="module")
def corpora() -> dict[str, formats.Files]:
    return formats.all_corpora()


@pytest.mark.parametrize("name", RECORDED)
def test_a_format(name: str, corpora: dict[str, formats.Files], tmp_path: Path) -> None:
    """Ids, origins, counts, rows and masks of a corpus."""
    found = formats.described(formats.prepared(name, corpora[name], tmp_path))
    assert found == RECORDED[name]


def test_every_format_is_recorded(corpora: dict[str, formats.Files], tmp_path: Path) -> None:
    """And every way to read plain text."""
    assert [*RECORDED] == [*corpora]
    found = set()
    for name, files in corpora.items():
        found |= formats.formats_of(formats.write(files, tmp_path / name), name)
    # packs are made of small files, when these are extracted
    assert {format for format, _ in found} == {*FORMAT_NAMES} - {EXTRACTED, "pack"}
    assert {plain for _, plain in found} - {""} == {*get_args(PlainText)} - {"book"}
