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
    check_length,
    end_of,
)
from pipeline.ingest.documents.sniff import sniff


def test_a_compressed_file_is_one_piece(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("one\ntwo\nthree\n")
    assert end_of(Piece(sniff(tmp_path / "in.txt", "corpus", "in.txt"), 0, 8, 8)) == 8
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
