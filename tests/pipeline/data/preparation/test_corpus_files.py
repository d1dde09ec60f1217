"""The --corpus and --input of a command -> the files of its corpus."""

from collections import Counter
from pathlib import Path

import pytest

from pipeline.data.preparation.corpus_files import FoundCorpus, find_sources
from pipeline.data.preparation.prepare_arguments import prepare_arguments
from pipeline.ingest.documents import read as reading
from pipeline.recipes import recipe
from tests.pipeline.ingest.files import put, put_all
from tests.pipeline.preparing import Prepare, write_jsonl


def found_of(*words: object) -> FoundCorpus:
    arguments = prepare_arguments([*map(str, ("--corpus", *words))])
    return find_sources(arguments, recipe("roberta_tiny").data)


def test_whose_corpus_it_is_and_its_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A user's own, one for each language, a named one and the sample."""
    put_all(tmp_path / "in", "sw/a.jsonl", "sw/b/c.jsonl", "en/x.jsonl", "yo.jsonl")
    file = put(tmp_path / "mine.jsonl")
    own = found_of(file)
    assert capsys.readouterr().out.startswith("input: 1 JSON lines")
    assert [source.name for source in own.files] == ["mine.jsonl"]
    folders = found_of("mine", "--input", tmp_path / "in", "--by-folder")
    assert [source.corpus for source in folders.files] == ["en", "sw", "sw", "yo"]
    for found, name, named, description in (
        (own, "mine", False, "your corpus mine"),
        (folders, "mine", False, "your corpus en, sw, yo"),
        (found_of("cc-news", "--input", file), "cc-news", True, "cc-news"),
        (found_of("sample"), "sample", False, "the sample"),
    ):
        assert (found.corpus, found.name, found.named) == (name, name, named)
        assert found.description == description


@pytest.mark.usefixtures("root")
def test_the_ends_of_a_file_are_read_once(
    tmp_path: Path, run: Prepare, make: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tokenizer's folders and the shards' fingerprint share one read."""
    read: Counter[str] = Counter()
    ends = reading.file_ends

    def counted(path: str) -> str:
        read[Path(path).name] += 1
        return ends(path)

    monkeypatch.setattr(reading, "file_ends", counted)
    file = write_jsonl(tmp_path / "in.jsonl", ["A text. Fine.", "More of it. Fine, too."])
    given = ("--corpus", file, "--workers", 1, "--set", "data.duplicates=1")
    make(*given)
    assert read == {"in.jsonl": 1}
    read.clear()
    run(*given, "--recipe", "roberta_tiny", "--output", tmp_path / "trained")
    assert read == {"in.jsonl": 1}
