"""Corpora by name and by path: their files, order and labels."""

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
    keep_language,
    own_name,
    print_input,
)
from tests.pipeline.ingest.files import LINE, put, put_all


def test_the_sample_has_all_five_shapes() -> None:
    name, sources = corpus_sources("sample", [])
    assert name == "sample"
    assert list(dict.fromkeys(source.corpus for source in sources)) == list(SAMPLE_CORPORA)
    assert {source.compression for source in sources} >= {"", "gz", "zst"}
    assert 2e6 < sum(source.size for source in sources) < 4e6


def test_paths_in_any_order(tmp_path: Path) -> None:
    put_all(tmp_path, "b/2.jsonl", "b/10.jsonl", "a.jsonl")
    _, found = corpus_sources("cc-news", [str(tmp_path)])
    assert [source.name for source in found] == ["a.jsonl", "b/10.jsonl", "b/2.jsonl"]
    given = [str(tmp_path / "b/2.jsonl"), str(tmp_path / "a.jsonl")]
    assert corpus_sources("mine", given) == corpus_sources("mine", given[::-1])
    name, [source] = corpus_sources(str(tmp_path / "a.jsonl"), [])
    assert (name, source.name, source.corpus) == ("a", "a.jsonl", "a")


def test_a_file_takes_little_memory(tmp_path: Path) -> None:
    """Less than 100 bytes: a corpus can have a million."""
    files = 1000
    put_all(tmp_path, *(f"{n // 100:03d}/article-{n:06d}.jsonl" for n in range(files)))
    corpus_sources("cc-news", [str(tmp_path)])  # what Python keeps of the objects that it frees
    tracemalloc.start()
    _, sources = corpus_sources("cc-news", [str(tmp_path)])
    gc.collect()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(number for source in sources for _, _, number, _ in source.kinds) == files
    assert kept < 100 * files, kept


def test_small_files_are_grouped(tmp_path: Path) -> None:
    """What is said of them is what is said of single files."""
    for number in range(40):
        put(tmp_path / f"in/en.{number:02d}.txt", "One.\n\nTwo.\n" * (number + 1))
    put(tmp_path / "in/sw.jsonl", LINE * 1000)
    _, [pack] = corpus_sources("mine", [str(tmp_path / "in/*.txt")])
    assert (pack.format, pack.size) == ("pack", sum(file.size for file in pack.files))
    assert describe_input([pack]) == "40 plain text (blank lines); 0.0 MB"
    assert [*map(len, pack.kinds)] == [4] and pack.paths == sorted(pack.paths)


def test_how_plain_text_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The corpus decides, unless the command does; every command says the same of it."""
    put(tmp_path / "a.txt", "One.\n\n" * 11)
    for corpus, chosen, expected in (
        ("bookcorpus", "", "book"), ("stories", "", "blank_lines"), ("stories", "file", "file"),
    ):  # fmt: skip
        [source] = corpus_sources(corpus, [str(tmp_path)], plain_text=chosen)[1]
        assert source.plain_text == expected
    print_input(corpus_sources("mine", [str(tmp_path)])[1], "input")
    first, note = capsys.readouterr().out.splitlines()
    assert first == "input: 1 plain text (blank lines); 0.0 MB"
    assert "mine: plain text is read as documents between blank lines" in note
    for command in ("preparation/corpus_files.py", "inspection/inspect_documents.py"):
        text = (Path(sources_module.__file__).parents[2] / "data" / command).read_text()
        assert "print_input(" in text
    put(tmp_path / "a.jsonl")
    text = describe_input(corpus_sources("wikipedia", [str(tmp_path)], plain_text="file")[1])
    assert text == "1 JSON lines, 1 plain text (file); 0.0 MB"


def test_names_and_mistakes_in_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spaced = put(tmp_path / "my text.jsonl")
    for corpus, inputs, message in (
        ("cc_news", [], "did you mean cc-news"), ("stories", [], "stories needs"),
        ("mine", [""], "is empty"), (str(tmp_path / "*.jsonl"), [], "not a valid directory name"),
        (str(spaced), [], re.escape(f"--corpus my-text --input '{spaced}'")),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=message):
            corpus_sources(corpus, inputs)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no files"):
        corpus_sources("stories", [str(tmp_path / "empty")])
    assert corpus_sources(own_name(spaced), [str(spaced)])[0] == "my-text"
    for name, own in (
        ("a/news.jsonl.gz", "news"), ("wikipedia", "my-wikipedia"), ("sample.txt", "my-sample"),
        (".a", "corpus"), ("-b", "b"),
    ):  # fmt: skip
        assert own_name(Path(name)) == own
    corpus_sources("cc_news", [str(spaced)])
    assert "if you meant cc-news" in capsys.readouterr().out


def test_a_language_applies_to_warc_files_only(tmp_path: Path) -> None:
    put(tmp_path / "a.jsonl")
    put(tmp_path / "b.warc", "WARC/1.0\r\n")
    sources = corpus_sources("cc-news", [str(tmp_path)])[1]
    assert [source.page_language for source in keep_language(sources, "en")] == ["", "en"]
    assert keep_language(sources, "") == sources
    with pytest.raises(ConfigError, match="--language en: no input is a WARC"):
        keep_language(sources[:1], "en")


def test_each_entry_of_a_directory_is_a_corpus_if_asked(tmp_path: Path) -> None:
    """Hidden ones are skipped, and a folder and a file of one name are one corpus."""
    folder = tmp_path / "in"
    put_all(folder, "sw/1.jsonl", "en/1.jsonl", "en/2/3.jsonl", "en.jsonl", ".git/x", "yo.jsonl")
    name, sources = corpus_sources("mine", [str(folder)], by_folder=True)
    assert name == "mine"
    assert [source.corpus for source in sources] == ["en", "en", "en", "sw", "yo"]
    assert len({source.name for source in sources if source.corpus == "en"}) == 3
    assert describe_corpus("mine", False, sources) == "your corpus en, sw, yo"
    many = [replace(sources[0], corpus=f"l{number}") for number in range(1833)]
    assert describe_corpus("mine", False, many) == "your corpus mine of 1,833 folders"
    one, file = str(folder / "en/2"), str(folder / "yo.jsonl")
    put_all(tmp_path / "named", "new guinea/a", "yo/a")
    for corpus, inputs, message in (
        ("mine", [file], "one local directory"), ("mine", [one, one], "corpus mine and 2 of"),
        ("mine", [], "and 0 of --input"), ("wikipedia", [one], "got --corpus wikipedia"),
        ("mine", [one], "has 1 folders"), ("a/b", [str(folder)], "a/b"),
        ("mine", [str(tmp_path / "named")], "new guinea"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=message):
            corpus_sources(corpus, inputs, by_folder=True)
