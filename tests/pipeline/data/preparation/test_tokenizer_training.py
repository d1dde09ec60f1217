"""The sample that a tokenizer is trained on: of fixed size, the same every time."""

from __future__ import annotations

from pipeline.data.preparation.tokenizer_training import sample_texts
from pipeline.data.text.documents import DocumentCounts
from pipeline.ingest.corpora.sources import corpus_sources


def test_the_sample_has_its_size_and_comes_from_everywhere() -> None:
    _, sources = corpus_sources("sample", [])
    counts = DocumentCounts()
    texts = list(sample_texts(sources, 500_000, counts))
    assert counts.documents == len(texts)
    longest = max(len(text.encode()) for text in texts)
    assert 500_000 <= counts.bytes <= 500_000 + 5 * longest
    assert texts == list(sample_texts(sources, 500_000, DocumentCounts()))
