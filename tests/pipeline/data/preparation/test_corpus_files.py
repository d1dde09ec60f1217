"""The --corpus and --input of a command -> the files of its corpus."""

from argparse import Namespace
from collections import Counter
from pathlib import Path

import pytest

from pipeline.data.preparation.corpus_files import find_sources
from pipeline.ingest.documents import read as reading
from pipeline.recipes import recipe
from tests.pipeline.preparing import Prepare, write_jsonl

DATA = recipe("roberta_tiny").data


def arguments(corpus: object, *inputs: object, by_folder: bool = False) -> Namespace:
    return Namespace(
        corpus=str(corpus), input=[str(path) for path in inputs], revision="", text_field="",
        plain_text="", pages_per_domain=0, months="", dump="", mirror=[],
        keep_downloads=False, skip_missing=False, language="", by_folder=by_folder,
        map="", filter=[],
    )  # fmt: skip


def test_whose_corpus_it_is_and_its_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A user's own, one for each language, a named one and the sample."""
    for name in ("sw/a.jsonl", "sw/b/c.jsonl", "en/x.jsonl", "yo.jsonl"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        write_jsonl(tmp_path / "in" / name, ["One."])
    file = write_jsonl(tmp_path / "mine.jsonl", ["One."])
    own = find_sources(arguments(file), DATA)
    assert capsys.readouterr().out.startswith("input: 1 JSON lines")
    assert [source.name for source in own.files] == ["mine.jsonl"]
    folders = find_sources(arguments("mine", tmp_path / "in", by_folder=True), DATA)
    assert [source.corpus for source in folders.files] == ["en", "sw", "sw", "yo"]
    for found, name, named, description in (
        (own, "mine", False, "your corpus mine"),
        (folders, "mine", False, "your corpus en, sw, yo"),
        (find_sources(arguments("cc-news", file), DATA), "cc-news", True, "cc-news"),
        (find_sources(arguments("sample"), DATA), "sample", False, "the sample"),
    ):
        assert (found.corpus, found.name, found.named) == (name, name, named)
        assert found.description == description


def test_the_ends_of_a_file_are_read_once(
    tmp_path: Path, run: Prepare, make: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tokenizer's folders and the shards' fingerprint share one read."""
    monkeypatch.setenv("TENFOLD_ROOT", str(tmp_path / "root"))
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
