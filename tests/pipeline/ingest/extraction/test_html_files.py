"""Folders of HTML files: gathered, and read as pages of a crawl are."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipeline.execution.workers import local_executor
from pipeline.ingest.corpora.sources import corpus_sources
from pipeline.ingest.documents.records import Source
from pipeline.ingest.extraction import packs
from pipeline.ingest.extraction.extract import extract
from tests.pipeline.ingest.files import put
from tests.pipeline.ingest.web_archive import page

EVERY = "This line is on every page of the paper and belongs to the site, not to it."


def write_site(folder: Path, count: int) -> Path:
    """Stories of a site, pages in other encodings, and one without text."""
    for number in range(count):
        own = [f"On day {number} the ferry went {number + 3} times, said the mayor of the town."]
        put(folder / f"paper.org/{number:03d}.html", page(f"Story {number}", [*own * 4, EVERY]))
    street = page("Stra\u00dfe")
    latin = street.replace("<head>", '<head><meta charset="latin-1">')
    put(folder / "latin.htm", latin.encode("latin-1"))
    put(folder / "wide.html", street.encode("utf-16"))
    put(folder / "empty.html", "<html></html>")
    return folder


def found_in(folder: Path) -> list[Source]:
    return corpus_sources("mine", [str(folder)])[1]


def test_a_folder_becomes_one_file_without_tags_and_repeats(tmp_path: Path) -> None:
    folder = write_site(tmp_path / "in", 7)
    sources = found_in(folder)
    assert [source.kinds for source in sources] == [(("html", "", 10, sources[0].size),)]
    [made] = extract(sources, tmp_path / "out", local_executor(1))
    assert (made.format, made.name, made.group) == ("extracted", "html-00000", None)
    rows = {row["id"]: row for row in pq.read_table(made.path).to_pylist()}
    assert len(rows) == 10
    text = rows["paper.org/003.html"]["text"]
    assert "On day 3 the ferry" in text and "<" not in text and "Related" not in text
    assert EVERY not in text and rows["paper.org/003.html"]["domain"] == "paper.org"
    assert "Stra\u00dfe" in rows["latin.htm"]["text"]
    assert rows["wide.html"]["text"] == rows["latin.htm"]["text"]
    assert [name for name, row in rows.items() if row["dropped"]] == ["empty.html"]
    put(folder / "paper.org" / "003.html", page("Another story"))
    [again] = extract(found_in(folder), tmp_path / "out", local_executor(1))
    assert again.path != made.path


def test_large_folders_become_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = found_in(write_site(tmp_path / "in", 6))[0].files
    monkeypatch.setattr(packs, "PAGES_BYTES", 2 * max(page.size for page in pages))
    groups = found_in(tmp_path / "in")
    assert [source.name for source in groups] == [f"html-{n:05}" for n in range(len(groups))]
    assert len(groups) > 2
    assert [page for source in groups for page in source.files] == pages
    assert sum(source.size for source in groups) == sum(page.size for page in pages)
