"""Units give the records of the whole file, wherever they are cut."""

import bz2
import gzip
import lzma
import random
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.ingest.compression import codecs
from pipeline.ingest.documents import byte_blocks
from pipeline.ingest.documents.records import BadRecord, Extract
from pipeline.ingest.extraction import places, units
from pipeline.ingest.extraction.places import END, START
from pipeline.ingest.extraction.units import Span, Unit, cut_units, unit_records
from tests.pipeline.ingest.dump import dump, page
from tests.pipeline.ingest.files import sniffed
from tests.pipeline.ingest.tars import tar


def wiki(count: int = 120) -> bytes:
    words = random.Random(3)
    texts = [f"Some text {words.randbytes(900).hex()} here." for _ in range(count)]
    return dump([page(number, f"T{number}", text) for number, text in enumerate(texts)])


def tars(count: int = 60) -> bytes:
    words, inner = random.Random(3), {}
    for number in range(count):
        texts = {f"{number}-{n}.txt": words.randbytes(300).hex().encode() for n in range(3)}
        name = f"{'long' * 60 * (number % 7 == 0)}{number}.tar.xz"
        inner[name] = lzma.compress(tar(texts, tarfile.PAX_FORMAT))
    return tar(inner, tarfile.PAX_FORMAT)


def streams(content: bytes) -> bytes:
    return b"".join(bz2.compress(content[at : at + 9000]) for at in range(0, len(content), 9000))


def zeroed(content: bytes) -> bytes:
    """Damaged where a unit starts."""
    return content[:29_900] + bytes(2000) + content[31_900:]


FILES: dict[str, Callable[[], bytes]] = {
    "xml": wiki,
    "streams.xml.bz2": lambda: streams(wiki()),
    "one_stream.xml.bz2": lambda: bz2.compress(wiki(220), 1),
    "xml.gz": lambda: gzip.compress(wiki()),
    "tar": tars,
    "tar.gz": lambda: gzip.compress(tars()),
}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (places, byte_blocks, codecs):
        monkeypatch.setattr(module, "BLOCK_BYTES", 2000)
    monkeypatch.setattr(codecs, "READ_BYTES", 2000)
    monkeypatch.setattr(units, "UNIT_BYTES", 10_000)
    for name in ("PLAIN_UNIT_BYTES", "TAR_UNIT_BYTES"):
        monkeypatch.setattr(units, name, 20_000)


def read(unit: Unit) -> tuple[Span, list[Extract | BadRecord]]:
    span = Span()
    found = [*unit_records(unit, (unit.start, 0), span)]
    return span, found


def names(found: list[Extract | BadRecord]) -> list[tuple[str, str, str]]:
    return [
        (item.id, item.text, item.dropped) if isinstance(item, Extract) else ("", "", item.reason)
        for item in found
    ]


@pytest.mark.parametrize("name", FILES)
def test_units_are_the_file(tmp_path: Path, name: str) -> None:
    source = sniffed(tmp_path / name, FILES[name]())
    cut = cut_units(source)
    assert [unit.start for unit in cut] == [0, *(unit.stop for unit in cut[:-1])]
    assert cut[-1].stop == source.size
    assert len(cut) > 3
    whole = [*unit_records(Unit(source, 0, source.size, 0), START, Span())]
    for order in (1, -1):
        parts = [read(unit) for unit in cut[::order]][::order]
        spans = [span for span, _ in parts]
        assert [span.begin for span in spans[1:]] == [span.end for span in spans[:-1]]
        assert spans[-1].end == END
        assert names(whole) == names([item for _, found in parts for item in found])
        assert sum(map(bool, (found for _, found in parts))) > 2


def test_a_file_is_read_once_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    real = places._blocks
    monkeypatch.setattr(places, "_blocks", lambda *given: opened.append(given) or real(*given))
    cut = cut_units(sniffed(tmp_path / "x.tar.gz", gzip.compress(tars())))
    assert [unit.before for unit in cut] == [unit.start for unit in cut] and len(cut) > 3
    for unit in cut:
        read(unit)
    assert len(opened) == 1
    read(cut[1])
    assert len(opened) == 2


def test_pages_in_comments_and_giant_records_show_in_the_spans(tmp_path: Path) -> None:
    """Here a `<page>` is none, so the unit after it does not begin where the one before ends."""
    pages = [page(number, f"T{number}", "Some text. " * 150) for number in range(30)]
    pages[14] = f"<!-- {'x' * 30_000} {pages[14]} -->"
    source = sniffed(tmp_path / "x.xml", dump(pages))
    spans = [read(unit)[0] for unit in cut_units(source)]
    assert [span.begin for span in spans[1:]] != [span.end for span in spans[:-1]]
    # two units of a giant record are one
    pages = [page(1, "A", "Text."), page(2, "B", "Long. " * 10_000), page(3, "C", "Text.")]
    cut = cut_units(sniffed(tmp_path / "x.xml", dump(pages)))
    found = [read(unit) for unit in cut]
    assert [len(items) for _, items in found] == [2, 0, 0, 1]
    assert found[1][0].begin == found[1][0].end == found[3][0].begin
