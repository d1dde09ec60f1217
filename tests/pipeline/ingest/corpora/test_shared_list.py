"""One of several processes opens the files of a corpus; the others read what it found."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipeline.base.errors import DataError
from pipeline.ingest.corpora import sources as module
from pipeline.ingest.corpora.shared_list import ENDING
from pipeline.ingest.corpora.sources import corpus_sources
from pipeline.ingest.documents.records import Source


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files whose formats were found out so far."""
    names: list[str] = []
    sniff = module.sniff

    def counted(path: str, **how: object) -> Source:
        names.append(Path(path).name)
        return sniff(path, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "sniff", counted)
    return names


def found(folder: Path, place: str = "in", **how: str) -> list[tuple[object, ...]]:
    """The sources, with what two of them are not compared by."""
    _, sources = corpus_sources("mine", [str(folder / place)], **how, lists=folder / "lists")
    return [(source, source.found) for source in sources]


def lists(folder: Path) -> set[Path]:
    return {*(folder / "lists").glob(f".*{ENDING}")}


def write(folder: Path, place: str = "in") -> None:
    """Files of several formats, one with a strange name."""
    inside = folder / place
    inside.mkdir(parents=True)
    (inside / "a.jsonl").write_text('{"text": "One. Two."}\n')
    (inside / "b\n\u0645.csv").write_text("id,text\n1,One. Two.\n")
    (inside / "README").write_text("About these files.")


def test_the_second_process_opens_no_file(tmp_path: Path, opened: list[str]) -> None:
    place = "\udcff"  # a name that is not UTF-8
    write(tmp_path, place)
    first = found(tmp_path, place)
    assert sorted(opened) == ["a.jsonl", "b\n\u0645.csv"]
    opened.clear()
    assert found(tmp_path, place) == first and not opened
    assert corpus_sources("mine", [str(tmp_path / place)])[1] == [source for source, *_ in first]
    assert opened, "a process that shares nothing looks itself"


def test_a_corpus_that_changes_has_another_list(tmp_path: Path, opened: list[str]) -> None:
    """A file that is added, edited or only dated, and another way to read the same files."""
    write(tmp_path)
    found(tmp_path)
    file = tmp_path / "in" / "c"
    for change in (
        lambda: file.write_text('{"text": "Three."}\n'),
        lambda: file.write_text("This is a text now."),
        lambda: os.utime(file, ns=(0, 0)),
    ):
        known = lists(tmp_path)
        change()
        opened.clear()
        now = found(tmp_path)
        assert "c" in opened and len(lists(tmp_path) - known) == 1
        assert now == found(tmp_path)
    known = lists(tmp_path)
    assert found(tmp_path, plain_text="lines") != now
    assert len(lists(tmp_path) - known) == 1


def test_an_error_leaves_no_list(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "in" / "bad").write_bytes(bytes(range(256)))
    for _ in range(2):
        with pytest.raises(DataError, match="bad is binary"):
            found(tmp_path)
    assert not lists(tmp_path)


def test_a_damaged_list_is_named(tmp_path: Path) -> None:
    write(tmp_path)
    found(tmp_path)
    [path] = lists(tmp_path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DataError, match=rf"{path.name} is damaged .*; remove it and rerun"):
        found(tmp_path)
