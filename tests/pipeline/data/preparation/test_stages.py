"""The stages as a function, for callers that are no command; see test_prepare_shards.py."""

from pathlib import Path

import pytest

from pipeline.config.settings import override
from pipeline.data.preparation.corpus_files import find_sources
from pipeline.data.preparation.prepare_arguments import prepare_arguments
from pipeline.data.preparation.stages import TextSizes, make_shards
from pipeline.data.shards.manifest import read_manifest
from pipeline.execution.workers import local_executor
from pipeline.recipes import recipe
from tests.pipeline.preparing import write_jsonl

SIZES = TextSizes(split=1 << 20, shard=1)


def test_shards_are_made_once(
    tmp_path: Path, tiny_tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = write_jsonl(tmp_path / "text.jsonl", [f"A short text, number {n}." for n in range(30)])
    words = ["--corpus", "texts", "--input", text, "--tokenizer", tiny_tokenizer]
    arguments = prepare_arguments([*map(str, words), "--output", str(tmp_path / "out")])
    run = override(recipe("roberta_tiny"), ["data.mask_mode=static", "data.duplicates=1"])
    monkeypatch.setenv("TENFOLD_ROOT", "/nonexistent")  # nothing is written there
    found = find_sources(arguments, run.data)
    made = make_shards(arguments, run, found, local_executor(1), sizes=SIZES)
    assert made and made[1] == read_manifest(tmp_path / "out")
    assert made[1].totals["documents"] == 30
    assert make_shards(arguments, run, found, local_executor(1), sizes=SIZES) is None
