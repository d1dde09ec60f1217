"""Positions of records, and the longest document."""

import gzip
import sys
from pathlib import Path

import pytest

from pipeline.base.errors import DataError
from pipeline.ingest.documents.records import MAX_DOCUMENT_BYTES, Piece, check_length, end_of
from tests.pipeline.ingest.files import sniffed


def test_a_compressed_file_is_one_piece_and_documents_have_a_limit(tmp_path: Path) -> None:
    source = sniffed(tmp_path / "in.txt", "one\ntwo\nthree\n")
    assert end_of(Piece(source, 0, 8, 8)) == 8
    check_length(source, MAX_DOCUMENT_BYTES)
    with pytest.raises(DataError, match=r"in\.txt has a document of more than 128 MiB"):
        check_length(source, MAX_DOCUMENT_BYTES + 1)
    packed = sniffed(tmp_path / "in.gz", gzip.compress(b"one\n"))
    assert end_of(Piece(packed, 0, packed.size, packed.size)) == sys.maxsize
