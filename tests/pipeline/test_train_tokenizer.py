"""Training a vocabulary."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

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
    assert again.returncode == 2 and "already exists; name a new folder" in again.stderr  # type: ignore[attr-defined]


def test_text_without_documents(tmp_path: Path, command: Callable[..., object]) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(json.dumps({"title": "no text"}) + "\n")
    result = command("train_tokenizer", "--corpus", path, "--output", tmp_path / "out")
    assert result.returncode == 2  # type: ignore[attr-defined]
    assert "no text" in result.stderr and not list((tmp_path / "out").iterdir())  # type: ignore[attr-defined]
