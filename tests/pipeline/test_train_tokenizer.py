"""Training a vocabulary."""

import json
from pathlib import Path

from pipeline import train_tokenizer
from pipeline.data.tokenizers.folders import read_vocabulary
from tests.pipeline.preparing import Call


def test_the_command(tmp_path: Path, call: Call) -> None:
    given = ("--corpus", "sample", "--vocab-size", 1000, "--output", tmp_path / "out")
    more = ("--kind", "byte-bpe", "--sample-bytes", "2e5")
    assert "1,000 tokens" in call(train_tokenizer.main, *given, *more)
    assert read_vocabulary(tmp_path / "out").size == 1000
    assert "already exists; name a new folder" in call(train_tokenizer.main, *given, code=2)


def test_text_without_documents(tmp_path: Path, call: Call) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(json.dumps({"title": "no text"}) + "\n")
    error = call(train_tokenizer.main, "--corpus", path, "--output", tmp_path / "out", code=2)
    assert "no text" in error and not list((tmp_path / "out").iterdir())
