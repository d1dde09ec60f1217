"""What is checked before finished parts become shards."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pipeline import inspect
from pipeline.data.shards.manifest import MANIFEST, read_manifest
from pipeline.data.tokenizers.folders import save_vocabulary
from pipeline.data.tokenizers.vocabulary import Vocabulary
from tests.pipeline.preparing import Call, Prepare, tiny, write_jsonl


@pytest.mark.parametrize("engine", ["fast", "tokenizers"])
def test_unknown_text_is_counted_reported_and_refused(
    engine: str,
    word_vocabularies: dict[str, Vocabulary],
    tmp_path: Path,
    run: Prepare,
    call: Call,
) -> None:
    """In train and held-out documents; an unspaced run of over 100 characters is one token."""
    save_vocabulary(word_vocabularies["wordpiece"], tmp_path / "tokenizer", 32)
    texts = [f"The house number {i} was old. {'ລາວ' * 40} ☃" for i in range(40)]
    lao = write_jsonl(tmp_path / "lao.jsonl", texts)
    given = (
        "--corpus", "lao", "--input", lao, "--workers", 1, "--engine", engine,
        "--set", "data.tokenizer=wordpiece", "--set", "encoder.position_offset=1",
        *tiny(tmp_path / "tokenizer", tmp_path / "out"),
    )  # fmt: skip
    message = r"corpus lao: 8\d\.\d% .* 80 \[UNK\] tokens, more than 10%; .*--allow-unknown"
    assert re.search(message, run(*given, code=2))
    assert not (tmp_path / "out" / MANIFEST).exists()
    warning = r"warning: 80 unknown tokens hide 4,840 characters, 8\d\.\d+% of the text"
    assert re.search(f"lao: {warning}", run(*given, "--allow-unknown"))
    assert re.search(f"   {warning}", call(inspect.main, tmp_path / "out", "--verify"))
    corpus = read_manifest(tmp_path / "out").corpora["lao"]
    assert corpus["unknown"] == {"tokens": 80, "characters": 40 * 121}
    assert corpus["characters"] == sum(map(len, texts)) and corpus["validation_sequences"] > 0
