"""Dumps are read once: by processes on one machine, or parts of an array."""

import bz2
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.base.errors import DataError
from pipeline.base.files import one_at_a_time, temporary_path
from pipeline.execution.ledger import lock_of
from pipeline.execution.workers import AnyTask, Executor, Stage, local_executor
from pipeline.ingest.corpora.published_dumps import Selected
from pipeline.ingest.documents.records import EXTRACTED, BadRecord, Dropped, Extract, Record, Source
from pipeline.ingest.extraction import extract as extraction
from pipeline.ingest.extraction.extract import extract
from pipeline.ingest.extraction.formats import FORMATS, SlowFormat
from tests.pipeline.ingest.dump import large_dump, small_dump
from tests.pipeline.ingest.files import put, read_all, sniffed
from tests.pipeline.ingest.tars import extracted
from tests.pipeline.preparing import Prepare
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
    records: list[Extract | BadRecord] = [
        kept,
        replace(kept, text="", dropped="redirect"),
        BadRecord("small.xml:3", "torn"),
    ]
    format = SlowFormat(lambda source, folder: iter(records), 1)
    monkeypatch.setitem(FORMATS, "mediawiki", format)
    made = extracted(path, tmp_path / "documents")
    assert read_all(made) == [
        Record("small.xml@0", "http://a.org/1", "Text."), Dropped("small.xml@1", "redirect"),
        BadRecord("small.xml:3", "torn"),
    ]  # fmt: skip
    monkeypatch.setitem(FORMATS, "mediawiki", replace(format, code=2))
    assert extracted(path, tmp_path / "documents").path != made.path


def stopping_after(count: int, done: list[str]) -> Executor:
    """An executor that is killed when it has done `count` tasks; `done` gets their names."""

    def run(stage: Stage[AnyTask], tasks: Iterable[AnyTask]) -> Iterator[tuple[AnyTask, Any]]:
        do_task = stage.start()
        for task in tasks:
            if len(done) == count:
                raise KeyboardInterrupt
            result = do_task(task)
            done.append(task.name)
            yield task, result

    return Executor(run)


def test_a_kill_repeats_one_file(tmp_path: Path) -> None:
    paths = [large_dump(tmp_path / f"{name}.xml", 30) for name in "abc"]
    documents, done = tmp_path / "documents", list[str]()
    with pytest.raises(KeyboardInterrupt):
        extract(sources(*paths), documents, stopping_after(2, done))
    assert len([*documents.glob("*.parquet")]) == 2
    extract(sources(*paths), documents, stopping_after(9, done))
    assert sorted(done) == ["extract a.xml", "extract b.xml", "extract c.xml"]
    assert {path.suffix for path in documents.iterdir()} == {".parquet", ".json"}


def test_parts_of_an_array_start_with_their_share(tmp_path: Path) -> None:
    paths = [large_dump(tmp_path / f"{name}.xml", 60) for name in "ab"]
    documents = tmp_path / "documents"
    for part, name in (((1, 2), "a"), ((2, 2), "b")):
        done: list[str] = []
        with suppress(KeyboardInterrupt):
            extract(sources(*paths), documents, stopping_after(1, done), part)
        assert done == [f"extract {name}.xml"]
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


@pytest.mark.usefixtures("quick_workers")
def test_two_workers_share_a_published_file(
    one_file: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both extract pages; the file is fetched once, and no copy stays."""
    selected = Selected(dump=DUMP)
    [source] = selected.sources(tmp_path / "downloads")["wikipedia"]
    [alone] = extract([source], tmp_path / "alone", local_executor(1))
    asked = len(one_file.gets())
    monkeypatch.setattr(extraction, "SHARED_DUMP_BYTES", 1000)
    monkeypatch.setattr(extraction, "_BATCH_CHARACTERS", 5000)
    batches: list[str] = []

    def run(stage: Stage[AnyTask], tasks: Iterable[AnyTask]) -> Iterator[tuple[AnyTask, Any]]:
        for task, result in local_executor(2).runner(stage, tasks):
            batches.append(task.name)
            yield task, result

    documents = tmp_path / "documents"
    [made] = extract([source], documents, Executor(run))
    assert len(batches) > 5 and all(name.startswith("pages") for name in batches)
    tables = [pq.read_table(each.path) for each in (made, alone)]
    assert tables[0].equals(tables[1]) and tables[0].num_rows >= PAGES
    assert Path(made.path).name == Path(alone.path).name
    assert len(one_file.gets()) == asked + 1
    assert not [*(tmp_path / "downloads").rglob("*.bz2*.copy")]


def test_batches_are_written_in_order() -> None:
    batches = [extraction._Batch(number, 0, []) for number in range(4)]
    results = [(batches[number], pa.table({"a": [number]})) for number in (2, 0, 3, 1)]
    assert [table["a"][0].as_py() for table in extraction._in_order(results)] == [0, 1, 2, 3]


def test_a_part_leaves_the_dump_that_another_part_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extraction, "SHARED_DUMP_BYTES", 1000)
    documents = tmp_path / "documents"
    [source] = sources(large_dump(tmp_path / "a.xml", 20))
    documents.mkdir()
    task = extraction._task(source, documents)
    is_locked, is_over = threading.Event(), threading.Event()

    def hold_it() -> None:
        with one_at_a_time(lock_of(task.target)):
            is_locked.set()
            is_over.wait(60)

    other = threading.Thread(target=hold_it)
    other.start()
    is_locked.wait(10)
    extraction._share_dump(task, local_executor(1))
    assert not task.target.exists()
    is_over.set()
    other.join()
    extraction._share_dump(task, local_executor(1))
    assert task.target.exists()


def test_only_temporary_files_of_the_dead_are_removed(tmp_path: Path) -> None:
    path, documents = large_dump(tmp_path / "pages.xml", 2), tmp_path / "documents"
    documents.mkdir()
    now = temporary_path(documents / "now-1.parquet")
    for left in (temporary_of_the_dead(documents / "old-12.parquet"), now):
        left.write_bytes(b"half")
    extracted(path, documents)
    assert [*documents.glob(".*.tmp")] == [now], "this process may be writing it"


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
