"""Pieces of files to batches of cleaned documents; each is included or counted."""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xxhash

from pipeline.base.errors import DataError
from pipeline.data.text import documents as module
from pipeline.data.text.cleaning import CleanText, clean
from pipeline.data.text.documents import DocumentBatch, DocumentCounts, read_batches
from pipeline.ingest.documents import time_limit
from pipeline.ingest.documents.read import cut
from pipeline.ingest.documents.records import BadRecord, Piece
from pipeline.ingest.documents.sniff import sniff
from tests.pipeline.preparing import write_jsonl

TEXTS = ["One.", "  ", "Two\u00a0words.", 5, "", "One.", "Four."]


@pytest.fixture
def pieces(tmp_path: Path) -> tuple[Piece, ...]:
    path = write_jsonl(tmp_path / "in.jsonl", TEXTS)
    return tuple(cut(replace(sniff(path, "news", "in"), licence="CC0"), 1 << 20))


def texts(batch: DocumentBatch) -> list[str]:
    return CleanText(batch.buffer, batch.offsets, np.diff(batch.offsets)).texts()


def test_documents_come_cleaned_and_what_does_not_come_is_counted(
    pieces: tuple[Piece, ...],
) -> None:
    counts = DocumentCounts()
    [batch] = read_batches(pieces, 7, counts)
    assert texts(batch) == ["One.", "Two words.", "One.", "Four."]
    assert batch.licences == ["CC0"] * 4 and batch.ids[0] == "in@0"
    expected = [xxhash.xxh3_64_intdigest(text.encode(), 7) for text in texts(batch)]
    assert batch.hashes.tolist() == expected
    assert counts.dropped == {"empty": 2} and counts.bad == {"text is not a string": 1}
    assert counts.bad_example.startswith("in:4: text is not a string")


def test_batches_of_any_size_hold_the_same(
    pieces: tuple[Piece, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    [whole] = read_batches(pieces, 0, DocumentCounts())
    some = whole.only(np.array([False, True, False, True]))
    assert texts(some) == ["Two words.", "Four."] and some.ids == [whole.ids[1], whole.ids[3]]
    assert some.hashes.tolist() == whole.hashes[[1, 3]].tolist()
    assert whole.only(np.ones(4, np.bool_)) is whole
    monkeypatch.setattr(module, "BATCH_CHARACTERS", 1)
    counts = DocumentCounts()
    batches = [*read_batches(pieces, 0, counts)]
    assert [text for batch in batches for text in texts(batch)] == texts(whole)
    assert len(batches) == 4 and counts.dropped == {"empty": 2}
    assert np.concatenate([batch.hashes for batch in batches]).tolist() == whole.hashes.tolist()


def test_counts_add_up_and_are_taken_once() -> None:
    """Reasons of a function are few over all batches."""
    total, more = DocumentCounts(documents=1, bytes=10, dropped={"empty": 1}), DocumentCounts()
    more.drop("empty"), more.drop("too long")
    more.reject(BadRecord("in:3", "invalid JSON"))
    more.documents, more.bytes, more.left_out = 2, 20, 5
    total.take(more)
    assert (total.documents, total.bytes, total.left_out) == (3, 30, 5)
    assert total.dropped == {"empty": 2, "too long": 1} and total.bad == {"invalid JSON": 1}
    assert total.bad_example == "in:3: invalid JSON"
    assert more == DocumentCounts()
    total = DocumentCounts()
    with pytest.raises(DataError, match="over 4096 reasons, such as 'page 4096'"):
        for number in range(5000):
            total.take(DocumentCounts(dropped={f"page {number}": 1}))


def test_plain_text_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONG_DOCUMENT", 10)
    monkeypatch.setattr(module, "BATCH_CHARACTERS", 1)
    counts, read = DocumentCounts(), DocumentCounts()
    for name, text in (("a", "One.\n\nTwo.\n"), ("b", "Three words here.\n")):
        (tmp_path / name).write_text(text)
        found = sniff(tmp_path / name, "news", name, plain_text="blank_lines")
        for _ in read_batches(tuple(cut(found, 5)), 0, read):
            counts.take(read)
        counts.take(read)
    expected = {"files": 2, "documents": 3, "long": 1}
    assert counts.plain_text == expected
    other = DocumentCounts()
    other.take(counts)
    assert (other.plain_text, counts.plain_text) == (expected, {})


def test_a_document_that_is_cleaned_too_long_is_dropped(
    pieces: tuple[Piece, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow_clean(some: list[str]) -> CleanText:
        ends_at = time.thread_time() + 0.06 * some.count("Four.")
        while time.thread_time() < ends_at:
            pass
        return clean(some)

    [whole] = read_batches(pieces, 7, DocumentCounts())  # the kernels are compiled then
    monkeypatch.setattr(module, "clean", slow_clean)
    monkeypatch.setattr(time_limit, "SECONDS", 0.05)
    counts = DocumentCounts()
    [batch] = read_batches(pieces, 7, counts)
    assert texts(batch) == ["One.", "Two words.", "One."] and batch.ids == whole.ids[:3]
    assert counts.dropped == {"empty": 2, "over 10 s of CPU": 1}
