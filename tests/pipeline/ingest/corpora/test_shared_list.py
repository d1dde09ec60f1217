"""One of the parts of a job finds the files of a corpus; the others read its list."""

import functools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pipeline.base.errors import DataError
from pipeline.ingest.corpora import sources as module
from pipeline.ingest.corpora.shared_list import ENDING, SharedLists
from pipeline.ingest.corpora.sources import corpus_sources
from pipeline.ingest.documents.records import FoundAs, Source
from tests.pipeline.ingest.files import put

TABLE = "id,text\n1,One. Two.\n"


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


Found = tuple[Source, FoundAs]
Part = Callable[..., list[Found]]


@pytest.fixture
def part(tmp_path: Path) -> Iterator[Part]:
    """What a part of a job finds; each runs on until the test ends."""
    with ExitStack() as running:
        yield functools.partial(found, tmp_path, running)


def found(folder: Path, running: ExitStack, place: str = "in", **how: str) -> list[Found]:
    """The sources, with what two of them are not compared by."""
    lists = SharedLists(folder / "lists", running)
    _, sources = corpus_sources("mine", [str(folder / place)], **how, lists=lists)
    return [(source, source.found) for source in sources]


def lists(folder: Path) -> list[Path]:
    return [*(folder / "lists").glob(f".*{ENDING}")]


def write(folder: Path, place: str = "in") -> None:
    """Files of several formats, one with a strange name, and an empty folder."""
    (folder / place / "sub" / "empty").mkdir(parents=True)
    put(folder / place / "a.jsonl")
    put(folder / place / "sub" / "b\n\u0645.csv", TABLE)
    put(folder / place / "README", "About these files.")


def test_another_part_asks_about_no_file(part: Part, tmp_path: Path, opened: list[str]) -> None:
    place = "\udcff"  # a name that is not UTF-8
    write(tmp_path, place)
    first = part(place)
    assert sorted(opened) == ["a.jsonl", "b\n\u0645.csv"]
    opened.clear()
    for file in (tmp_path / place).rglob("*"):
        if file.is_file():
            file.write_text(file.read_text() * 2)  # whoever reads it will see that
    assert part(place) == first and not opened
    (tmp_path / place / "README").unlink()
    put(tmp_path / place / "sub" / "empty" / "c.csv", TABLE)
    assert [source.name for source, _ in part(place)] == [
        "a.jsonl", "sub/b\\n\u0645.csv", "sub/empty/c.csv",
    ]  # fmt: skip


def test_a_job_does_not_use_the_list_of_an_earlier_one(tmp_path: Path, opened: list[str]) -> None:
    write(tmp_path)
    file = tmp_path / "in" / "a.jsonl"
    for change in (
        lambda: None,
        lambda: file.write_text('{"text": "Three."}\n'),
        lambda: os.utime(file, ns=(0, 0)),
    ):
        change()
        opened.clear()
        with ExitStack() as running:
            first = found(tmp_path, running)
            assert len(opened) == 2 and first == found(tmp_path, running)
            assert len(opened) == 2 and len(lists(tmp_path)) == 1
    state = file.stat()
    assert first[0][0].state == (state.st_size, state.st_mtime_ns)


def test_another_way_to_read_or_another_match_has_another_list(part: Part, tmp_path: Path) -> None:
    write(tmp_path)
    part()
    assert {source.plain_text for source, _ in part(plain_text="lines")} == {"lines"}
    assert len(lists(tmp_path)) == 2
    put(tmp_path / "in" / "x" / "d.csv", TABLE)
    assert len(part("in/*/*.csv")) == 2
    assert len(lists(tmp_path)) == 3
    put(tmp_path / "in" / "x" / "e.csv", TABLE)
    assert len(part("in/*/*.csv")) == 3


def test_others_wait_for_who_looks(
    part: Part, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it fails, another one looks, and none takes the list of an earlier job."""
    write(tmp_path)
    with ExitStack() as earlier:
        found(tmp_path, earlier)
    (tmp_path / "in" / "a.jsonl").write_text('{"text": "Three."}\n')
    looking, sniff = threading.Event(), module.sniff

    def fail(*_: object, **__: object) -> Source:
        looking.set()
        thread.join(timeout=0.5)
        assert thread.is_alive(), "it has not waited"
        monkeypatch.setattr(module, "sniff", sniff)
        raise DataError("as if the disk had failed")

    second = list[Found]()
    thread = threading.Thread(target=lambda: looking.wait() and second.extend(part()))
    monkeypatch.setattr(module, "sniff", fail)
    thread.start()
    with pytest.raises(DataError, match="as if the disk"), ExitStack() as running:
        found(tmp_path, running)
    thread.join(timeout=30)
    assert second[0][0].size == len('{"text": "Three."}\n')


@pytest.mark.usefixtures("no_locks")
def test_without_locks_each_part_looks(part: Part, tmp_path: Path, opened: list[str]) -> None:
    write(tmp_path)
    assert part() == part() and len(opened) == 4


def test_an_error_leaves_no_list_and_a_damaged_one_is_named(part: Part, tmp_path: Path) -> None:
    write(tmp_path)
    bad = put(tmp_path / "in" / "bad", bytes(range(256)))
    for _ in range(2):
        with pytest.raises(DataError, match="bad is binary"), ExitStack() as running:
            found(tmp_path, running)
    assert not lists(tmp_path)
    bad.unlink()
    part()
    [path] = lists(tmp_path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DataError, match=rf"{path.name} is damaged .*; remove it"):
        part()
