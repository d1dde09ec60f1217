from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.data.preparation.tokenizer_training import train_tokenizer
from pipeline.data.tokenizers.folders import trained_on
from pipeline.execution.workers import local_executor
from pipeline.ingest.corpora.sources import corpus_sources
from pipeline.recipes import recipe


@pytest.mark.usefixtures("quick_workers")
def test_workers_read_the_sample(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, sources = corpus_sources("sample", [])
    data = replace(recipe("roberta_tiny").data, vocab_size=600)
    one, two = (
        train_tokenizer(sources, data, tmp_path / name, "text", 200_000, executor)
        for name, executor in (("1", None), ("2", local_executor(2)))
    )
    assert one.sha256 == two.sha256 and one.size == 600
    assert trained_on(tmp_path / "1") == trained_on(tmp_path / "2")
    assert str(trained_on(tmp_path / "1")).startswith("text: ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2"]
    assert "trained byte-bpe with 600 tokens on text: " in capsys.readouterr().out
