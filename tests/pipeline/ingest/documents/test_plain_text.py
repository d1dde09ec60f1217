"""Plain text to documents: one per file, or with blank lines between them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.base.errors import DataError
from pipeline.ingest.documents import byte_blocks
from pipeline.ingest.documents import plain_text as plain_text_module
from pipeline.ingest.documents.records import BadRecord, Record
from tests.pipeline.ingest.documents.raw_files import (
    COMPRESS,
    records,
    source,
)


@pytest.mark.parametrize("compression", COMPRESS)
def test_text_file_is_one_document(tmp_path: Path, compression: str) -> None:
    found = source(tmp_path, COMPRESS[compression](b"\xef\xbb\xbfOne.\r\n\r\nTwo.\r\n"))
    assert (found.format, found.compression) == ("text", compression)
    assert records(found, 1) == [Record("news@0", "news", "One.\r\n\r\nTwo.")]


@pytest.mark.parametrize("compression", COMPRESS)
def test_text_with_blank_lines_between_documents(tmp_path: Path, compression: str) -> None:
    text = b"\n\nOne.\nMore.\n \t\n\nTwo.\n"
    found = source(tmp_path, COMPRESS[compression](text), plain_text="blank_lines")
    assert records(found) == [
        Record("news@2", "news", "One.\nMore."), Record("news@17", "news", "Two."),
    ]  # fmt: skip


def test_bad_text_is_named_by_its_line(tmp_path: Path) -> None:
    text = b"One.\n\n\nTwo,\ncaf\xe9.\n\nThree.\n\n\xff"
    for piece_bytes in (1, 5, 1000):
        found = source(tmp_path, text, plain_text="blank_lines")
        assert records(found, piece_bytes) == [
            Record("news@0", "news", "One."),
            BadRecord("news:5", "invalid UTF-8"),
            Record("news@19", "news", "Three."),
            BadRecord("news:9", "invalid UTF-8"),
        ]
    assert records(source(tmp_path, text)) == [BadRecord("news:5", "invalid UTF-8")]


def test_latin1_text_is_a_bad_record_not_a_bad_file(tmp_path: Path) -> None:
    text = "Déjà vu, naïve café, all in an old encoding.".encode("latin-1")
    assert records(source(tmp_path, text)) == [BadRecord("news:1", "invalid UTF-8")]


def test_a_document_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.ingest.documents.records.MAX_DOCUMENT_BYTES", 1 << 10)
    monkeypatch.setattr("pipeline.ingest.documents.byte_blocks.BLOCK_BYTES", 1 << 8)
    for plain_text in ("file", "blank_lines"):
        found = source(tmp_path, b"word " * 1000, plain_text=plain_text)
        with pytest.raises(DataError, match="blank lines between them"):
            records(found)


LINES_TEXT = b"\xef\xbb\xbfOne.\r\n\n  Two \xc3\xa9.\ncaf\xe9\nFour."


@pytest.mark.parametrize("compression", COMPRESS)
@pytest.mark.parametrize("block", [1, 5, 1 << 22])
def test_one_document_per_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str, block: int
) -> None:
    found = source(tmp_path, COMPRESS[compression](LINES_TEXT), plain_text="lines")
    monkeypatch.setattr("pipeline.ingest.documents.byte_blocks.BLOCK_BYTES", block)
    for piece_bytes in range(1, found.size + 1, 7):
        kept = [r for r in records(found, piece_bytes) if isinstance(r, Record)]
        assert kept == [
            Record("news@0", "news", "One."),
            Record("news@10", "news", "Two é."),
            Record("news@25", "news", "Four."),
        ]
    assert BadRecord("news:4", "invalid UTF-8") in records(found)


def test_a_line_that_is_too_long_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.ingest.documents.json_lines.MAX_LINE_BYTES", 10)
    monkeypatch.setattr("pipeline.ingest.documents.byte_blocks.BLOCK_BYTES", 4)
    found = source(tmp_path, b"One.\n" + b"word " * 5 + b"\nThree.\n", plain_text="lines")
    texts = [r.text if isinstance(r, Record) else r.where for r in records(found)]
    assert texts == ["One.", "news:2", "Three."]


@pytest.mark.parametrize("plain_text", ["file", "blank_lines", "lines", "book"])
def test_giant_documents_come_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain_text: str
) -> None:
    for module in (byte_blocks, plain_text_module):
        monkeypatch.setattr(module, "PART_BYTES", 64)
    text = "So it says again and again. " * 9 + "\u00e9."
    found = records(source(tmp_path, text.encode(), plain_text=plain_text))
    assert " ".join(one.text for one in found if isinstance(one, Record)) == text
    assert len({one.id for one in found if isinstance(one, Record)}) == len(found) > 3
