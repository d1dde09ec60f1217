"""`python -m pipeline.inspect` on documents: raw, extracted, of a corpus, of a group."""

from pathlib import Path

import pytest

from pipeline.execution.workers import local_executor
from pipeline.ingest.corpora.sources import SAMPLE_FILES, corpus_sources
from pipeline.ingest.extraction.extract import extract
from tests.golden import formats
from tests.pipeline.data.selection.test_decision_summary import write
from tests.pipeline.ingest.dump import small_dump
from tests.pipeline.ingest.files import put
from tests.pipeline.preparing import Call, write_jsonl

pytestmark = pytest.mark.usefixtures("root")


def test_a_raw_dump_and_its_extracted_file(show: Call, tmp_path: Path) -> None:
    put(tmp_path / "in" / "small.xml", small_dump())
    raw = show(tmp_path / "in").split("\n", 1)
    assert "1 MediaWiki dump" in raw[0] and "1 dropped, 20.0%: redirect" in raw[1]
    for part in ("The Arve (Arva) is a river", "to 2016-04-22"):
        assert part in raw[1]
    documents = tmp_path / "root" / "documents"
    assert not documents.exists()
    extract(corpus_sources("in", [str(tmp_path / "in")])[1], documents, local_executor(1))
    put(documents / "decisions" / "0.parquet", "not text")
    again = show(documents)
    assert "1 extracted documents" in again
    for line in raw[1].splitlines()[:8]:
        assert line in again


@pytest.mark.parametrize(
    "name",
    [
        "tar_xz", "warc_gz",
        *(pytest.param(name, marks=pytest.mark.slow) for name in
          ("csv", "html", "small_files", "text_gz", "zip")),
    ],
)  # fmt: skip
def test_nothing_is_extracted(name: str, show: Call, tmp_path: Path) -> None:
    """What is kept and dropped, its lengths, languages and sites are those of extracted files."""
    folder = formats.write(formats.all_corpora()[name], tmp_path / "in")
    given = ("--corpus", "mine", "--samples", 0)
    said = show(folder, *given)
    assert not (tmp_path / "root").exists()
    extract(corpus_sources("mine", [str(folder)])[1], tmp_path / "out", local_executor(1))
    again = show(tmp_path / "out", *given)
    reports = [text[text.index("\ndocuments\n") : text.index("\nnext: ")] for text in (said, again)]
    assert reports[0] == reports[1]


def test_a_corpus_or_group_is_read_as_prepare_would(show: Call, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("One line.\n" * 20)
    (tmp_path / "table.jsonl").write_text('{"a": {"b": "Some text."}}\n' * 2)
    (tmp_path / "in").mkdir()
    for member, folder in (("wikipedia", "articles"), ("bookcorpus", "books")):
        (tmp_path / "in" / member).symlink_to(SAMPLE_FILES / folder)
    for words, parts in (
        ((SAMPLE_FILES / "books", "--corpus", "bookcorpus", "--samples", 1),
         ["3 read", "3 plain text (book)", "kept: 1 of 3"]),
        ((SAMPLE_FILES / "books", "--samples", 0), ["blank lines"]),
        ((tmp_path / "in", "--corpus", "16gb"), ["44   of wikipedia", "3   of bookcorpus"]),
        ((tmp_path / "lines.txt", "--plain-text", "lines"),
         ["20 documents in 1 file(s); if a file is one document, give --plain-text file",
          "plain text (lines)"]),
        ((tmp_path / "table.jsonl", "--text-field", "a.b"), ["Some text."]),
    ):  # fmt: skip
        said = show(*words)
        for part in parts:
            assert part in said


def test_copies_are_shown_with_the_kept_document(show: Call, tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "in.jsonl", [f"Story {n % 2} about a river." for n in range(3)])
    size = path.stat().st_size // 3
    ids = [f"in.jsonl@{n * size}" for n in range(3)]
    rows = [(ids[0], "stories", None, 0), (ids[1], "stories", None, 1)]
    decisions = tmp_path / "root" / "documents" / "decisions"
    write(decisions / "abc", [[*rows, (ids[2], "stories", "near-duplicate", 0)]])
    said = show(path, "--corpus", "stories", "--decisions")
    for part in (
        f"decisions: {decisions / 'abc'}", "1 dropped, 33.3%: near-duplicate",
        "copies: 2 of 3 documents are in 1 clusters",
        f"dropped: stories {ids[2]}\n      Story 0 about",
        f"kept: stories {ids[0]}\n      Story 0 about",
    ):  # fmt: skip
        assert part in said
    assert "give the same --corpus and files" in show(path, "--decisions", decisions / "abc")


def test_what_filters_and_a_function_would_drop(show: Call, tmp_path: Path) -> None:
    """With samples of each, and of texts as they would be."""
    (tmp_path / "tidy.py").write_text(
        "def tidy(document):\n"
        "    if 'odd' in document.text: raise ValueError\n"
        "    return document.text.replace('cat', 'dog') if 'cat' in document.text else None\n"
    )
    lines = "A cat is here. It sleeps. It eats. It is fed. It is mine.\nNo end mark here"
    texts = [lines, "An odd cat.", "A mouse.", "A cat is here.", lines.replace("mine", "{mine}")]
    path = write_jsonl(tmp_path / "in.jsonl", texts)
    given = ("--map", f"{tmp_path / 'tidy.py'}:tidy", "--filter", "in=c4", "max-words=50")
    said = show(path, "--corpus", "in", *given)
    for line in (
        "1 kept, 20.0%", "1 dropped, 20.0%: map\n", "1 unusable, 20.0%: map raised ValueError",
        "1 dropped, 20.0%: c4: curly bracket", "1 dropped, 20.0%: c4: under 5 sentences",
        "kept: 1 of 1", "It sleeps. It eats. It is fed. It is mine.\n", "map: 1 of 1",
        "A dog is here. It sleeps", "A mouse.",
    ):  # fmt: skip
        assert line in said, line
    assert said.rstrip().endswith(f"--map {tmp_path / 'tidy.py'}:tidy --filter in=c4 max-words=50")


def test_mistakes(show: Call, prepared: Path) -> None:
    for arguments, message in (
        ((prepared, "--filter", "c4"), "--filter are for documents"),
        ((SAMPLE_FILES / "news", "--filter", "fine"), "did you mean fineweb?"),
        ((SAMPLE_FILES / "news", "--map", "x.py:f"), "--map: cannot read"),
    ):
        error = show(*arguments, code=2)
        assert message in error and error.count("\n") == 1
