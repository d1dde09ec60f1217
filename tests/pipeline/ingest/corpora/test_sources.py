"""Corpora by name and by path: their files, order and labels."""

from __future__ import annotations

import gc
import re
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.base.errors import ConfigError, DataError
from pipeline.ingest.corpora import sources as sources_module
from pipeline.ingest.corpora.catalogue import SAMPLE_CORPORA
from pipeline.ingest.corpora.sources import (
    corpus_sources,
    describe_corpus,
    describe_input,
    limit_pages,
    own_name,
    print_input,
)

LINE = '{"text": "One. Two."}\n'


def test_the_sample_has_all_five_shapes() -> None:
    name, sources = corpus_sources("sample", [])
    assert name == "sample"
    assert list(dict.fromkeys(source.corpus for source in sources)) == list(SAMPLE_CORPORA)
    assert {source.compression for source in sources} >= {"", "gz", "zst"}
    assert 2e6 < sum(source.size for source in sources) < 4e6


def test_directories_are_walked_in_order_and_hidden_files_skipped(tmp_path: Path) -> None:
    for file in ("b/2.jsonl", "b/10.jsonl", "a.jsonl", ".hidden/x.jsonl", "b/.y.jsonl"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(LINE)
    _, sources = corpus_sources("cc-news", [str(tmp_path)])
    assert [source.name for source in sources] == ["a.jsonl", "b/10.jsonl", "b/2.jsonl"]


def test_a_file_takes_little_memory(tmp_path: Path) -> None:
    """Less than 100 bytes: a corpus can have a million."""
    files = 5000
    for number in range(files):
        folder = tmp_path / f"{number // 100:03d}"
        folder.mkdir(exist_ok=True)
        (folder / f"article-{number:06d}.jsonl").write_text(LINE)
    corpus_sources("cc-news", [str(tmp_path)])  # what Python keeps of the objects that it frees
    tracemalloc.start()
    _, sources = corpus_sources("cc-news", [str(tmp_path)])
    gc.collect()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(number for source in sources for _, _, number, _ in source.kinds) == files
    assert kept < 100 * files, kept


def test_globs_and_paths(tmp_path: Path) -> None:
    for file in ("x1.jsonl", "x2.jsonl", "y.jsonl"):
        (tmp_path / file).write_text(LINE)
    name, sources = corpus_sources("mine", [str(tmp_path / "x*.jsonl")])
    assert (name, [source.name for source in sources]) == ("mine", ["x1.jsonl", "x2.jsonl"])
    name, sources = corpus_sources(str(tmp_path / "y.jsonl"), [])
    assert (name, sources[0].name, sources[0].corpus) == ("y", "y.jsonl", "y")


def test_small_files_are_grouped_as_they_are_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is said of them, and of each corpus of a folder, is what is said of single files."""
    for number in range(40):
        (tmp_path / f"in/en.{number:02d}.txt").parent.mkdir(exist_ok=True)
        (tmp_path / f"in/en.{number:02d}.txt").write_text("One.\n\nTwo.\n" * (number + 1))
    (tmp_path / "in/sw.jsonl").write_text(LINE * 1000)
    _, [pack] = corpus_sources("mine", [str(tmp_path / "in/*.txt")])
    assert (pack.format, pack.size) == ("pack", sum(file.size for file in pack.files))
    assert describe_input([pack]) == "40 plain text (blank lines); 0.0 MB"
    assert [*map(len, pack.kinds)] == [4] and pack.paths == sorted(pack.paths)
    with pytest.raises(ConfigError, match="has 1 folders and files"):  # all text is left out
        corpus_sources("mine", [str(tmp_path / "in")], by_folder=True)
    assert "40 other file(s) are skipped (en.00.txt, en.01.txt, " in capsys.readouterr().out
    (tmp_path / "in/yo.jsonl").write_text(LINE)
    _, sources = corpus_sources("mine", [str(tmp_path / "in")], by_folder=True)
    assert [source.name for source in sources] == ["sw.jsonl", "yo.jsonl"]


def test_the_corpus_decides_how_plain_text_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("One.\n\nTwo.\n")
    assert corpus_sources("bookcorpus", [str(tmp_path)])[1][0].plain_text == "book"
    assert corpus_sources("stories", [str(tmp_path)])[1][0].plain_text == "blank_lines"
    chosen = corpus_sources("stories", [str(tmp_path)], plain_text="file")
    assert chosen[1][0].plain_text == "file"


def test_mistakes_are_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean cc-news"):
        corpus_sources("cc_news", [])
    with pytest.raises(ConfigError, match="needs its files"):
        corpus_sources("stories", [])
    with pytest.raises(DataError, match="no files"):
        corpus_sources("stories", [str(tmp_path)])


def test_the_order_of_arguments_does_not_matter(tmp_path: Path) -> None:
    for file in ("b.jsonl", "a.jsonl"):
        (tmp_path / file).write_text(LINE)
    given = [str(tmp_path / "b.jsonl"), str(tmp_path / "a.jsonl")]
    assert corpus_sources("mine", given) == corpus_sources("mine", given[::-1])


def test_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(LINE)
    with pytest.raises(ConfigError, match="is empty; give a name"):
        corpus_sources("mine", [""])
    with pytest.raises(ConfigError, match="not a valid directory name"):
        corpus_sources(str(tmp_path / "*.jsonl"), [])
    spaced = tmp_path / "my text.jsonl"
    spaced.write_text(LINE)
    advice = f"; use --corpus my-text --input '{spaced}'"
    with pytest.raises(ConfigError, match=re.escape(advice) + "$"):
        corpus_sources(str(spaced), [])
    assert corpus_sources(own_name(spaced), [str(spaced)])[0] == "my-text"
    names = ("a/news.jsonl.gz", "wikipedia", "sample.txt", ".a", "-b")
    assert [own_name(Path(name)) for name in names] == [
        "news", "my-wikipedia", "my-sample", "corpus", "b",
    ]  # fmt: skip
    corpus_sources("cc_news", [str(path)])
    assert "if you meant cc-news" in capsys.readouterr().out


def test_describe_input_counts_formats(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(LINE)
    (tmp_path / "notes.md").write_text("One.\n")
    text = describe_input(corpus_sources("wikipedia", [str(tmp_path)], plain_text="file")[1])
    assert text == "1 JSON lines, 1 plain text (file); 0.0 MB"


def test_notes_about_plain_text_are_the_same_in_every_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.txt").write_text("One.\n\n" * 11)
    sources = corpus_sources("mine", [str(tmp_path)])[1]
    print_input(sources, "input")
    first, note = capsys.readouterr().out.splitlines()
    assert first == "input: 1 plain text (blank lines); 0.0 MB"
    assert "mine: plain text is read as documents between blank lines" in note
    for command in ("preparation/corpus_files.py", "inspection/inspect_documents.py"):
        text = (Path(sources_module.__file__).parents[2] / "data" / command).read_text()
        assert "print_input(" in text


def test_pages_per_domain_applies_to_warc_files_only(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(LINE)
    (tmp_path / "b.warc").write_text("WARC/1.0\r\n")
    sources = corpus_sources("cc-news", [str(tmp_path)])[1]
    assert [source.pages.per_domain for source in limit_pages(sources, 3, "")] == [0, 3]
    assert limit_pages(sources, 0, "") == sources
    with pytest.raises(ConfigError, match="--pages-per-domain 3: no input is a WARC"):
        limit_pages(sources[:1], 3, "")
    with pytest.raises(ConfigError, match="choose 1 or more"):
        limit_pages(sources, -1, "")


def test_each_entry_of_a_directory_is_a_corpus_if_asked(tmp_path: Path) -> None:
    """Hidden ones are skipped, and a folder and a file of one name are one corpus."""
    for file in ("sw/1.jsonl", "en/1.jsonl", "en/2/3.jsonl", "en.jsonl", ".git/x", "yo.jsonl"):
        (tmp_path / "in" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / file).write_text(LINE)
    name, sources = corpus_sources("mine", [str(tmp_path / "in")], by_folder=True)
    found = [(source.corpus, source.name) for source in sources]
    assert name == "mine" and [corpus for corpus, _ in found] == ["en", "en", "en", "sw", "yo"]
    assert len({source.name for source in sources if source.corpus == "en"}) == 3
    assert describe_corpus("mine", False, sources) == "your corpus en, sw, yo"
    many = [replace(sources[0], corpus=f"l{number}") for number in range(1833)]
    assert describe_corpus("mine", False, many) == "your corpus mine of 1,833 folders"
    one, file = str(tmp_path / "in/en/2"), str(tmp_path / "in/yo.jsonl")
    for corpus, inputs, message in (
        ("mine", [file], "takes a --corpus name of your own and one local directory"),
        ("mine", [one, one], "got --corpus mine and 2 of --input"),
        ("mine", [], "and 0 of --input"),
        ("wikipedia", [one], "got --corpus wikipedia"),
        ("mine", [one], "has 1 folders and files; omit --by-folder"),
        ("a/b", [str(tmp_path / "in")], "is not a valid directory name"),
    ):
        with pytest.raises(ConfigError, match=message):
            corpus_sources(corpus, inputs, by_folder=True)
    (tmp_path / "in/new guinea").mkdir()
    with pytest.raises(ConfigError, match="new guinea does not name a corpus; use letters"):
        corpus_sources("mine", [str(tmp_path / "in")], by_folder=True)


def test_files_beside_the_folders_of_corpora_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of files that describe, always; of other plain text, if the records are most of the bytes;
    all are read with --plain-text."""
    for file in ("en/1.jsonl", "sw.jsonl"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(LINE)
    (tmp_path / "yo").mkdir()
    (tmp_path / "yo/README").write_text("A folder of plain text.\n")
    for file in ("README.md", "LICENSE", "list.txt"):
        (tmp_path / file).write_text("Text.\n")
    _, sources = corpus_sources("mine", [str(tmp_path)], by_folder=True)
    assert [source.corpus for source in sources] == ["en", "sw", "yo"]
    assert (
        "3 other file(s) are skipped (LICENSE, README.md, list.txt); --plain-text reads them"
        in (capsys.readouterr().out)
    )
    _, sources = corpus_sources("mine", [str(tmp_path)], plain_text="file", by_folder=True)
    assert {source.corpus for source in sources} == {"LICENSE", "README", "en", "list", "sw", "yo"}
    assert "left out" not in capsys.readouterr().out
    (tmp_path / "list.txt").write_text("Text.\n" * 20)
    _, sources = corpus_sources("mine", [str(tmp_path)], by_folder=True)
    assert [source.corpus for source in sources] == ["en", "list", "sw", "yo"]
    assert "2 other file(s) are skipped (LICENSE, README.md)" in capsys.readouterr().out
