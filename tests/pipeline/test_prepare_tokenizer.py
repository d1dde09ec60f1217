"""Which tokenizer a corpus gets when none is named, and when others may take it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.data import shards
from pipeline.data.corpora import corpus_sources
from pipeline.data.tokenizer_folders import read_vocabulary
from pipeline.prepare_tokenizer import ChosenTokenizer
from tests.pipeline.preparing import Prepare, write_jsonl

SMALL = ("--recipe", "roberta_tiny", "--workers", 1, "--set", "data.duplicates=1")
FEW = (*SMALL, "--set", "data.vocab_size=270")
"""So few ids that any text has enough for them."""
NAME = "byte-bpe-270"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TENFOLD_ROOT", str(tmp_path / "root"))
    return tmp_path / "root"


def text_of(path: Path, word: str, lines: int = 30) -> Path:
    """Documents that differ, and that nobody else has."""
    return write_jsonl(path, [f"The {word} says {word}{i} and {word * 2}." for i in range(lines)])


def published(root: Path) -> list[str]:
    return sorted(path.parent.name for path in (root / "tokenizers").glob("*/tokenizer.json"))


def sha256_of(root: Path, corpus: str) -> str:
    (output,) = (root / "shards").glob(f"{corpus}-*")
    return str(shards.read_manifest(output).tokenizer["sha256"])


def test_a_prepare_that_fails_publishes_no_tokenizer(
    root: Path, tmp_path: Path, run: Prepare
) -> None:
    """A restart finds it with the unfinished work; other corpora never do."""
    broken = text_of(tmp_path / "one.jsonl", "cat")
    broken.write_text(broken.read_text() + "{broken\n")
    command = ("--corpus", "wikipedia", "--input", broken, *FEW)
    assert "cannot be used" in run(*command, code=2) and published(root) == []
    said = run("--corpus", "cc-news", "--input", text_of(tmp_path / "n.jsonl", "dog"), *FEW)
    assert said.count("training it on this corpus") == 1 and published(root) == [NAME]
    said = run(*command, "--max-bad-fraction", 0.9)
    assert "training it" not in said and "(trained on wikipedia: 30 documents" in said
    assert "was published first" in said and f"--tokenizer {root}" in said
    own = [name for name in published(root) if name != NAME]
    assert len(own) == 1 and own[0].startswith(f"{NAME}-wikipedia-")
    assert sha256_of(root, "wikipedia") != sha256_of(root, "cc-news")
    assert "complete already" in run(*command, "--max-bad-fraction", 0.9)
    assert not list((root / "tokenizers" / ".unfinished").glob("*/tokenizer.json"))


def test_named_corpora_share_one_tokenizer(root: Path, tmp_path: Path, run: Prepare) -> None:
    first = run("--corpus", "wikipedia", "--input", text_of(tmp_path / "w.jsonl", "cat"), *FEW)
    assert f"tokenizer: published as {root / 'tokenizers' / NAME}" in first
    news = ("--corpus", "cc-news", "--input", text_of(tmp_path / "n.jsonl", "dog"), *FEW)
    assert "(trained on wikipedia: 30 documents, 0.0 MB)" in run(*news, "--dry-run")
    said = run(*news)
    assert "(trained on wikipedia: 30 documents, 0.0 MB)" in said and "training it" not in said
    inputs = [f"{name}={text_of(tmp_path / name, name)}" for name in ("stories", "bookcorpus")]
    group = run("--corpus", "mixture", "--input", *inputs, *FEW)
    assert "(trained on wikipedia: 30 documents, 0.0 MB)" in group
    assert published(root) == [NAME]
    assert len({sha256_of(root, name) for name in ("wikipedia", "cc-news", "mixture")}) == 1


def test_a_corpus_of_ones_own_has_its_own_tokenizer(
    root: Path, tmp_path: Path, run: Prepare
) -> None:
    """It takes neither the sample's nor that of another file of the same name, and says so."""
    run("--corpus", "sample", *FEW)
    (sample,) = published(root)
    assert sample.startswith(f"{NAME}-sample-")
    mine = text_of(tmp_path / "mine.jsonl", "cat")
    said = run("--corpus", mine, *FEW)
    assert "training it on this corpus" in said
    (line,) = [line for line in said.splitlines() if "not using" in line]
    folder = root / "tokenizers" / sample
    assert f"{folder} (trained on articles, books, " in line
    assert f"add --tokenizer {folder}" in line
    (tmp_path / "other").mkdir()
    said = run("--corpus", text_of(tmp_path / "other" / "mine.jsonl", "dog"), *FEW)
    assert "training it on this corpus" in said and f"add --tokenizer {root}" in said
    assert len(published(root)) == 3
    wikipedia = ("--corpus", "wikipedia", "--input", text_of(tmp_path / "w.jsonl", "owl"), *FEW)
    assert "training it on this corpus" in run(*wikipedia) and NAME in published(root)
    again = run("--corpus", mine, *FEW)
    assert "complete already" in again and "(trained on mine: 30 documents" in again
    taken = run("--corpus", mine, *FEW, "--tokenizer", folder, "--output", tmp_path / "taken")
    assert f"tokenizer: {folder} (trained on articles, books" in taken
    manifest = shards.read_manifest(tmp_path / "taken")
    assert manifest.tokenizer["sha256"] == read_vocabulary(folder).sha256
    assert "trained on articles" in run(  # the shards' own copy says it as well
        "--corpus", mine, *FEW, "--tokenizer", tmp_path / "taken" / "tokenizer", "--dry-run"
    )


def test_too_few_ids_are_not_shared(root: Path, tmp_path: Path, run: Prepare) -> None:
    """A named corpus with little text keeps its tokenizer for itself."""
    wikipedia = ("--corpus", "wikipedia", "--input", text_of(tmp_path / "w.jsonl", "cat"), *SMALL)
    said = run(*wikipedia)
    assert "of data.vocab_size=2,048 ids, so other corpora do not take it" in said
    (name,) = published(root)
    assert name.startswith("byte-bpe-2048-wikipedia-")
    _, sources = corpus_sources("sample", [])
    articles = [source.path for source in sources if source.corpus == "articles"]
    news = run("--corpus", "cc-news", "--input", *articles, *SMALL)
    assert "training it on this corpus" in news and f"add --tokenizer {root}" in news
    assert published(root) == ["byte-bpe-2048", name]
    assert "complete already" in run(*wikipedia)


def test_a_shared_folder_that_may_not_be_shared_is_not_taken(
    root: Path, tmp_path: Path, run: Prepare
) -> None:
    """Someone put another one there, or an earlier version trained it on whatever came first."""
    run("--corpus", text_of(tmp_path / "mine.jsonl", "cat"), *FEW)
    (own,) = (root / "tokenizers").glob(f"{NAME}-mine-*")
    own.rename(root / "tokenizers" / NAME)
    said = run("--corpus", "cc-news", "--input", text_of(tmp_path / "n.jsonl", "dog"), *FEW)
    assert "training it on this corpus" in said and "not using" in said
    assert "was published first" in said  # the folder stays as it is
    config = json.loads((root / "tokenizers" / NAME / "tokenizer_config.json").read_bytes())
    assert config["trained_on"].startswith("mine: ")


def test_a_death_between_shards_and_tokenizer_is_made_good(
    root: Path, tmp_path: Path, run: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("--corpus", "cc-news", "--input", text_of(tmp_path / "n.jsonl", "dog"), *FEW)
    with monkeypatch.context() as patch:
        patch.setattr(ChosenTokenizer, "publish", lambda *_: exec("raise KeyboardInterrupt"))
        run(*command, code=130)
    assert len([*root.glob("shards/*/manifest.json")]) == 1 and published(root) == []
    assert "complete already" in run(*command) and published(root) == [NAME]


def test_dry_run_writes_nothing(root: Path, tmp_path: Path, run: Prepare) -> None:
    said = run("--corpus", text_of(tmp_path / "mine.jsonl", "cat"), *FEW, "--dry-run")
    assert "this estimate uses one of a small sample" in said and not root.exists()
