"""Raw files that change before, while or after they are extracted, in each slow format."""

from __future__ import annotations

import bz2
import io
import json
import os
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipeline.base.errors import DataError
from pipeline.execution.workers import AnyTask, Executor, Stage, local_executor
from pipeline.ingest.corpora.sources import corpus_sources
from pipeline.ingest.documents import unchanged
from pipeline.ingest.documents.parquet import extraction_content
from pipeline.ingest.documents.records import (
    BadRecord,
    Extract,
    Format,
    FoundAs,
    PieceReading,
    Source,
)
from pipeline.ingest.extraction import places, units
from pipeline.ingest.extraction.extract import extract
from pipeline.ingest.extraction.unit_files import write_unit
from pipeline.ingest.extraction.units import FORMATS
from pipeline.remote.kept_lists import PublishedFile
from tests.pipeline.ingest.dump import dump, page
from tests.pipeline.ingest.extraction.test_extract import stopping_after
from tests.pipeline.ingest.web_archive import articles, members
from tests.pipeline.ingest.web_archive import page as web_page

CHANGED = r"{} has changed since it was extracted to .*; restore it, or remove .* --output"


@pytest.fixture(autouse=True)
def small_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of a small file is in its middle, as in a large one."""
    monkeypatch.setattr("pipeline.ingest.documents.read._EDGE_BYTES", 32)


def pages() -> list[str]:
    return [page(n, f"River {n}", f"The river {n} is long. " * 20) for n in range(1, 40)]


def tar_of(texts: list[bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for number, text in enumerate(texts):
            header = tarfile.TarInfo(f"{number}.txt")
            header.size = len(text)
            archive.addfile(header, io.BytesIO(text))
    return stream.getvalue()


def zip_of(texts: list[bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for number, text in enumerate(texts):
            archive.writestr(f"{number}.txt", text)
    return stream.getvalue()


TEXTS = [f"Text {number} of the archive. ".encode() * 30 for number in range(20)]
RAW: dict[str, Callable[[], bytes]] = {
    "dump.xml": lambda: dump(pages()),
    "dump.xml.bz2": lambda: b"".join(
        bz2.compress(line) for line in dump(pages()).splitlines(keepends=True)
    ),
    "crawl.warc": lambda: b"".join(articles(6)),
    "crawl.warc.gz": lambda: members(articles(6)),
    "texts.tar": lambda: tar_of(TEXTS),
    "texts.zip": lambda: zip_of(TEXTS),
}


@pytest.fixture
def given(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a raw file; returns what to give as --input."""

    def write(name: str) -> Path:
        path = tmp_path / "in" / name
        path.parent.mkdir()
        if name == "html":
            path.mkdir()
            for number in range(3):
                (path / f"{number}.html").write_text(web_page(f"Story {number}"))
        else:
            path.write_bytes(RAW[name]())
        return path

    return write


def found(path: Path) -> list[Source]:
    return corpus_sources("mine", [str(path)])[1]


def extracted(path: Path, executor: Executor | None = None) -> Source:
    documents = path.parent.parent / "documents"
    [made] = extract(found(path), documents, executor or local_executor(1))
    return made


def middle(path: Path) -> Path:
    """The file that is edited: of a folder the second one."""
    return path / "1.html" if path.is_dir() else path


def rewrite(path: Path) -> None:
    """Change the text, and neither the size nor what makes it a file of its format."""
    content = path.read_bytes()
    for before, after in ((b"is long", b"is wide"), (b"Text", b"Next"), (b"Two", b"Ten")):
        content = content.replace(before, after)
    path.write_bytes(content)


def edit(path: Path) -> None:
    """Change a byte in the middle, or the order of bzip2 streams; the size and both ends stay."""
    content = bytearray(path.read_bytes())
    if path.suffix == ".bz2":
        streams = content.split(b"BZh9")
        streams[20], streams[21] = streams[21], streams[20]
        content = bytearray(b"BZh9").join(streams)
    else:
        content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", [*RAW, "html"])
def test_a_file_that_was_extracted(
    given: Callable[[str], Path], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another date costs one hash, other content in the middle is refused."""
    path = given(name)
    made = extracted(path)
    written = Path(made.path).stat().st_mtime_ns
    for file in path.iterdir() if path.is_dir() else [path]:
        os.utime(file, ns=(0, 0))
    assert extracted(path) == made and Path(made.path).stat().st_mtime_ns == written
    with monkeypatch.context() as patch:
        patch.setattr(PieceReading, "take_file", lambda *_: pytest.fail("hashed"))
        assert extracted(path) == made
    before = middle(path).read_bytes()
    edit(middle(path))
    with pytest.raises(DataError, match=CHANGED.format(middle(path))):
        extracted(path)
    middle(path).write_bytes(before)
    assert extracted(path) == made


@pytest.mark.parametrize("name", ["dump.xml", "html"])
def test_other_content_is_extracted_when_it_is_asked_for(
    given: Callable[[str], Path], name: str
) -> None:
    path = given(name)
    made = extracted(path)
    content, texts = extraction_content(made.path), pq.read_table(made.path)["text"]
    rewrite(middle(path))
    Path(made.path).unlink()
    again = extracted(path)
    assert again.path == made.path and extraction_content(again.path) != content
    assert pq.read_table(again.path)["text"] != texts


def test_equal_files_give_equal_files(given: Callable[[str], Path], tmp_path: Path) -> None:
    path = given("dump.xml")
    made = Path(extracted(path).path)
    before = made.read_bytes()
    made.unlink()
    shutil.copy(path, path.with_suffix(".new"))
    path.with_suffix(".new").rename(path)
    assert Path(extracted(path).path).read_bytes() == before


def when_read(monkeypatch: pytest.MonkeyPatch, name: Format, happens: Callable[[], object]) -> None:
    """Do something after the first record of a file is extracted."""
    format = FORMATS[name]
    done: list[object] = []

    def extract_and(source: Source, raw: Any) -> Iterator[Extract | BadRecord]:
        yield from format.extract(source, raw)
        if not done:
            done.append(happens())

    monkeypatch.setitem(FORMATS, name, replace(format, extract=extract_and))


@pytest.mark.parametrize(
    "name", ["dump.xml", "dump.xml.bz2", "crawl.warc", "texts.tar", "texts.zip", "html"]
)
@pytest.mark.parametrize("is_cut", [True, False])
def test_a_file_that_changes_while_it_is_extracted(
    given: Callable[[str], Path], name: str, is_cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = given(name)
    file = middle(path)
    before = file.read_bytes()

    def change() -> None:
        file.write_bytes(before[: len(before) // 2]) if is_cut else edit(file)
        os.utime(file, ns=(0, 7))

    with monkeypatch.context() as patch:
        when_read(patch, found(path)[0].format, change)
        with pytest.raises(DataError, match=f"{file} changed while it was read"):
            extracted(path)
    assert not [*path.parent.parent.glob("documents/[!.]*")]
    file.write_bytes(before)
    assert extraction_content(extracted(path).path)


@pytest.mark.parametrize("name", ["dump.xml", "texts.tar", "html"])
def test_a_file_whose_start_changes_before_it_is_extracted(
    given: Callable[[str], Path], name: str
) -> None:
    """Its text does not get the name of what it was."""
    path = given(name)
    file = middle(path)
    before = file.read_bytes()

    def run(stage: Stage[AnyTask], tasks: list[AnyTask]) -> Iterator[tuple[AnyTask, None]]:
        file.write_bytes(before[:9] + bytes([before[9] ^ 32]) + before[10:])
        os.utime(file, ns=(0, 7))
        yield from local_executor(1).runner(stage, tasks)

    with pytest.raises(DataError, match="changed while it was read"):
        extracted(path, Executor(run))
    assert not [*path.parent.parent.glob("documents/[!.]*")]
    file.write_bytes(before)
    assert extracted(path)


@pytest.mark.parametrize("name", ["dump.xml", "texts.tar"])
@pytest.mark.parametrize("is_other", [True, False])
def test_units_of_a_file_that_changed_before_the_others_were_extracted(
    given: Callable[[str], Path], name: str, is_other: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are extracted again if the content is another, and kept if only the date is."""
    monkeypatch.setattr(places, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(units, "PLAIN_UNIT_BYTES", 4000)
    monkeypatch.setattr(units, "TAR_UNIT_BYTES", 4000)
    path = given(name)
    documents = path.parent.parent / "documents"
    with pytest.raises(KeyboardInterrupt):
        extracted(path, stopping_after(3, []))
    kept = {unit.name: unit.stat().st_mtime_ns for unit in documents.glob(".*.parquet")}
    assert len(kept) == 3
    if is_other:
        rewrite(path)
    else:
        os.utime(path, ns=(0, 7))
    with pytest.raises(KeyboardInterrupt):
        extracted(path, stopping_after(0, []))
    left = {unit.name: unit.stat().st_mtime_ns for unit in documents.glob(".*.parquet")}
    assert left == ({} if is_other else kept)
    made = Path(extracted(path).path)
    whole = made.read_bytes()
    made.unlink()
    monkeypatch.setattr(units, "PLAIN_UNIT_BYTES", 1 << 20)
    monkeypatch.setattr(units, "TAR_UNIT_BYTES", 1 << 20)
    assert Path(extracted(path).path).read_bytes() == whole


def test_a_file_that_is_replaced_between_two_units(
    given: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an open file would still give is not taken for the new file's text."""
    monkeypatch.setattr(units, "TAR_UNIT_BYTES", 4000)
    path = given("texts.tar")
    done: list[object] = []

    def replacing(*arguments: Any) -> None:
        if len(done) == 2:
            new = path.with_suffix(".new")
            shutil.copy(path, new)
            rewrite(new)
            new.rename(path)
        done.append(write_unit(*arguments))

    monkeypatch.setattr("pipeline.ingest.extraction.extract.write_unit", replacing)
    texts = pq.read_table(extracted(path).path)["text"].to_pylist()
    assert {text[:4] for text in texts} == {"Next"}


def published(path: Path, downloads: Path, is_kept: bool) -> Source:
    """A source as `Selected.sources` makes it, whose copy is at `path`."""
    file = PublishedFile(
        url="http://localhost:9/in/dump.xml", path="in/dump.xml", size=path.stat().st_size, hash="",
        version="1", connections=1, downloads=downloads, is_kept=is_kept,
    )  # fmt: skip
    return replace(found(path)[0], published=file, found=FoundAs())


def test_copies_of_published_files(given: Callable[[str], Path], tmp_path: Path) -> None:
    """A copy that is here is compared; one that was removed is not missed."""
    path = given("dump.xml")
    source = published(path, tmp_path, is_kept=True)

    def again() -> Source:
        return extract([source], tmp_path / "documents", local_executor(1))[0]

    made = again()
    assert made.raw == source
    os.utime(path, ns=(0, 7))
    assert again() == made
    edit(path)
    with pytest.raises(DataError, match=CHANGED.format(path)):
        again()
    path.write_bytes(b"half")
    with pytest.raises(DataError, match=f"{path} has 4 bytes, and .* are published; remove it"):
        again()
    path.unlink()
    assert unchanged.compare([made], [], tmp_path) == []
    raw = again().raw
    assert again() == made and raw and not Path(raw.path).exists()


def test_states_that_are_kept_may_be_damaged(given: Callable[[str], Path]) -> None:
    path = given("dump.xml")
    made = extracted(path)
    kept = unchanged.content_file(Path(made.path))
    for content in ("", "[]", "7", json.dumps([[], [["a"]]])):
        kept.write_text(content)
        assert extracted(path) == made
    assert unchanged.known_content(Path(made.path)).hashes
