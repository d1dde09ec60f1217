"""Giant documents are cut, others never."""

import pytest

from pipeline.data.text import giants
from pipeline.data.text.giants import MOST_CHARACTERS, RUN_CHARACTERS, in_pieces
from pipeline.ingest.documents.records import Record


def record(text: str) -> Record:
    return Record("in@7", "http://a/1", text, (("notes", 3),))


def test_ordinary_documents_stay_whole() -> None:
    """A giant word is cut into runs."""
    book = "A line of a long book, of some sixty characters in all here.\n" * 100_000
    assert len(book) > 6_000_000
    for text in ("", "word", book, "w" * RUN_CHARACTERS, "w" * (RUN_CHARACTERS - 1) + " w"):
        found = record(text)
        assert all(piece is found for piece in in_pieces(found))
    pieces = in_pieces(record("w" * (MOST_CHARACTERS * 2)))
    assert {len(piece.text) for piece in pieces} == {RUN_CHARACTERS}


def test_giant_documents_are_cut_at_white_space_if_they_have_any(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(giants, "MOST_CHARACTERS", 100)
    monkeypatch.setattr(giants, "RUN_CHARACTERS", 10)
    for text, ends in (
        ("ab cd\n" * 40, "\n"),
        ("abcd " * 60, " "),
        ("ab cd\n" * 10 + "w" * 70 + " and more. " * 9, "\n w"),
        ("中" * 200, "中"),
    ):
        found = list(in_pieces(record(text)))
        assert "".join(piece.text for piece in found) == text and len(found) > 1
        assert [piece.id for piece in found] == [f"in@7:{number}" for number in range(len(found))]
        assert {piece.origin for piece in found} == {"http://a/1"}
        assert all(len(piece.text) <= 100 and piece.text[-1] in ends for piece in found[:-1])
        assert max(len(word) for piece in found for word in piece.text.split()) < 20
