"""`python -m pipeline.inspect` on documents: raw, extracted, of a corpus, of a group."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline import inspect, prepare
from pipeline.execution.workers import local_executor
from pipeline.ingest.corpora.sources import corpus_sources
from pipeline.ingest.extraction.extract import extract
from tests.golden import formats
from tests.pipeline.data.selection.test_decision_summary import write
from tests.pipeline.ingest.dump import small_dump
from tests.pipeline.preparing import Call

SAMPLE = Path(prepare.__file__).parent / "ingest" / "corpora" / "sample"
Show = Callable[..., str]


@pytest.fixture
def show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call) -> Show:
    """`pipeline.inspect` in this process; returns what it printed, or its error line."""
    monkeypatch.setenv("TENFOLD_ROOT", str(tmp_path / "root"))
    return functools.partial(call, inspect.main)


def test_a_raw_dump_and_its_extracted_file(show: Show, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "small.xml").write_bytes(small_dump())
    raw = show(tmp_path / "in", "--html", tmp_path / "page.html").split("\n", 1)
    assert "1 MediaWiki dump" in raw[0]
    assert "1 dropped, 20.0%: redirect" in raw[1] and "The Arve (Arva) is a river" in raw[1]
    assert "The Arve (Arva) is a river" in (tmp_path / "page.html").read_text()
    assert "revised or fetched from 2016-04-22 to 2016-04-22" in raw[1]
    assert "to 2016-04-22" in (tmp_path / "page.html").read_text()
    documents = tmp_path / "root" / "documents"
    assert not documents.exists()
    extract(corpus_sources("in", [str(tmp_path / "in")])[1], documents, local_executor(1))
    (documents / "decisions").mkdir()
    (documents / "decisions" / "0.parquet").write_text("not text")
    again = show(documents)
    assert "1 extracted documents" in again
    for line in raw[1].splitlines()[:8]:
        assert line in again


@pytest.mark.parametrize(
    "name", ["csv", "html", "small_files", "tar_xz", "text_gz", "warc_gz", "zip"]
)
def test_nothing_is_extracted(name: str, show: Show, tmp_path: Path) -> None:
    """What is kept and dropped, its lengths, languages and sites are those of extracted files."""
    folder = formats.write(formats.all_corpora()[name], tmp_path / "in")
    given = ("--corpus", "mine", "--samples", 0)
    said = show(folder, *given)
    assert not (tmp_path / "root").exists()
    extract(corpus_sources("mine", [str(folder)])[1], tmp_path / "out", local_executor(1))
    again = show(tmp_path / "out", *given)
    reports = [text[text.index("\ndocuments\n") : text.index("\nnext: ")] for text in (said, again)]
    assert reports[0] == reports[1]


def test_a_corpus_is_read_as_prepare_would(show: Show) -> None:
    as_books = show(SAMPLE / "books", "--corpus", "bookcorpus", "--samples", 1)
    assert "3 read" in as_books and "3 plain text (book)" in as_books and "kept: 1 of 3" in as_books
    assert "blank lines" in show(SAMPLE / "books", "--samples", 0)


def test_a_group(show: Show, tmp_path: Path) -> None:
    for member, folder in (("wikipedia", "articles"), ("bookcorpus", "books")):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / member).symlink_to(SAMPLE / folder)
    said = show(tmp_path / "in", "--corpus", "16gb")
    assert "44   of wikipedia" in said and "3   of bookcorpus" in said


def test_copies_are_shown_with_the_kept_document(show: Show, tmp_path: Path) -> None:
    lines = [{"text": f"Story {n % 2} about a river."} for n in range(3)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    size = len(json.dumps(lines[0])) + 1
    ids = [f"in.jsonl@{n * size}" for n in range(3)]
    rows = [(ids[0], "stories", None, 0), (ids[1], "stories", None, 1)]
    decisions = tmp_path / "root" / "documents" / "decisions"
    write(decisions / "abc", [[*rows, (ids[2], "stories", "near-duplicate", 0)]])
    arguments = (tmp_path / "in.jsonl", "--corpus", "stories", "--html", tmp_path / "page.html")
    said = show(*arguments, "--decisions")
    assert f"decisions: {decisions / 'abc'}" in said
    assert "1 dropped, 33.3%: near-duplicate" in said
    assert "copies: 2 of 3 documents are in 1 clusters" in said
    assert f"dropped: stories {ids[2]}\n      Story 0 about" in said
    assert f"kept: stories {ids[0]}\n      Story 0 about" in said
    page = (tmp_path / "page.html").read_text()
    assert page.count("Story 0 about a river.") == 4  # two samples and one pair
    other = show(tmp_path / "in.jsonl", "--decisions", decisions / "abc")
    assert "give the same --corpus and files" in other


def test_what_filters_and_a_function_would_drop(show: Show, tmp_path: Path) -> None:
    """With samples of each, and of texts as they would be."""
    (tmp_path / "tidy.py").write_text(
        "def tidy(document):\n"
        "    if 'odd' in document.text: raise ValueError\n"
        "    return document.text.replace('cat', 'dog') if 'cat' in document.text else None\n"
    )
    lines = "A cat is here. It sleeps. It eats. It is fed. It is mine.\nNo end mark here"
    texts = [lines, "An odd cat.", "A mouse.", "A cat is here.", lines.replace("mine", "{mine}")]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    given = ("--map", f"{tmp_path / 'tidy.py'}:tidy", "--filter", "in=c4", "max-words=50")
    said = show(tmp_path / "in.jsonl", "--corpus", "in", *given)
    for line in (
        "1 kept, 20.0%", "1 dropped, 20.0%: map\n", "1 unusable, 20.0%: map raised ValueError",
        "1 dropped, 20.0%: c4: curly bracket", "1 dropped, 20.0%: c4: under 5 sentences",
        "kept: 1 of 1", "It sleeps. It eats. It is fed. It is mine.\n", "map: 1 of 1",
    ):  # fmt: skip
        assert line in said, line
    assert "A dog is here. It sleeps" in said and "A mouse." in said
    assert said.rstrip().endswith(f"--map {tmp_path / 'tidy.py'}:tidy --filter in=c4 max-words=50")


def test_mistakes(show: Show, tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    shards.mkdir()
    (shards / "manifest.json").write_text("{}")
    empty = tmp_path / "empty"
    empty.mkdir()
    for arguments, message in (
        ((tmp_path / "nothing",), "no such directory"),
        ((empty,), "is an empty folder; fill it with pipeline.prepare"),
        (
            (shards, "--html", tmp_path / "p.html"),
            "--html, --corpus, --decisions, --map and --filter are for",
        ),
        ((SAMPLE / "news", "--samples", -1), "--samples -1"),
        ((SAMPLE / "news", "--filter", "fine"), "did you mean fineweb?"),
        ((SAMPLE / "news", "--map", "x.py:f"), "--map: cannot read"),
        ((shards, "--filter", "c4"), "--filter are for documents"),
    ):
        error = show(*arguments, code=2)
        assert message in error and error.count("\n") == 1


def test_plain_text_is_read_as_by_prepare(show: Show, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("One line.\n" * 20)
    (tmp_path / "table.jsonl").write_text('{"a": {"b": "Some text."}}\n' * 2)
    said = show(tmp_path / "lines.txt", "--plain-text", "lines")
    assert "20 documents in 1 file(s); if a file is one document, give --plain-text file" in said
    assert "plain text (lines)" in said and "20 documents" in said
    assert "Some text." in show(tmp_path / "table.jsonl", "--text-field", "a.b")
