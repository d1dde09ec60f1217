"""Positions of records, and the longest document."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import pytest

from pipeline.base.errors import DataError
from pipeline.ingest.documents.records import (
    MAX_DOCUMENT_BYTES,
    Piece,
    Where,
    check_length,
    end_of,
    with_line,
)
from pipeline.ingest.documents.sniff import sniff


def test_a_place_is_a_line_or_a_byte_and_one_byte_becomes_a_line(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_text("one\ntwo\nthree\n")
    source = sniff(path, "corpus", "in.txt")
    assert Where(source, 0)(2, 4) == "in.txt:2"
    assert Where(source, 8)(1, 8) == "in.txt@8"
    assert with_line("in.txt@8: bad: it is", [source]) == "in.txt:3: bad: it is"
    assert with_line("in.txt@0: bad", [source]) == "in.txt:1: bad"
    for other in ("in.txt:3: bad", "in.txt@x: bad", "other@8: bad", ""):
        assert with_line(other, [source]) == other
    assert end_of(Piece(source, 0, 8, 8)) == 8


def test_a_compressed_file_is_one_piece(tmp_path: Path) -> None:
    path = tmp_path / "in.gz"
    path.write_bytes(gzip.compress(b"one\n"))
    source = sniff(path, "corpus", "in.gz")
    assert end_of(Piece(source, 0, source.size, source.size)) == sys.maxsize


def test_the_longest_document(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_text("one\n")
    source = sniff(path, "corpus", "in.txt")
    check_length(source, MAX_DOCUMENT_BYTES)
    with pytest.raises(DataError, match=r"in\.txt has a document of more than 128 MiB"):
        check_length(source, MAX_DOCUMENT_BYTES + 1)
