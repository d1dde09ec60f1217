"""Which tokenizer a corpus gets if none is given, and which corpora share it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.data.preparation import publication, tokenizer
from pipeline.data.preparation.tokenizer import ChosenTokenizer
from pipeline.data.shards.manifest import Manifest, read_manifest
from pipeline.data.tokenizers.definitions import wordpiece_json
from pipeline.data.tokenizers.folders import read_vocabulary, save_vocabulary
from pipeline.data.tokenizers.quality import FEWEST_IDS
from pipeline.data.tokenizers.vocabulary import Vocabulary, vocabulary
from pipeline.ingest.corpora.sources import corpus_sources
from pipeline.recipes import recipe
from tests.pipeline.ingest.web_archive import articles, members
from tests.pipeline.preparing import Prepare, at_once_without_locks, contents, write_jsonl

SMALL = ("--recipe", "roberta_tiny", "--workers", 1, "--set", "data.duplicates=1")
FEW = (*SMALL, "--set", "data.vocab_size=270")
"""So few ids that any text is enough to train them."""
NAME = "byte-bpe-270"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TENFOLD_ROOT", str(tmp_path / "root"))
    return tmp_path / "root"


def text_of(path: Path, word: str, lines: int = 30) -> Path:
    """Distinct documents that no other corpus has."""
    return write_jsonl(path, [f"The {word} says {word}{i} and {word * 2}." for i in range(lines)])


def published(root: Path) -> list[str]:
    return sorted(path.parent.name for path in (root / "tokenizers").glob("*/tokenizer.json"))


def sha256_of(root: Path, corpus: str) -> str:
    (output,) = (root / "shards").glob(f"{corpus}-*")
    return str(read_manifest(output).tokenizer["sha256"])


def test_a_prepare_that_fails_publishes_no_tokenizer(
    root: Path, tmp_path: Path, run: Prepare
) -> None:
    """A restart finds it with the unfinished work; other corpora never do."""
    broken = text_of(tmp_path / "one.jsonl", "cat")
    broken.write_text(broken.read_text() + "{broken\n")
    command = ("--corpus", "wikipedia", "--input", broken, *FEW)
    assert "unusable" in run(*command, code=2) and published(root) == []
    said = run("--corpus", "cc-news", "--input", text_of(tmp_path / "n.jsonl", "dog"), *FEW)
    assert said.count("training it on this corpus") == 1 and published(root) == [NAME]
    said = run(*command, "--max-bad-fraction", 0.9)
    assert "training it" not in said and "(trained on wikipedia: 30 documents" in said
    assert "was published first" in said and f"--tokenizer {root}" in said
    own = [name for name in published(root) if name != NAME]
    assert len(own) == 1 and own[0].startswith(f"{NAME}.wikipedia.")
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


def test_a_users_own_corpus_has_its_own_tokenizer(root: Path, tmp_path: Path, run: Prepare) -> None:
    """It uses neither the sample's nor that of another file of the same name, and says so."""
    run("--corpus", "sample", *FEW)
    (sample,) = published(root)
    assert sample.startswith(f"{NAME}.sample.")
    mine = text_of(tmp_path / "mine.jsonl", "cat")
    said = run("--corpus", mine, *FEW)
    assert "training it on this corpus" in said
    (line,) = [line for line in said.splitlines() if "not using" in line]
    folder = root / "tokenizers" / sample
    assert f"{folder} (trained on the sample: 344 documents, " in line
    assert f"add --tokenizer {folder}" in line
    (tmp_path / "other").mkdir()
    said = run("--corpus", text_of(tmp_path / "other" / "mine.jsonl", "dog"), *FEW)
    assert "training it on this corpus" in said and f"add --tokenizer {root}" in said
    assert len(published(root)) == 3
    wikipedia = ("--corpus", "wikipedia", "--input", text_of(tmp_path / "w.jsonl", "owl"), *FEW)
    assert "training it on this corpus" in run(*wikipedia) and NAME in published(root)
    again = run("--corpus", mine, *FEW)
    assert "complete already" in again and "(trained on your corpus mine: 30 documents" in again
    taken = run("--corpus", mine, *FEW, "--tokenizer", folder, "--output", tmp_path / "taken")
    assert f"tokenizer: {folder} (trained on the sample: " in taken
    manifest = read_manifest(tmp_path / "taken")
    assert manifest.tokenizer["sha256"] == read_vocabulary(folder).sha256
    assert "trained on the sample" in run(  # in the shards' copy too
        "--corpus", mine, *FEW, "--tokenizer", tmp_path / "taken" / "tokenizer", "--dry-run"
    )


def test_too_few_ids_are_not_shared(root: Path, tmp_path: Path, run: Prepare) -> None:
    """A named corpus with little text does not share its tokenizer."""
    wikipedia = ("--corpus", "wikipedia", "--input", text_of(tmp_path / "w.jsonl", "cat"), *SMALL)
    said = run(*wikipedia)
    assert "of data.vocab_size=2,048 ids, so other corpora do not share it" in said
    (name,) = published(root)
    assert name.startswith("byte-bpe-2048.wikipedia.")
    _, sources = corpus_sources("sample", [])
    articles = [source.path for source in sources if source.corpus == "articles"]
    news = run("--corpus", "cc-news", "--input", *articles, *SMALL)
    assert "training it on this corpus" in news and f"add --tokenizer {root}" in news
    assert published(root) == ["byte-bpe-2048", name]
    assert "complete already" in run(*wikipedia)


def test_a_file_called_like_a_named_corpus_is_the_users_own(
    root: Path, tmp_path: Path, run: Prepare
) -> None:
    said = run("--corpus", text_of(tmp_path / "stories.jsonl", "cat"), *FEW)
    assert "read as your own" in said and published(root)[0].startswith(f"{NAME}.stories.")
    news = ("--corpus", "cc-news", "--input", text_of(tmp_path / "n.jsonl", "dog"), *FEW)
    assert "training it on this corpus" in run(*news)
    config = root / "tokenizers" / published(root)[1] / "tokenizer_config.json"
    assert json.loads(config.read_bytes())["trained_on"].startswith("your corpus stories: ")


@pytest.mark.parametrize("why", ["own", "short"])
def test_an_unsuitable_shared_folder_is_not_used(
    why: str, root: Path, tmp_path: Path, run: Prepare
) -> None:
    """It was put there by hand, trained on the user's own text or with too few ids."""
    source = text_of(tmp_path / "mine.jsonl", "cat")
    if why == "own":
        run("--corpus", source, *FEW)
    else:
        run("--corpus", "wikipedia", "--input", source, *SMALL, "--set", "data.vocab_size=9999")
    (own,) = (root / "tokenizers").glob("byte-bpe-*.*")
    shared = root / "tokenizers" / (NAME if why == "own" else "byte-bpe-9999")
    own.rename(shared)
    given = FEW if why == "own" else (*SMALL, "--set", "data.vocab_size=9999")
    before = contents(shared)
    said = run("--corpus", "cc-news", "--input", text_of(tmp_path / "n.jsonl", "dog"), *given)
    assert "training it on this corpus" in said and "not using" in said
    assert ("was published first" in said) == (why == "own") and contents(shared) == before


@pytest.mark.parametrize(("size", "enough"), [(9799, False), (9800, True), (10_000, True)])
def test_98_percent_of_the_ids_are_enough(
    size: int, enough: bool, tiny_vocabulary: Vocabulary
) -> None:
    data = replace(recipe("roberta_tiny").data, vocab_size=10_000)
    assert tokenizer._has_enough_ids(replace(tiny_vocabulary, size=size), data) == enough


def test_two_prepares_of_the_same_files_publish_once(
    root: Path, tmp_path: Path, run: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second starts while the first runs, finds its tokenizer, and ends before it."""
    command = ("--corpus", "cc-news", "--input", text_of(tmp_path / "n.jsonl", "dog"), *FEW)
    assemble, said = publication.assemble_shards, []

    def assemble_after_another(*given: Any) -> Manifest:
        monkeypatch.setattr(publication, "assemble_shards", assemble)
        said.append(run(*command, "--set", "data.sequence_length=16"))
        return assemble(*given)

    monkeypatch.setattr(publication, "assemble_shards", assemble_after_another)
    first = run(*command)
    second = said[0].rpartition("input: ")[2]  # the text before it is the first one's
    assert "tokenizer: published as" in second and "training it" not in second
    assert "published" not in first and published(root) == [NAME]
    assert "complete already" in run(*command)


def test_the_same_text_from_another_place_makes_no_second_tokenizer(
    root: Path, tmp_path: Path, run: Prepare
) -> None:
    """Training is deterministic, so the shards of both can be mixed."""
    first = text_of(tmp_path / "one.jsonl", "cat")
    first.write_text(first.read_text() + "{broken\n")
    second = tmp_path / "two.jsonl"
    second.write_bytes(first.read_bytes())
    run("--corpus", "wikipedia", "--input", first, *FEW, code=2)
    run("--corpus", "wikipedia", "--input", second, *FEW, "--max-bad-fraction", 0.9)
    said = run("--corpus", "wikipedia", "--input", first, *FEW, "--max-bad-fraction", 0.9)
    assert "was published first" not in said and published(root) == [NAME]


def test_one_published_during_the_training_is_used(
    root: Path, tmp_path: Path, run: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the shards are complete it would be too late."""
    train = tokenizer.train_tokenizer

    def train_beside_another(*args: Any, **kwargs: Any) -> None:
        monkeypatch.setattr(tokenizer, "train_tokenizer", train)
        train(*args, **kwargs)
        run("--corpus", "cc-news", "--input", text_of(tmp_path / "n.jsonl", "dog"), *FEW)

    monkeypatch.setattr(tokenizer, "train_tokenizer", train_beside_another)
    run("--corpus", "wikipedia", "--input", text_of(tmp_path / "w.jsonl", "cat"), *FEW)
    assert published(root) == [NAME] and sha256_of(root, "wikipedia") == sha256_of(root, "cc-news")


@pytest.mark.parametrize("corpus", ["wikipedia", "own"])
def test_two_train_at_once_where_locks_exclude_nobody(
    corpus: str, root: Path, tmp_path: Path
) -> None:
    """The first one's tokenizer is that of both."""
    text = text_of(tmp_path / "in.jsonl", "cat")
    given = ("prepare", "--corpus", corpus, "--input", text, *FEW)
    outputs = [tmp_path / name for name in ("a", "b")]
    prepares = [(*given, "--output", output) for output in outputs]
    found = at_once_without_locks(tmp_path / "meeting", *prepares)
    assert [code for code, *_ in found] == [0, 0], found
    assert sum("was written by another process meanwhile" in said for _, said, _ in found) == 1
    assert len(published(root)) == 1 and contents(outputs[0]) == contents(outputs[1])
    left = [path.name for path in (root / "tokenizers").rglob("*") if path.is_dir()]
    assert sorted(left) == sorted([".unfinished", *published(root)])


def test_an_obstacle_to_the_shared_folder_is_named(
    root: Path, tmp_path: Path, run: Prepare
) -> None:
    news = ("--corpus", "cc-news", "--input", text_of(tmp_path / "n.jsonl", "dog"), *FEW)
    shared = root / "tokenizers" / NAME
    shared.mkdir(parents=True)
    (shared / "word_starts.bin").write_bytes(b"1")
    (shared.with_name(f"{NAME}.x.y")).mkdir()
    for name in (
        "tokenizer.json",
        "tokenizer_config.json",
    ):  # a damaged one is described too
        (shared.with_name(f"{NAME}.x.y") / name).write_text("{")
    said = run(*news)
    assert f"{shared} has no tokenizer.json" in said
    assert "complete already" in run(*news)
    (shared / "word_starts.bin").rename(shared / ".lock")
    wikipedia = ("--corpus", "wikipedia", "--input", text_of(tmp_path / "w.jsonl", "cat"), *FEW)
    assert f"tokenizer: published as {shared}" in run(*wikipedia)


def test_dry_run_finds_the_tokenizer_of_text_that_is_extracted(
    root: Path, tmp_path: Path, run: Prepare
) -> None:
    (tmp_path / "crawl.warc.gz").write_bytes(members(articles(20)))
    command = ("--corpus", "crawl", "--input", tmp_path / "crawl.warc.gz", *FEW)
    run(*command)
    assert "(trained on your corpus crawl: 20 documents" in run(*command, "--dry-run")


def test_a_kill_between_shards_and_tokenizer_is_repaired(
    root: Path, tmp_path: Path, run: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    command = ("--corpus", "cc-news", "--input", text_of(tmp_path / "n.jsonl", "dog"), *FEW)
    with monkeypatch.context() as patch:
        patch.setattr(ChosenTokenizer, "publish", interrupt)
        run(*command, code=130)
    assert len([*root.glob("shards/*/manifest.json")]) == 1 and published(root) == []
    assert "complete already" in run(*command) and published(root) == [NAME]


def test_dry_run_writes_nothing(root: Path, tmp_path: Path, run: Prepare) -> None:
    said = run("--corpus", text_of(tmp_path / "mine.jsonl", "cat"), *FEW, "--dry-run")
    assert "estimating with one trained on a small sample" in said and not root.exists()


def test_text_of_another_language_than_a_given_tokenizers_is_warned_of(
    root: Path, tmp_path: Path, run: Prepare
) -> None:
    """Before the work, and by --dry-run; not for text that the vocabulary has words for."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{a}" for a in letters)]
    tokens += ["the", "says", "cat", *(f"qzx{i}" for i in range(FEWEST_IDS - len(tokens) - 3))]
    ids = {token: index for index, token in enumerate(tokens)}
    save_vocabulary(vocabulary(wordpiece_json(ids, lower_case=True), "own"), tmp_path / "own", 128)
    settings = ("data.tokenizer=wordpiece", "data.lower_case=true", f"data.vocab_size={FEWEST_IDS}")
    given = (*SMALL, *(part for text in settings for part in ("--set", text)), "--tokenizer",
             tmp_path / "own")  # fmt: skip
    own = write_jsonl(tmp_path / "own.jsonl", ["The cat says the cat says the cat."] * 3)
    other = write_jsonl(tmp_path / "other.jsonl", [f"Le chat boit du lait {a}." for a in letters])
    assert "tokenizer: warning:" not in run(
        "--input", own, "--corpus", "cc-news", *given, "--dry-run"
    )
    for how in ("--dry-run", "--allow-unknown"):
        said = run("--input", other, "--corpus", "cc-news", *given, how)
        assert said.count("the text may be in another language than the tokenizer's") == 1
        assert "tokenizer: warning: 2.83 tokens per word, 1.00 per letter, and 0.0% of" in said
