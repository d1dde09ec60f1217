"""Training a vocabulary: a sample of fixed size, the same every time."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from pipeline.data.corpora.sources import corpus_sources
from pipeline.data.preparation.tokenizer import sample_texts
from pipeline.data.text.documents import DocumentCounts
from pipeline.data.tokenizers.folders import read_vocabulary


def test_the_command(tmp_path: Path, command: Callable[..., object]) -> None:
    result = command(
        "train_tokenizer", "--corpus", "sample", "--kind", "byte-bpe", "--vocab-size", 1000,
        "--sample-bytes", "2e5", "--output", tmp_path / "out",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr  # type: ignore[attr-defined]
    assert "1,000 tokens" in result.stdout  # type: ignore[attr-defined]
    assert read_vocabulary(tmp_path / "out").size == 1000
    again = command(
        "train_tokenizer", "--corpus", "sample", "--vocab-size", 1000, "--output", tmp_path / "out"
    )
    assert again.returncode == 2 and "exists already; name a new folder" in again.stderr  # type: ignore[attr-defined]


def test_the_sample_has_its_size_and_comes_from_everywhere() -> None:
    _, sources = corpus_sources("sample", [])
    counts = DocumentCounts()
    texts = list(sample_texts(sources, 500_000, counts))
    assert counts.documents == len(texts)
    longest = max(len(text.encode()) for text in texts)
    assert 500_000 <= counts.bytes <= 500_000 + 5 * longest
    assert texts == list(sample_texts(sources, 500_000, DocumentCounts()))


def test_text_without_documents(tmp_path: Path, command: Callable[..., object]) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(json.dumps({"title": "no text"}) + "\n")
    result = command("train_tokenizer", "--corpus", path, "--output", tmp_path / "out")
    assert result.returncode == 2  # type: ignore[attr-defined]
    assert "no text" in result.stderr and not list((tmp_path / "out").iterdir())  # type: ignore[attr-defined]
