"""Dumps are read once: by processes on one machine, or parts of an array."""

import bz2
import functools
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipeline.base.errors import DataError
from pipeline.base.files import one_at_a_time, temporary_path
from pipeline.execution.ledger import lock_of
from pipeline.execution.workers import AnyTask, Executor, Stage, local_executor
from pipeline.ingest.corpora.published_dumps import Selected
from pipeline.ingest.documents.records import EXTRACTED, BadRecord, Dropped, Extract, Record, Source
from pipeline.ingest.documents.unchanged import RawContent
from pipeline.ingest.extraction import extract as extraction
from pipeline.ingest.extraction import places, unit_files, units
from pipeline.ingest.extraction.extract import extract
from pipeline.ingest.extraction.units import FORMATS, SlowFormat, cut_units
from tests.pipeline.ingest.dump import large_dump, small_dump
from tests.pipeline.ingest.files import put, read_all, sniffed
from tests.pipeline.ingest.tars import extracted
from tests.pipeline.ingest.web_archive import page as web_page
from tests.pipeline.preparing import Prepare, wait_until
from tests.pipeline.remote.publishers import Publisher
from tests.temporaries import temporary_of_the_dead


def sources(*paths: Path) -> list[Source]:
    return [sniffed(path) for path in paths]


def test_every_page_is_a_document_or_counted_as_dropped(tmp_path: Path) -> None:
    path, documents = put(tmp_path / "small.xml", small_dump()), tmp_path / "documents"
    made = extracted(path, documents)
    assert made.format == EXTRACTED and made.name == "small.xml"
    rows = pq.read_table(made.path).to_pylist()
    assert [row["id"] for row in rows] == ["1", "2", "3", "4", "5"]
    assert [row["dropped"] is None for row in rows] == [row["text"] is not None for row in rows]
    written = Path(made.path).stat().st_mtime_ns
    assert extracted(path, documents) == made and Path(made.path).stat().st_mtime_ns == written
    put(path, small_dump().replace(b"river", b"River"))
    assert extracted(path, documents).path != made.path


def test_a_file_is_not_read_as_another_with_the_same_name_and_ends(tmp_path: Path) -> None:
    line = b"A line.\n" * 10_000
    files = [put(tmp_path / word / "x.txt", line + word.encode() + line) for word in ("one", "two")]
    with pytest.raises(DataError, match=r"two/x[.]txt"):
        extract(sources(*files), tmp_path / "documents", local_executor(1))


def test_a_file_is_the_same_through_another_folder(tmp_path: Path) -> None:
    """It is read once; the documents' ids use the name that the user gave."""
    path, documents = put(tmp_path / "deep" / "small.xml", small_dump()), tmp_path / "documents"
    alone, inside = sniffed(path), replace(sniffed(path), name="deep/small.xml")
    first = extracted(path, documents)
    again = extract([inside, alone], documents, local_executor(1))
    assert [source.path for source in again] == [first.path] * 2
    assert [source.name for source in again] == ["deep/small.xml", "small.xml"]
    assert len([*documents.glob("*.parquet")]) == 1
    ids = [read_all(source)[0].id for source in again]  # type: ignore[union-attr]
    assert ids == ["deep/small.xml@0", "small.xml@0"]


def test_every_record_is_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path / "small.xml", small_dump())
    kept = Extract("1", "http://a.org/1", "One", "Text.", "", "2016", "en", "a.org", 10)
    records = [kept, replace(kept, text="", dropped="redirect"), BadRecord("small.xml:3", "torn")]
    found = [((number, 0), record) for number, record in enumerate(records)]
    format = SlowFormat(lambda source, start: iter(found), lambda source, raw: [raw], 1, ())
    monkeypatch.setitem(FORMATS, "mediawiki", format)
    made = extracted(path, tmp_path / "documents")
    assert read_all(made) == [
        Record("small.xml@0", "http://a.org/1", "Text."), Dropped("small.xml@1", "redirect"),
        BadRecord("small.xml:3", "torn"),
    ]  # fmt: skip
    monkeypatch.setitem(FORMATS, "mediawiki", replace(format, code=2))
    assert extracted(path, tmp_path / "documents").path != made.path


@pytest.fixture
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "BLOCK_BYTES", 2000)
    monkeypatch.setattr(units, "PLAIN_UNIT_BYTES", 10_000)


def stopping_after(count: int, done: list[str]) -> Executor:
    """An executor that is killed when it has done `count` tasks; `done` gets their names."""

    def run(stage: Stage[AnyTask], tasks: list[AnyTask]) -> Iterator[tuple[AnyTask, None]]:
        do_task = stage.start()
        for task in tasks:
            if task.marker and len(done) == count:
                raise KeyboardInterrupt
            do_task(task)
            done.extend([task.marker] if task.marker else [])
            yield task, None

    return Executor(run)


@pytest.mark.usefixtures("small_units")
def test_a_file_is_extracted_in_units_that_a_kill_keeps(tmp_path: Path) -> None:
    path = large_dump(tmp_path / "pages.xml", 120)
    whole = extracted(path, tmp_path / "whole")
    documents, done = tmp_path / "documents", list[str]()
    for count in (2, 3, 6):
        with pytest.raises(KeyboardInterrupt):
            extract(sources(path), documents, stopping_after(count, done))
        assert not [*documents.glob("[!.]*.parquet")]
    made = extracted(path, documents, stopping_after(99, done))
    assert len(done) == len(set(done)) == len(cut_units(sources(path)[0])) + 1 > 5
    assert Path(made.path).read_bytes() == Path(whole.path).read_bytes()
    left, stem = {entry.name for entry in documents.iterdir()}, Path(made.path).stem
    assert left == {f"{stem}.parquet", f".{stem}.lock", f".{stem}.content.json"}


@pytest.mark.usefixtures("small_units")
def test_parts_of_an_array_start_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [large_dump(tmp_path / f"{name}.xml", 60) for name in "ab"]
    first, second = list[str](), list[str]()
    documents = tmp_path / "documents"
    for part, done in (((1, 2), first), ((2, 2), second)):
        with pytest.raises(KeyboardInterrupt):
            extract(sources(*paths), documents, stopping_after(2, done), part)
    assert all(name.startswith(".a.xml") for name in first)
    assert all(name.startswith(".b.xml") for name in second)
    monkeypatch.setattr(extraction, "_GROUP_BYTES", 1000)
    made = extract(sources(*paths), documents, local_executor(1), (2, 2))
    assert [Path(source.path).exists() for source in made] == [True, True]


PAGES = 120
DUMP = "simplewiki/20260101"


@pytest.fixture
def one_file(server: Publisher, tmp_path: Path) -> Publisher:
    """A dump of one file with a bzip2 stream for each page."""
    pages = large_dump(tmp_path / "pages.xml", PAGES).read_bytes().split(b"  <page>")
    parts = [pages[0], *(b"  <page>" + page for page in pages[1:])]
    server.put_dump(DUMP, {".xml.bz2": b"".join(map(bz2.compress, parts))})
    return server


def in_small_units(
    start: Callable[[], Callable[[AnyTask], None]], log: Path
) -> Callable[[AnyTask], None]:
    """Prepares a worker to log its process and the place of each unit.

    Workers begin together: alone, one could do all units before the other has started.
    """

    def note(what: object) -> None:
        with log.open("a") as file:
            file.write(f"{os.getpid()} {what}\n")

    def write_and_note(unit: units.Unit, begin: places.Place, path: Path) -> None:
        wait_until(lambda: log.read_text().count("started") > 1)
        write(unit, begin, path)
        time.sleep(0.05)
        note(unit.start)

    units.UNIT_BYTES = 3000
    write = unit_files.write_unit
    unit_files.write_unit = extraction.write_unit = write_and_note
    note("started")
    return start()


@pytest.mark.usefixtures("quick_workers")
def test_two_workers_share_a_published_file(
    one_file: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both extract units; the file is fetched once, and no copy stays."""
    selected = Selected(dump=DUMP, mirrors=[one_file.address])
    [source] = selected.sources(tmp_path / "downloads")["wikipedia"]
    [alone] = extract([source], tmp_path / "alone", local_executor(1))
    asked = len(one_file.gets())
    monkeypatch.setattr(units, "UNIT_BYTES", 3000)
    log, documents = tmp_path / "log", tmp_path / "documents"

    def run(stage: Stage[AnyTask], tasks: list[AnyTask]) -> Iterator[tuple[AnyTask, None]]:
        start = functools.partial(in_small_units, stage.start, log)
        yield from local_executor(2).runner(replace(stage, start=start), tasks)

    [made] = extract([source], documents, Executor(run))
    lines = [line.split() for line in log.read_text().splitlines()]
    done = [(process, start) for process, start in lines if start != "started"]
    assert str(os.getpid()) not in {process for process, _ in lines}
    assert len({process for process, _ in done}) == 2, "both"
    starts = {start for _, start in done}
    assert len(done) == len(starts) == len(cut_units(source)) >= 8, "each once"
    assert Path(made.path).read_bytes() == Path(alone.path).read_bytes()
    assert len(one_file.gets()) == asked + 1
    assert not [*(tmp_path / "downloads").rglob("*.bz2*.copy")]
    assert {entry.suffix for entry in documents.iterdir()} == {".parquet", ".lock", ".json"}
    assert len([*documents.iterdir()]) == 3


def test_a_part_helps_with_the_file_that_another_part_makes(
    one_file: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units, "UNIT_BYTES", 3000)
    [source] = Selected(dump=DUMP, mirrors=[one_file.address]).sources(tmp_path)["wikipedia"]
    documents = tmp_path / "documents"
    documents.mkdir()
    target = extraction._task(source, documents).target
    count = len(cut_units(source))
    is_made = threading.Event()

    def make_it() -> None:
        with one_at_a_time(lock_of(target)):
            is_locked.set()
            while len([*documents.glob(".*[0-9].parquet")]) < count and not is_over.wait(0.01):
                pass
            is_made.set()

    is_locked, is_over = threading.Event(), threading.Event()
    other = threading.Thread(target=make_it)
    other.start()
    is_locked.wait(10)
    timer = threading.Timer(60, is_over.set)
    timer.start()
    [made] = extract([source], documents, local_executor(1), (2, 2))
    assert is_made.is_set() and not is_over.is_set()
    timer.cancel()
    other.join()
    assert Path(made.path).exists()
    assert len([*documents.iterdir()]) == 3


def test_only_temporary_files_of_the_dead_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, documents = large_dump(tmp_path / "pages.xml", 2), tmp_path / "documents"
    documents.mkdir()
    now = temporary_path(documents / "now-1.parquet")
    for left in (temporary_of_the_dead(documents / ".old-12.0-99.parquet"), now):
        left.write_bytes(b"half")
    extracted(path, documents)
    assert [*documents.glob(".*.tmp")] == [now], "this process may be writing it"
    # HTML files are one unit, which is written with its file, while another process starts
    path, documents = put(tmp_path / "a.html", web_page("Story")), tmp_path / "live"
    write = unit_files.write_unit

    def write_and_start(unit: units.Unit, start: places.Place, path: Path) -> None:
        write(unit, start, path)
        extracted(large_dump(tmp_path / "new.xml", 2), documents)

    monkeypatch.setattr(unit_files, "write_unit", write_and_start)
    made = extracted(path, documents)
    assert made.name == "a.html" and Path(made.path).exists()
    assert not [*documents.glob("*.tmp"), *documents.glob("..*")]


@pytest.mark.usefixtures("small_units")
def test_units_that_others_remove(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may put the file together while this one looks at the units."""
    path, documents = large_dump(tmp_path / "pages.xml", 60), tmp_path / "documents"
    with pytest.raises(KeyboardInterrupt):
        extract(sources(path), documents, stopping_after(2, []))
    is_unit_of = extraction.is_unit_of

    def when_it_is_gone(content: RawContent, unit: Path) -> bool:
        unit.unlink(missing_ok=True)
        return is_unit_of(content, unit)

    monkeypatch.setattr(extraction, "is_unit_of", when_it_is_gone)
    assert Path(extracted(path, documents).path).exists()


def test_a_damaged_dump_leaves_no_file_and_an_estimate_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Prepare
) -> None:
    monkeypatch.setenv("TENFOLD_ROOT", str(tmp_path / "root"))
    path, documents = put(tmp_path / "small.xml", small_dump()[:-100]), tmp_path / "root/documents"
    large = large_dump(tmp_path / "pages.xml", 300)
    said = make("--corpus", "wikipedia", "--dry-run", "--input", large)
    assert "wikipedia: about 300 documents" in said and not documents.exists()
    assert f"{path} is truncated" in make("--corpus", "wikipedia", "--input", path, code=2)
    assert not [*documents.glob("*.parquet"), *documents.glob("*.tmp")]
