"""The file of all units: the rows and row groups that it would have without units."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipeline.base.errors import DataError
from pipeline.ingest.documents.parquet import extraction_mark
from pipeline.ingest.documents.records import Source
from pipeline.ingest.extraction import document_tables, places, units
from pipeline.ingest.extraction.places import START
from pipeline.ingest.extraction.unit_files import write_file, write_unit
from pipeline.ingest.extraction.units import Unit, cut_units
from tests.pipeline.ingest.dump import dump, page
from tests.pipeline.ingest.files import sniffed
from tests.pipeline.ingest.tars import PAGES, extracted, tar
from tests.pipeline.ingest.web_archive import page as web_page


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "BLOCK_BYTES", 2000)
    monkeypatch.setattr(units, "UNIT_BYTES", 3000)
    monkeypatch.setattr(units, "PLAIN_UNIT_BYTES", 20_000)
    monkeypatch.setattr(document_tables, "GROUP_BYTES", 5000)


def written(path: Path, before: list[Unit], cut: list[Unit]) -> bytes:
    """The whole file; before: units that are written first."""

    def stored(unit: Unit) -> Path:
        return path.with_name(f"{unit.start}-{unit.stop}.parquet")

    for unit in before:
        write_unit(unit, (unit.start, 0), stored(unit))
    write_file(cut[0].source, cut, stored, lambda _: {b"key": "value"}, path)
    return path.read_bytes()


def whole_of(source: Source) -> list[Unit]:
    return [Unit(source, 0, source.size, 0)]


def test_bytes_do_not_depend_on_units(tmp_path: Path) -> None:
    pages = [page(n, f"T{n}", f"Text {n}. " * (n % 300)) for n in range(200)]
    source = sniffed(tmp_path / "x.xml", dump(pages))
    cut = cut_units(source)
    assert len(cut) > 9
    whole = written(tmp_path / "a", [], whole_of(source))
    assert written(tmp_path / "b", cut, cut) == whole
    with pq.ParquetFile(tmp_path / "a") as file:
        sizes = [
            sum(len(text or "") for text in file.read_row_group(n)["text"].to_pylist())
            for n in range(file.num_row_groups)
        ]
        assert file.schema_arrow.metadata[b"key"] == b"value"
    assert all(5000 <= size < 9000 for size in sizes[:-1]) and len(sizes) > 9


def test_a_wrong_beginning_is_read_again_and_damage_is_an_error(tmp_path: Path) -> None:
    pages = [page(number, f"T{number}", "Some text. " * 150) for number in range(30)]
    cut = cut_units(sniffed(tmp_path / "cut.xml", dump(pages)[:-100]))
    with pytest.raises(DataError, match="truncated or damaged"):
        written(tmp_path / "c", cut[:-1], cut)
    assert not (tmp_path / f"{cut[-1].start}-{cut[-1].stop}.parquet").exists()
    for number in (4, 14, 24):
        pages[number] = f"<!-- {'x' * 30_000} {pages[number]} -->"
    source = sniffed(tmp_path / "in/x.xml", dump(pages))
    whole = written(tmp_path / "in/a", [], whole_of(source))
    assert pq.read_table(tmp_path / "in/a").num_rows == 27
    cut = cut_units(source)
    assert written(tmp_path / "in/b", cut, cut) == whole
    # the start of a file is never a guess
    source = sniffed(tmp_path / "start.xml", b"<mediawiki><page></mediawiki>")
    with pytest.raises(DataError, match="truncated or damaged"):
        write_unit(*whole_of(source), START, tmp_path / "unit")
    # a lone surrogate ends no dump
    source = sniffed(tmp_path / "lone.xml", dump([page(1, "A", "One &#xD800; two.")]))
    write_unit(*whole_of(source), START, tmp_path / "unit")
    assert pq.read_table(tmp_path / "unit")["text"].to_pylist() == ["A\n\nOne ? two."]


def test_a_unit_with_markup_marks_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "pages.tar"
    path.write_bytes(tar(PAGES | {"site.org/a.html": web_page("A").encode()}))
    alone = extracted(path, tmp_path / "alone")
    monkeypatch.setattr(units, "TAR_UNIT_BYTES", 40_000)
    assert len(cut_units(sniffed(path))) > 3
    made = extracted(path, tmp_path / "units")
    assert extraction_mark(made.path) == extraction_mark(alone.path) in made.path
    assert Path(made.path).read_bytes() == Path(alone.path).read_bytes()
