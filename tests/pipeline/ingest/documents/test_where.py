"""Places in messages."""

from pathlib import Path

from pipeline.ingest.documents.where import Where, with_line
from tests.pipeline.ingest.files import sniffed


def test_a_place_is_a_line_or_a_byte_and_one_byte_becomes_a_line(tmp_path: Path) -> None:
    source = sniffed(tmp_path / "in.txt", "one\ntwo\nthree\n")
    assert Where(source, 0)(2, 4) == "in.txt:2"
    assert Where(source, 8)(1, 8) == "in.txt@8"
    assert with_line("in.txt@8: bad: it is", [source]) == "in.txt:3: bad: it is"
    assert with_line("in.txt@0: bad", [source]) == "in.txt:1: bad"
    for other in ("in.txt:3: bad", "in.txt@x: bad", "other@8: bad", ""):
        assert with_line(other, [source]) == other
