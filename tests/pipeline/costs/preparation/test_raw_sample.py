"""A sample of raw files tells how many bytes their documents take."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.costs.preparation import raw_sample
from pipeline.costs.preparation.raw_sample import find_kinds, write_sample
from pipeline.execution.workers import local_executor
from pipeline.ingest.corpora.sources import SAMPLE_FILES, corpus_sources
from pipeline.ingest.documents.records import Source
from pipeline.ingest.extraction.extract import extract, extracted_so_far
from tests.golden import formats

NEAR = 1.5
FAST = ("small_files", "warc_gz")
SLOW = (
    "json_array", "wiki_jsonl", "csv", "tsv", "text_file", "text_book", "text_blank_lines",
    "text_lines", "text_gz", "text_bz2", "text_xz", "text_zst", "text_lz4", "doc", "mediawiki",
    "mediawiki_bz2", "html", "warc", "wet_gz", "tar_xz", "tar_of_tars", "zip", "zip_of_texts",
    "folder", "names", "crlf_tables", "crlf_text",
)  # fmt: skip
"""With those above, all corpora of which files are extracted, without limits by site."""


def texts() -> list[str]:
    """A megabyte of books, in texts of at least 1,500 characters."""
    found, taken = [], ""
    for path in sorted((SAMPLE_FILES / "books").glob("*.txt")):
        for paragraph in path.read_text(encoding="utf-8").split("\n\n"):
            taken += f"\n\n{paragraph.strip()}"
            if len(taken) > 1500:
                found.append(f"Part {len(found)}{taken}")  # else one looks like JSON in a zip
                taken = ""
    return found


def sources_of(name: str, folder: Path) -> list[Source]:
    formats.write(formats.all_corpora(texts())[name], folder)
    words = formats.ARGUMENTS.get(name, ())
    plain = str(words[1]) if "--plain-text" in words else ""
    return corpus_sources(formats.CORPUS, [str(folder)], plain_text=plain)[1]


@pytest.mark.parametrize(
    "name", [*FAST, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_bytes_of_documents_are_estimated_on_each_format(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a quarter of the text, or of each kind of files among them."""
    monkeypatch.setattr(raw_sample, "SAMPLE_BYTES", 250_000)
    sources, documents, expected = sources_of(name, tmp_path / "in"), tmp_path / "documents", 0.0
    for kind in find_kinds(extracted_so_far(sources, documents)):
        expected += write_sample(kind, tmp_path / "sample.jsonl").extracted
    assert not documents.exists()
    extract(sources, documents, local_executor(1))
    written = sum(path.stat().st_size for path in documents.glob("*.parquet"))
    assert written / NEAR < expected < NEAR * written
    for kind in find_kinds(extracted_so_far(sources, documents)):
        assert not kind.is_extracted
        assert write_sample(kind, tmp_path / "sample.jsonl").extracted == 0


def test_kinds_of_files(tmp_path: Path) -> None:
    """Files of a pack by format, each with the pack; pages of a folder together."""
    for number in range(20):
        (tmp_path / f"{number:02}.json").write_text('[{"text": "Some."}]')
        (tmp_path / f"{number:02}.csv").write_text("id,text\n1,More.\n")
        (tmp_path / f"p{number:02}.html").write_text("<html><p>A page.</p></html>\n")
    (tmp_path / "z.jsonl").write_bytes(b'{"text": "%s"}\n' % (b"word " * 300_000))
    sources = corpus_sources("mine", [str(tmp_path)])[1]
    kinds = find_kinds(extracted_so_far(sources, tmp_path / "documents"))
    found = {kind.files[0].format: kind for kind in kinds}
    assert {format: (len(kind.files), kind.is_extracted) for format, kind in found.items()} == {
        "csv": (20, True), "html": (20, True), "json_array": (20, True), "jsonl": (1, False),
    }  # fmt: skip
    (pack, size), (same, other) = found["csv"].parts[0], found["json_array"].parts[0]
    assert pack is same and (size, other) == (20 * 16, 20 * 19)
    assert [*found["html"].unit_sizes()] == [("html-00000", 20 * 28)]
    assert (found["csv"].made + found["json_array"].made, found["html"].made) == (1, 1)
