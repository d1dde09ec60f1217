"""Which tokenizer a corpus gets if none is given, and which corpora share it."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipeline.data.preparation import publication, tokenizer
from pipeline.data.preparation.tokenizer import ChosenTokenizer
from pipeline.data.shards.manifest import Manifest, read_manifest
from pipeline.data.tokenizers.folders import read_vocabulary, save_vocabulary
from pipeline.data.tokenizers.quality import FEWEST_IDS
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.ingest.corpora.sources import corpus_sources
from pipeline.recipes import recipe
from tests.pipeline.data.tokenizers.test_quality import english
from tests.pipeline.ingest.files import put
from tests.pipeline.ingest.web_archive import articles, members
from tests.pipeline.preparing import Prepare, at_once_without_locks, contents, write_jsonl

SMALL = ("--recipe", "roberta_tiny", "--workers", 1, "--set", "data.duplicates=1")
FEW = (*SMALL, "--set", "data.vocab_size=270")
"""So few ids that any text is enough to train them."""
NAME = "byte-bpe-270"


def text_of(path: Path, word: str) -> Path:
    """Distinct documents that no other corpus has."""
    return write_jsonl(path, [f"The {word} says {word}{i} and {word * 2}." for i in range(30)])


def of(root: Path, corpus: str, word: str, settings: tuple[object, ...] = FEW) -> list[object]:
    """Arguments to prepare documents about a word as a corpus."""
    text = text_of(root.parent / f"{word}.jsonl", word)
    return ["--corpus", corpus, "--input", text, *settings]


def published(root: Path) -> list[str]:
    return sorted(path.parent.name for path in (root / "tokenizers").glob("*/tokenizer.json"))


def sha256_of(root: Path, corpus: str) -> str:
    (output,) = (root / "shards").glob(f"{corpus}-*")
    return str(read_manifest(output).tokenizer["sha256"])


def test_a_prepare_that_fails_publishes_no_tokenizer(root: Path, run: Prepare) -> None:
    """A restart finds it with the unfinished work; other corpora never do."""
    command = of(root, "wikipedia", "cat")
    with (root.parent / "cat.jsonl").open("a") as file:
        file.write("{broken\n")
    assert "unusable" in run(*command, code=2) and published(root) == []
    said = run(*of(root, "cc-news", "dog"))
    assert said.count("training it on this corpus") == 1 and published(root) == [NAME]
    said = run(*command, "--max-bad-fraction", 0.9)
    assert "training it" not in said and "(trained on wikipedia: 30 documents" in said
    assert "was published first" in said and f"--tokenizer {root}" in said
    (own,) = (name for name in published(root) if name != NAME)
    assert own.startswith(f"{NAME}.wikipedia.")
    assert sha256_of(root, "wikipedia") != sha256_of(root, "cc-news")
    assert "complete already" in run(*command, "--max-bad-fraction", 0.9)
    assert not list((root / "tokenizers" / ".unfinished").glob("*/tokenizer.json"))


def test_named_corpora_share_one_tokenizer(root: Path, run: Prepare) -> None:
    first = run(*of(root, "wikipedia", "cat"))
    assert f"tokenizer: published as {root / 'tokenizers' / NAME}" in first
    news = of(root, "cc-news", "dog")
    texts = [(name, text_of(root.parent / name, name)) for name in ("stories", "bookcorpus")]
    group = ("--corpus", "mixture", "--input", *(f"{name}={text}" for name, text in texts), *FEW)
    for command in ((*news, "--dry-run"), news, group):
        said = run(*command)
        assert "(trained on wikipedia: 30 documents, 0.0 MB)" in said and "training it" not in said
    assert published(root) == [NAME]
    assert len({sha256_of(root, name) for name in ("wikipedia", "cc-news", "mixture")}) == 1


def test_a_budget_of_words_is_for_all_corpora_and_the_tokenizer(root: Path, run: Prepare) -> None:
    """The kept documents are those with the lowest hashes, whatever the files: a smaller budget
    keeps some of a larger one's. Named corpora do not share a tokenizer of so little text."""
    both = {word: text_of(root.parent / f"{word}.jsonl", word) for word in ("cat", "dog")}
    given = ("--corpus", "mixture", "--input")
    kept: list[set[str]] = []
    for budget, order in ((100, 1), (250, 1), (250, -1), (360, 1), (999, 1)):
        texts = [f"{name}={both[word]}" for name, word in
                 (("wikipedia", "cat"), ("bookcorpus", "dog"))[::order]]  # fmt: skip
        out = root.parent / f"{budget}{order}"
        said = run(*given, *texts, *FEW, "--most-words", budget, "--output", out)
        manifest = read_manifest(out)
        documents = pq.read_table(out / "documents.parquet", columns=["id"])["id"].to_pylist()
        count = min(budget // 6, 60)  # of six words each
        assert len(documents) == count and manifest.words() == 6 * count
        assert f": {count} documents, 0.0 MB" in said
        dropped = [about["dropped"] for about in manifest.corpora.values()]
        over = sum(reasons.get("over the budget of words", 0) for reasons in dropped)
        assert over == 60 - count
        kept.append(set(documents))
    assert kept[0] < kept[1] == kept[2] < kept[3] == kept[4]
    assert NAME not in published(root)
    error = run(*given, *texts, *FEW, "--most-words", 5, code=2)
    assert "--most-words 5 keeps no document" in error and error.count("\n") == 1
    for wrong in ("0", "nan", "-3", "inf", "many"):
        error = run(*given, *texts, *FEW, "--most-words", wrong, code=2)
        assert "--most-words" in error and error.count("\n") == 1


def test_a_users_own_corpus_has_its_own_tokenizer(root: Path, tmp_path: Path, run: Prepare) -> None:
    """It uses neither the sample's nor that of another file of the same name, and says so."""
    mine = ("--corpus", text_of(tmp_path / "mine.jsonl", "cat"), *FEW)
    said = run(*mine, "--dry-run")
    assert "estimating with one trained on a small sample" in said and not root.exists()
    run("--corpus", "sample", *FEW)
    (sample,) = published(root)
    assert sample.startswith(f"{NAME}.sample.")
    said = run(*mine)
    assert "training it on this corpus" in said
    (line,) = [line for line in said.splitlines() if "not using" in line]
    folder = root / "tokenizers" / sample
    assert f"{folder} (trained on the sample: 344 documents, " in line
    assert f"add --tokenizer {folder}" in line
    (tmp_path / "other").mkdir()
    said = run("--corpus", text_of(tmp_path / "other" / "mine.jsonl", "dog"), *FEW)
    assert "training it on this corpus" in said and f"add --tokenizer {root}" in said
    assert len(published(root)) == 3
    assert "training it on this corpus" in run(*of(root, "wikipedia", "owl"))
    assert NAME in published(root)
    again = run(*mine)
    assert "complete already" in again and "(trained on your corpus mine: 30 documents" in again
    taken = run(*mine, "--tokenizer", folder, "--output", tmp_path / "taken")
    assert f"tokenizer: {folder} (trained on the sample: " in taken
    manifest = read_manifest(tmp_path / "taken")
    assert manifest.tokenizer["sha256"] == read_vocabulary(folder).sha256
    copied = tmp_path / "taken" / "tokenizer"
    assert "trained on the sample" in run(*mine, "--tokenizer", copied, "--dry-run")


def test_too_few_ids_are_not_shared(root: Path, run: Prepare) -> None:
    """A named corpus with little text does not share its tokenizer."""
    wikipedia = of(root, "wikipedia", "cat", SMALL)
    assert "of data.vocab_size=2,048 ids, so other corpora do not share it" in run(*wikipedia)
    (name,) = published(root)
    assert name.startswith("byte-bpe-2048.wikipedia.")
    _, sources = corpus_sources("sample", [])
    articles = [source.path for source in sources if source.corpus == "articles"]
    news = run("--corpus", "cc-news", "--input", *articles, *SMALL)
    assert "training it on this corpus" in news and f"add --tokenizer {root}" in news
    assert published(root) == ["byte-bpe-2048", name]
    assert "complete already" in run(*wikipedia)


def test_a_file_called_like_a_named_corpus_is_the_users_own(root: Path, run: Prepare) -> None:
    said = run("--corpus", text_of(root.parent / "stories.jsonl", "cat"), *FEW)
    assert "read as your own" in said and published(root)[0].startswith(f"{NAME}.stories.")
    assert "training it on this corpus" in run(*of(root, "cc-news", "dog"))
    config = root / "tokenizers" / published(root)[1] / "tokenizer_config.json"
    assert json.loads(config.read_bytes())["trained_on"].startswith("your corpus stories: ")


@pytest.mark.parametrize("why", ["own", "short"])
def test_an_unsuitable_shared_folder_is_not_used(why: str, root: Path, run: Prepare) -> None:
    """It was put there by hand, trained on the user's own text or with too few ids."""
    many = (*SMALL, "--set", "data.vocab_size=9999")
    corpus, given, name = (
        ("mine", FEW, NAME) if why == "own" else ("wikipedia", many, "byte-bpe-9999")
    )
    run(*of(root, corpus, "cat", given))
    (own,) = (root / "tokenizers").glob("byte-bpe-*.*")
    shared = own.rename(root / "tokenizers" / name)
    before = contents(shared)
    said = run(*of(root, "cc-news", "dog", given))
    assert "training it on this corpus" in said and "not using" in said
    assert ("was published first" in said) == (why == "own") and contents(shared) == before


def test_98_percent_of_the_ids_are_enough(tiny_vocabulary: Vocabulary) -> None:
    data = replace(recipe("roberta_tiny").data, vocab_size=10_000)
    for size, enough in ((9799, False), (9800, True), (10_000, True)):
        assert tokenizer._has_enough_ids(replace(tiny_vocabulary, size=size), data) == enough


def test_two_prepares_of_the_same_files_publish_once(
    root: Path, run: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second starts while the first runs, finds its tokenizer, and ends before it."""
    command = of(root, "cc-news", "dog")
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
    root: Path, run: Prepare
) -> None:
    """Training is deterministic, so the shards of both can be mixed."""
    first = of(root, "wikipedia", "cat")
    with (root.parent / "cat.jsonl").open("a") as file:
        file.write("{broken\n")
    second = ["--corpus", "wikipedia", "--input", root.parent / "two.jsonl", *FEW]
    shutil.copyfile(root.parent / "cat.jsonl", root.parent / "two.jsonl")
    run(*first, code=2)
    run(*second, "--max-bad-fraction", 0.9)
    said = run(*first, "--max-bad-fraction", 0.9)
    assert "was published first" not in said and published(root) == [NAME]


def test_one_published_during_the_training_is_used(
    root: Path, run: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the shards are complete it would be too late."""
    train = tokenizer.train_tokenizer

    def train_beside_another(*args: Any, **kwargs: Any) -> None:
        monkeypatch.setattr(tokenizer, "train_tokenizer", train)
        train(*args, **kwargs)
        run(*of(root, "cc-news", "dog"))

    monkeypatch.setattr(tokenizer, "train_tokenizer", train_beside_another)
    run(*of(root, "wikipedia", "cat"))
    assert published(root) == [NAME] and sha256_of(root, "wikipedia") == sha256_of(root, "cc-news")


@pytest.mark.parametrize("corpus", ["wikipedia", "own"])
def test_two_train_at_once_where_locks_exclude_nobody(
    corpus: str, root: Path, tmp_path: Path
) -> None:
    """The first one's tokenizer is that of both."""
    given, outputs = ["prepare", *of(root, corpus, "cat")], [tmp_path / "a", tmp_path / "b"]
    prepares = [(*given, "--output", output) for output in outputs]
    found = at_once_without_locks(tmp_path / "meeting", *prepares)
    assert [code for code, *_ in found] == [0, 0], found
    assert sum("was written by another process meanwhile" in said for _, said, _ in found) == 1
    assert len(published(root)) == 1 and contents(outputs[0]) == contents(outputs[1])
    left = [path.name for path in (root / "tokenizers").rglob("*") if path.is_dir()]
    assert sorted(left) == sorted([".unfinished", *published(root)])


def test_an_obstacle_to_the_shared_folder_is_named(root: Path, run: Prepare) -> None:
    """Also where another folder's tokenizer is damaged."""
    shared = root / "tokenizers" / NAME
    other = shared.with_name(f"{NAME}.x.y")
    for path, text in (
        (shared / "word_starts.bin", "1"),
        (other / "tokenizer.json", "{"), (other / "tokenizer_config.json", "{"),
    ):  # fmt: skip
        put(path, text)
    news = of(root, "cc-news", "dog")
    assert f"{shared} has no tokenizer.json" in run(*news)
    assert "complete already" in run(*news)
    (shared / "word_starts.bin").rename(shared / ".lock")
    assert f"tokenizer: published as {shared}" in run(*of(root, "wikipedia", "cat"))


def test_dry_run_finds_the_tokenizer_of_text_that_is_extracted(root: Path, run: Prepare) -> None:
    crawl = root.parent / "crawl.warc.gz"
    crawl.write_bytes(members(articles(20)))
    command = ("--corpus", "crawl", "--input", crawl, *FEW)
    run(*command)
    assert "(trained on your corpus crawl: 20 documents" in run(*command, "--dry-run")


def test_a_kill_between_shards_and_tokenizer_is_repaired(
    root: Path, run: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    command = of(root, "cc-news", "dog")
    with monkeypatch.context() as patch:
        patch.setattr(ChosenTokenizer, "publish", interrupt)
        run(*command, code=130)
    assert len([*root.glob("shards/*/manifest.json")]) == 1 and published(root) == []
    assert "complete already" in run(*command) and published(root) == [NAME]


def test_text_of_another_language_than_a_given_tokenizers_is_warned_of(
    root: Path, tmp_path: Path, run: Prepare
) -> None:
    """Before the work, and by --dry-run; not for text that the vocabulary has words for."""
    save_vocabulary(english("The cat says"), tmp_path / "own", 128)
    settings = ("data.tokenizer=wordpiece", "data.lower_case=true", f"data.vocab_size={FEWEST_IDS}")
    given = (*SMALL, *(part for text in settings for part in ("--set", text)), "--tokenizer",
             tmp_path / "own", "--corpus", "cc-news", "--input")  # fmt: skip
    own = write_jsonl(tmp_path / "own.jsonl", ["The cat says the cat says the cat."] * 3)
    other = write_jsonl(tmp_path / "other.jsonl", [f"Le chat boit du lait {a}." for a in "abcde"])
    assert "tokenizer: warning:" not in run(*given, own, "--dry-run")
    for how in ("--dry-run", "--allow-unknown"):
        said = run(*given, other, how)
        assert said.count("the text may be in another language than the tokenizer's") == 1
        assert "tokenizer: warning: 2.83 tokens per word, 1.00 per letter, and 0.0% of" in said
