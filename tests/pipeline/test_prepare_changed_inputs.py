"""Inputs that change while shards are made of them, between two runs, or afterwards."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipeline.data.preparation import worker
from pipeline.data.preparation.worker import Worker
from pipeline.data.shards.manifest import MANIFEST, read_manifest
from pipeline.data.text.text_tasks import SplitTask
from pipeline.ingest.documents.records import PieceReading
from tests.pipeline.ingest.dump import dump as dump_of
from tests.pipeline.ingest.dump import page
from tests.pipeline.preparing import Prepare, contents, write_jsonl

DOCUMENTS = 300
LAST_CHECK = "pipeline.data.preparation.publication.check_bad_records"
Make = Callable[..., str]


def text(number: int) -> str:
    return f"Document {number:04d} begins. " + f"It says {number:04d} again, and ends there. " * 6


@pytest.fixture
def news(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "news.jsonl", [text(number) for number in range(DOCUMENTS)])


@pytest.fixture
def make(make: Prepare, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Prepare with splits of 8 KB, about a dozen; returns what is said.

    A file's ends, which are part of its identity, are short, and so is what is read beyond a split.
    """
    monkeypatch.setattr("pipeline.prepare.SPLIT_BYTES", 1 << 13)
    monkeypatch.setattr("pipeline.data.text.documents.BATCH_CHARACTERS", 1 << 10)
    monkeypatch.setattr("pipeline.ingest.documents.read._EDGE_BYTES", 64)
    monkeypatch.setattr("pipeline.ingest.documents.byte_blocks.OVERRUN_BYTES", 1 << 9)

    def prepare(path: Path, *more: object, output: str = "out", code: int = 0) -> str:
        given = ("--corpus", "news", "--input", path, "--set", "data.duplicates=1")
        return make(*given, *more, output=output, code=code)

    return prepare


def edit(path: Path, number: int = DOCUMENTS // 2) -> None:
    """Change one document, and neither the size nor the ends of the file."""
    content = path.read_bytes()
    other = content.replace(b"It says %04d" % number, b"It lies %04d" % number)
    assert other != content and len(other) == len(content)
    path.write_bytes(other)


def touch(path: Path) -> None:
    os.utime(path)


def replace(path: Path) -> None:
    """Another file of the same content and name, as after a download."""
    shutil.copy(path, path.with_suffix(".new"))
    path.with_suffix(".new").rename(path)


def when(monkeypatch: pytest.MonkeyPatch, number: int, happens: Callable[[], object]) -> list[int]:
    """Do something before a worker's task of this number; returns the tasks that were done."""
    do, done = Worker.do, []

    def watched(self: Worker, task: SplitTask) -> None:
        if task.number == number:
            happens()
        do(self, task)
        done.append(task.number)

    monkeypatch.setattr(Worker, "do", watched)
    return done


def stop() -> None:
    raise InterruptedError


def documents(output: Path) -> list[int]:
    """Hashes of the texts, which tell shards of other content."""
    return sorted(pq.read_table(output / "documents.parquet")["text_hash"].to_pylist())


def test_complete_shards(
    make: Make, news: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    make(news)
    before = read_manifest(out).fingerprint
    replace(news)
    assert "is complete already" in make(news)
    with monkeypatch.context() as patch:  # the new date is kept: it is hashed only once
        patch.setattr(PieceReading, "take_file", lambda *_: pytest.fail("hashed"))
        assert "is complete already" in make(news)
    (out / ".inputs.json").unlink()  # as in a copy of the shards
    assert "is complete already" in make(news)
    edit(news)
    said = make(news, code=2)
    assert str(news) in said and "name another --output" in said and str(out) in said
    (out / ".inputs.json").unlink()
    assert "has changed since" in make(news, code=2)
    make(news, output="other")
    assert read_manifest(tmp_path / "other").fingerprint == before
    assert documents(tmp_path / "other") != documents(out)


def test_another_date_during_the_work_costs_nothing(
    make: Make, news: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    when(monkeypatch, 5, lambda: replace(news))
    assert f"prepared {DOCUMENTS:,} documents" in make(news)
    assert "is complete already" in make(news)


def test_other_text_during_the_work_and_after_its_last_task(
    make: Make, news: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read already is refused; what was not read yet is read as it is then."""
    before = news.read_bytes()
    with monkeypatch.context() as patch:
        done = when(patch, 9, lambda: edit(news))
        assert "has changed since" in make(news, code=2)
        assert done == list(range(9)), "the next task is not begun"
    news.write_bytes(before)
    with monkeypatch.context() as patch:
        patch.setattr(LAST_CHECK, lambda *_: edit(news))
        assert "has changed since" in make(news, code=2)
    assert not (tmp_path / "out" / MANIFEST).exists()
    with monkeypatch.context() as patch:
        when(patch, 2, lambda: edit(news, DOCUMENTS // 2 + 1))
        make(news, output="other")
    make(news, output="fresh")
    assert contents(tmp_path / "other") == contents(tmp_path / "fresh")


def unfinished(
    make: Make, path: Path, monkeypatch: pytest.MonkeyPatch, task: int, *more: object
) -> None:
    """Work that ended before one of its tasks."""
    with monkeypatch.context() as patch:
        when(patch, task, stop)
        with pytest.raises(InterruptedError):
            make(path, *more)


def zstd_packed(news: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same in a frame of blocks that are stored as they are, without a checksum."""
    monkeypatch.setattr("pipeline.ingest.compression.codecs.READ_BYTES", 1 << 10)
    content, frame = news.read_bytes(), b"\x28\xb5\x2f\xfd\x00\x58"
    starts = range(0, len(content), 1 << 12)
    for start in starts:
        block = content[start : start + (1 << 12)]
        frame += (len(block) << 3 | (start == starts[-1])).to_bytes(3, "little") + block
    packed = news.with_suffix(".jsonl.zst")
    packed.write_bytes(frame)
    return packed


@pytest.mark.parametrize("is_packed", [True, False])
@pytest.mark.parametrize("is_other", [True, False])
def test_a_file_that_changes_while_a_task_reads_it(
    make: Make, news: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    is_packed: bool, is_other: bool,
) -> None:  # fmt: skip
    """No part keeps what was read of two states, so the work continues on what is restored."""
    if is_packed:
        news = zstd_packed(news, monkeypatch)
    before, encode, batches = news.read_bytes(), worker._encode, list[int]()

    def changing(*arguments: Any) -> None:
        batches.append(0)
        if len(batches) == 50:
            edit(news, 75) if is_other else touch(news)
        encode(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(worker, "_encode", changing)
        assert f"{news} changed while it was read" in make(news, code=2)
    assert len([*(tmp_path / "out" / ".work").glob("part-*.json")]) > 2
    if is_other:
        assert "has changed since" in make(news, code=2)
        news.write_bytes(before)
    assert f"prepared {DOCUMENTS:,} documents" in make(news)


def test_decisions_about_other_text_are_refused_and_can_be_made_again(
    make: Make, news: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENFOLD_ROOT", str(tmp_path / "root"))
    make(news, "--dedup", "exact")
    (decisions,) = (tmp_path / "root" / "documents" / "decisions").glob("[!.]*")
    touch(news)
    make(news, "--dedup", "exact", output="second")
    first, second = text(150).strip().encode(), text(175).strip().encode()
    news.write_bytes(news.read_bytes().replace(first, second))
    said = make(news, "--dedup", "exact", output="third", code=2)
    assert f"{news} changed after its documents were selected" in said and str(decisions) in said
    shutil.rmtree(decisions)
    shutil.rmtree(tmp_path / "third", ignore_errors=True)
    said = make(news, "--dedup", "exact", output="third")
    assert "1 exact copy" in said and f"prepared {DOCUMENTS - 1:,} documents" in said


def test_parts_of_an_array(
    make: Make, news: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also parts that did not make a split may not publish it with those of another content."""
    unfinished(make, news, monkeypatch, 8, "--part", "1/2")
    before = news.read_bytes()
    for number in (125, 126, 112, 88):  # one of them is in the first part
        edit(news, number)
    assert "has changed since" in make(news, "--part", "2/2", code=2)
    news.write_bytes(before)
    assert f"prepared {DOCUMENTS:,} documents" in make(news)  # without --part it does the rest


@pytest.fixture
def dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dump, which is extracted to several row groups."""
    monkeypatch.setenv("TENFOLD_ROOT", str(tmp_path / "root"))
    monkeypatch.setattr("pipeline.ingest.extraction.document_tables.GROUP_BYTES", 1 << 13)
    pages = [page(number, f"Page {number}", text(number)) for number in range(300)]
    path = tmp_path / "pages.xml"
    path.write_bytes(dump_of(pages))
    return path


def test_a_raw_file_of_complete_shards(make: Make, dump: Path, tmp_path: Path) -> None:
    make(dump)
    touch(dump)
    assert "is complete already" in make(dump)
    edit(dump, 150)
    extracted = next((tmp_path / "root" / "documents").glob("*.parquet"))
    for output in ("out", "other"):
        said = make(dump, output=output, code=2)
        assert f"{dump} has changed since it was extracted to {extracted}" in said
        assert "name another --output" in said
    extracted.unlink()
    said = make(dump, code=2)
    assert f"{dump} has changed since {tmp_path / 'out'} was made from it" in said
    make(dump, output="other")
    names = [read_manifest(tmp_path / name).fingerprint for name in ("out", "other")]
    assert names[0] == names[1]
    assert documents(tmp_path / "other") != documents(tmp_path / "out")


def test_a_raw_file_that_changes_after_it_was_extracted(
    make: Make, dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two parts, and after the last of them."""
    before = dump.read_bytes()
    with monkeypatch.context() as patch:
        done = when(patch, 2, lambda: edit(dump, 150))
        said = make(dump, code=2)
        assert f"{dump} has changed since" in said and "--output" in said
        assert done and 2 not in done, "the next task is not begun"
    dump.write_bytes(before)
    with monkeypatch.context() as patch:
        patch.setattr(LAST_CHECK, lambda *_: edit(dump, 150))
        assert f"{dump} has changed since" in make(dump, code=2)
    assert not (tmp_path / "out" / MANIFEST).exists()
    dump.write_bytes(before)
    with monkeypatch.context() as patch:
        patch.setattr(LAST_CHECK, lambda *_: touch(dump))
        assert "prepared 300 documents" in make(dump)
    assert "is complete already" in make(dump)
