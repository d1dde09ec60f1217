"""Plain text to documents: one per file, or with blank lines between them."""

from pathlib import Path

import pytest

from pipeline.base.errors import DataError
from pipeline.ingest.documents import byte_blocks, json_lines
from pipeline.ingest.documents import plain_text as plain_text_module
from pipeline.ingest.documents import records as records_module
from pipeline.ingest.documents.records import BadRecord, Record
from tests.pipeline.ingest.documents.raw_files import COMPRESS, in_blocks, records, source
from tests.pipeline.ingest.files import texts_of


@pytest.mark.parametrize("compression", ["", "gz"])
def test_documents_are_files_or_between_blank_lines(tmp_path: Path, compression: str) -> None:
    found = source(tmp_path, COMPRESS[compression](b"\xef\xbb\xbfOne.\r\n\r\nTwo.\r\n"))
    assert (found.format, found.compression) == ("text", compression)
    assert records(found, 1) == [Record("news@0", "news", "One.\r\n\r\nTwo.")]
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
            Record("news@0", "news", "One."), BadRecord("news:5", "invalid UTF-8"),
            Record("news@19", "news", "Three."), BadRecord("news:9", "invalid UTF-8"),
        ]  # fmt: skip
    assert records(source(tmp_path, text)) == [BadRecord("news:5", "invalid UTF-8")]
    latin = "Déjà vu, naïve café, all in an old encoding.".encode("latin-1")
    assert records(source(tmp_path, latin)) == [BadRecord("news:1", "invalid UTF-8")]


def test_what_has_no_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_module, "MAX_DOCUMENT_BYTES", 1 << 10)
    monkeypatch.setattr(byte_blocks, "BLOCK_BYTES", 1 << 8)
    for plain_text in ("file", "blank_lines"):
        found = source(tmp_path, b"word " * 1000, plain_text=plain_text)
        with pytest.raises(DataError, match="blank lines between them"):
            records(found)
    monkeypatch.setattr(json_lines, "MAX_LINE_BYTES", 10)
    monkeypatch.setattr(byte_blocks, "BLOCK_BYTES", 4)
    found = source(tmp_path, b"One.\n" + b"word " * 5 + b"\nThree.\n", plain_text="lines")
    texts = [r.text if isinstance(r, Record) else r.where for r in records(found)]
    assert texts == ["One.", "news:2", "Three."]


def test_one_document_per_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"\xef\xbb\xbfOne.\r\n\n  Two \xc3\xa9.\ncaf\xe9\nFour."
    for compression in ("", "gz"):
        found = source(tmp_path, COMPRESS[compression](text), plain_text="lines")
        for block in (1, 5, 1 << 22):
            monkeypatch.setattr(byte_blocks, "BLOCK_BYTES", block)
            for piece_bytes in range(1, found.size + 1, 7):
                assert [r for r in records(found, piece_bytes) if isinstance(r, Record)] == [
                    Record("news@0", "news", "One."), Record("news@10", "news", "Two é."),
                    Record("news@25", "news", "Four."),
                ]  # fmt: skip
            assert BadRecord("news:4", "invalid UTF-8") in records(found)


ENDS = ("\n", "\r\n", "\r", "\v", "\f", "\x85", "\u2028", "\u2029")
BLANKS = ("", " \t", "\u00a0", "\u3000 \u3000", "\u200b", "\ufeff", "\u00ad", "\u2009", "\x01")


@pytest.mark.parametrize("block", [1, 3, 1 << 16])
def test_what_cleaning_takes_for_a_line_end_and_a_blank_line_splits(
    block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever blocks and pieces end; ids are places in the file."""
    in_blocks(monkeypatch, block)
    words = ["One \u00e9.", "Two \u200a\u2027.", "Three \u2030."]
    for end in ENDS:
        for blank in BLANKS if block > 3 or end in ("\r", "\u2028") else ("\u3000",):
            gap = f"{end}{blank}{end}"
            for plain_text, text in (
                ("blank_lines", gap.join(f"{word}{end}More." for word in words)),
                ("lines", gap.join(words) + end),
            ):
                found = source(tmp_path, text.encode(), plain_text=plain_text)
                for piece_bytes in (1, 2, 7, 1000):
                    its = records(found, piece_bytes)
                    assert [clean_words(one) for one in its] == [
                        [*word.split(), *(["More."] if plain_text == "blank_lines" else [])]
                        for word in words
                    ], (end, blank, plain_text, piece_bytes)
                    assert [one.id for one in its if isinstance(one, Record)] == [
                        f"news@{len(text[: text.index(word)].encode())}" for word in words
                    ]


def clean_words(record: object) -> list[str]:
    assert isinstance(record, Record), record
    return record.text.split()


def test_giant_documents_come_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (byte_blocks, plain_text_module):
        monkeypatch.setattr(module, "PART_BYTES", 64)
    text = "So it says again and again. " * 9 + "\u00e9."
    for plain_text in ("file", "blank_lines", "lines", "book"):
        found = records(source(tmp_path, text.encode(), plain_text=plain_text))
        assert " ".join(texts_of(found)) == text
        assert len({one.id for one in found if isinstance(one, Record)}) == len(found) > 3
