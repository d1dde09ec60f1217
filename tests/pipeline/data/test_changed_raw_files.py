"""Raw files that change before, while or after they are extracted, in each slow format."""

import bz2
import json
import os
from collections.abc import Callable, Iterable, Iterator
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
from pipeline.ingest.documents.records import FoundAs, PieceReading, Source
from pipeline.ingest.extraction import formats
from pipeline.ingest.extraction.extract import extract
from pipeline.remote.copies import PublishedFile
from tests.golden.formats import zipped
from tests.pipeline.data.small_shards import flip
from tests.pipeline.ingest.dump import dump, page
from tests.pipeline.ingest.files import put
from tests.pipeline.ingest.tars import tar
from tests.pipeline.ingest.web_archive import articles, members
from tests.pipeline.ingest.web_archive import page as web_page

CHANGED = "{} has changed since it was extracted to .*; restore it, or remove"


@pytest.fixture(autouse=True)
def small_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of a small file is in its middle, as in a large one."""
    monkeypatch.setattr("pipeline.ingest.documents.read._EDGE_BYTES", 32)


DUMP = dump([page(n, f"River {n}", f"The river {n} is long. " * 20) for n in range(1, 40)])
TEXTS = {f"{n}.txt": f"Text {n} of the archive. ".encode() * 30 for n in range(20)}
RAW: dict[str, Callable[[], bytes]] = {
    "dump.xml": lambda: DUMP,
    "dump.xml.bz2": lambda: b"".join(map(bz2.compress, DUMP.splitlines(keepends=True))),
    "crawl.warc": lambda: b"".join(articles(6)),
    "crawl.warc.gz": lambda: members(articles(6)),
    "texts.tar": lambda: tar(TEXTS),
    "texts.zip": lambda: zipped(TEXTS),
}
Given = Callable[[str], Path]


@pytest.fixture
def given(tmp_path: Path) -> Given:
    """Writes a raw file; returns what to give as --input."""

    def write(name: str) -> Path:
        path = tmp_path / "in" / name
        if name == "html":
            for number in range(3):
                put(path / f"{number}.html", web_page(f"Story {number}"))
            return path
        return put(path, RAW[name]())

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
    if path.suffix == ".bz2":
        streams = path.read_bytes().split(b"BZh9")
        streams[20], streams[21] = streams[21], streams[20]
        path.write_bytes(b"BZh9".join(streams))
    else:
        flip(path, bits=1)


@pytest.mark.parametrize("name", [*RAW, "html"])
def test_a_file_that_was_extracted(
    given: Given, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another date costs one hash, other content in the middle is refused, and extracted when it
    is asked for."""
    path = given(name)
    file, made = middle(path), extracted(path)
    written = Path(made.path).stat().st_mtime_ns
    for each in path.iterdir() if path.is_dir() else [path]:
        os.utime(each, ns=(0, 0))
    assert extracted(path) == made and Path(made.path).stat().st_mtime_ns == written
    with monkeypatch.context() as patch:
        patch.setattr(PieceReading, "take_file", lambda *_: pytest.fail("hashed"))
        assert extracted(path) == made
    before = file.read_bytes()
    edit(file)
    with pytest.raises(DataError, match=CHANGED.format(file)):
        extracted(path)
    file.write_bytes(before)
    assert extracted(path) == made
    if name in ("dump.xml", "html"):
        content, texts = extraction_content(made.path), pq.read_table(made.path)["text"]
        rewrite(file)
        Path(made.path).unlink()
        again = extracted(path)
        assert again.path == made.path and extraction_content(again.path) != content
        assert pq.read_table(again.path)["text"] != texts


@pytest.mark.parametrize("name", [*(name for name in RAW if name != "crawl.warc.gz"), "html"])
@pytest.mark.parametrize("is_cut", [True, False])
def test_a_file_that_changes_while_it_is_extracted(
    given: Given, name: str, is_cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = given(name)
    file = middle(path)
    before = file.read_bytes()
    format = formats.FORMATS[found(path)[0].format]
    assert isinstance(format, formats.SlowFormat)

    def read_and_change(source: Source, folder: Path) -> Iterator[Any]:
        for record in format.read(source, folder):
            yield record
            if file.read_bytes() == before:
                file.write_bytes(before[: len(before) // 2]) if is_cut else edit(file)
                os.utime(file, ns=(0, 7))

    with monkeypatch.context() as patch:
        changing = replace(format, read=read_and_change)
        patch.setitem(formats.FORMATS, found(path)[0].format, changing)
        with pytest.raises(DataError, match=f"{file} changed while it was read"):
            extracted(path)
    assert not [*path.parent.parent.glob("documents/[!.]*")]
    file.write_bytes(before)
    assert extraction_content(extracted(path).path)


@pytest.mark.parametrize("name", ["dump.xml", "texts.tar", "html"])
def test_a_file_whose_start_changes_before_it_is_extracted(given: Given, name: str) -> None:
    """Its text does not get the name of what it was."""
    path = given(name)
    file = middle(path)
    before = file.read_bytes()

    def run(stage: Stage[AnyTask], tasks: Iterable[AnyTask]) -> Iterator[tuple[AnyTask, Any]]:
        file.write_bytes(before[:9] + bytes([before[9] ^ 32]) + before[10:])
        os.utime(file, ns=(0, 7))
        yield from local_executor(1).runner(stage, tasks)

    with pytest.raises(DataError, match="changed while it was read"):
        extracted(path, Executor(run))
    assert not [*path.parent.parent.glob("documents/[!.]*")]
    file.write_bytes(before)
    assert extracted(path)


def test_copies_of_published_files(given: Given, tmp_path: Path) -> None:
    """A copy that is here is compared; one that was removed is not missed."""
    path = given("dump.xml")
    file = PublishedFile(
        url="http://localhost:9/in/dump.xml", path="in/dump.xml", size=path.stat().st_size,
        downloads=tmp_path,
    )  # fmt: skip
    source = replace(found(path)[0], published=file, found=FoundAs())

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
    with pytest.raises(DataError, match=f"{path} has 4 bytes, and .* are published"):
        again()
    path.unlink()
    assert unchanged.compare([made], [], tmp_path) == []
    raw = again().raw
    assert again() == made and raw and not Path(raw.path).exists()


def test_states_that_are_kept_may_be_damaged(given: Given) -> None:
    path = given("dump.xml")
    made = extracted(path)
    kept = unchanged.content_file(Path(made.path))
    for content in ("", "[]", "7", json.dumps([[], [["a"]]])):
        kept.write_text(content)
        assert extracted(path) == made
    assert unchanged.known_content(Path(made.path)).hashes
