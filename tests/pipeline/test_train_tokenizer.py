"""Training a vocabulary."""

import json
import random
import time
from pathlib import Path

import pytest

from pipeline import train_tokenizer
from pipeline.data.tokenizers.folders import read_vocabulary
from tests.pipeline.preparing import Call, write_jsonl


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


@pytest.mark.parametrize("kind", ["byte-bpe", "wordpiece"])
def test_long_runs_without_white_space(tmp_path: Path, call: Call, kind: str) -> None:
    """DNA, as a file of genomes has it; runs of 100,000 take over half a minute if not cut."""
    random.seed(1)
    texts = ["".join(random.choices("ACGT", k=100_000)) for _ in range(2)]
    path = write_jsonl(tmp_path / "in.jsonl", [*texts, "Words with spaces between them."])
    given = ("--corpus", path, "--kind", kind, "--vocab-size", 4000, "--output", tmp_path / "out")
    began_at = time.process_time()
    said = call(train_tokenizer.main, *given)
    assert time.process_time() - began_at < 10
    assert said.count("2 documents") == 1
    assert read_vocabulary(tmp_path / "out").size > 2000
