"""Positions of records, and the longest document."""

import gzip
import sys
from pathlib import Path
from typing import get_args

import pytest

from pipeline.base.errors import DataError
from pipeline.ingest.corpora.sources import corpus_sources
from pipeline.ingest.documents.records import (
    EXTRACTED,
    FORMAT_NAMES,
    MAX_DOCUMENT_BYTES,
    Piece,
    PlainText,
    check_length,
    end_of,
)
from pipeline.ingest.extraction.packs import ungrouped
from tests.golden import formats
from tests.pipeline.ingest.files import sniffed


def test_a_compressed_file_is_one_piece_and_documents_have_a_limit(tmp_path: Path) -> None:
    source = sniffed(tmp_path / "in.txt", "one\ntwo\nthree\n")
    assert end_of(Piece(source, 0, 8, 8)) == 8
    check_length(source, MAX_DOCUMENT_BYTES)
    with pytest.raises(DataError, match=r"in\.txt has a document of more than 128 MiB"):
        check_length(source, MAX_DOCUMENT_BYTES + 1)
    packed = sniffed(tmp_path / "in.gz", gzip.compress(b"one\n"))
    assert end_of(Piece(packed, 0, packed.size, packed.size)) == sys.maxsize


def test_every_format_is_recorded(tmp_path: Path) -> None:
    """In tests/golden, and every way to read plain text."""
    found = set()
    for name, files in formats.all_corpora().items():
        words = formats.ARGUMENTS.get(name, ())
        plain = str(words[1]) if "--plain-text" in words else ""
        folder = str(formats.write(files, tmp_path / name))
        for one in ungrouped(corpus_sources(formats.CORPUS, [folder], plain_text=plain)[1]):
            found.add((one.format, one.plain_text if one.format == "text" else ""))
    # packs are made of small files, when these are extracted
    assert {format for format, _ in found} == {*FORMAT_NAMES} - {EXTRACTED, "pack"}
    assert {plain for _, plain in found} - {""} == {*get_args(PlainText)} - {"book"}
