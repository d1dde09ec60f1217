"""A sample of raw files tells how many bytes their documents take."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from pipeline.costs.preparation import raw_sample
from pipeline.costs.preparation.raw_sample import find_kinds, write_sample
from pipeline.execution.workers import local_executor
from pipeline.ingest.corpora.sources import SAMPLE_FILES, corpus_sources, keep_language
from pipeline.ingest.documents.records import Source
from pipeline.ingest.extraction.extract import extract, extracted_so_far
from tests.golden import formats

NEAR = 1.5
FAST = ("small_files", "warc_gz")
SLOW = (
    "json_array", "wiki_jsonl", "csv", "tsv", "text_file", "text_book", "text_blank_lines",
    "text_lines", "text_gz", "text_bz2", "text_xz", "text_zst", "doc", "mediawiki",
    "mediawiki_bz2", "html", "warc", "warc_english", "wet_gz", "tar_xz", "tar_of_tars", "zip",
    "zip_of_texts", "folder", "names", "crlf_tables", "crlf_text",
)  # fmt: skip
"""With those above, all corpora of which files are extracted."""


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


@cache
def corpora() -> dict[str, formats.Files]:
    return formats.all_corpora(texts())


def sources_of(name: str, folder: Path) -> list[Source]:
    formats.write(corpora()[name], folder)
    words = formats.ARGUMENTS.get(name, ())
    plain = str(words[1]) if "--plain-text" in words else ""
    sources = corpus_sources(formats.CORPUS, [str(folder)], plain_text=plain)[1]
    return keep_language(sources, "en") if "--language" in words else sources


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


def test_an_archive_is_sampled_evenly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So all formats in it are, each once, and by their bytes."""
    monkeypatch.setattr(raw_sample, "SAMPLE_BYTES", 1 << 16)
    rng = np.random.default_rng(0)
    words = [" ".join(map(str, rng.integers(1 << 30, size=100).tolist())) for _ in range(800)]
    lines = formats.json_lines([{"text": f"line {text}"} for text in words[:400]])
    texts = {f"{n}.txt": f"file {text}".encode() for n, text in enumerate(words[400:])}
    (tmp_path / "all.zip").write_bytes(formats.zipped({"a.jsonl": lines} | texts))
    [kind] = find_kinds(corpus_sources("mine", [str(tmp_path / "all.zip")])[1])
    written = write_sample(kind, tmp_path / "sample.jsonl")
    found = [json.loads(line)["text"] for line in (tmp_path / "sample.jsonl").open()]
    assert len({*found}) == len(found)
    share = sum(text.startswith("line") for text in found) / len(found)
    assert share == pytest.approx(0.5, abs=0.15)  # the files' headers take room
    assert len(found) / written.share == pytest.approx(800, rel=0.2)
    # the list of its members holds no text: a third of an archive of texts as short as these
    for count in (300, 3000):
        texts = {f"{n:05}.txt": f"A text, which is number {n}.".encode() for n in range(count)}
        (tmp_path / "all.zip").write_bytes(formats.zipped(texts))
        [kind] = find_kinds(corpus_sources("mine", [str(tmp_path / "all.zip")])[1])
        written = write_sample(kind, tmp_path / "sample.jsonl")
        found = (tmp_path / "sample.jsonl").read_text().splitlines()
        assert len(found) / written.share == pytest.approx(count, rel=0.1)


def test_the_time_of_small_files_is_that_of_extracting_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As finding them costs more than reading them."""
    for number in range(40):
        (tmp_path / f"{number:02}.csv").write_text("id,text\n1,One text.\n")
    sources = corpus_sources("mine", [str(tmp_path)])[1]
    [kind] = find_kinds(extracted_so_far(sources, tmp_path / "documents"))
    clock, packs = [0.0], []

    def extracting(sources: list[Source], *_: object) -> None:
        packs.extend(sources)
        clock[0] += 7.0

    monkeypatch.setattr(raw_sample, "extract", extracting)
    monkeypatch.setattr(raw_sample.time, "process_time", lambda: clock[0])
    written = write_sample(kind, tmp_path / "sample.jsonl")
    assert [len(pack.files) for pack in packs] == [40]
    assert written.reading == pytest.approx(7.0 * written.share)


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
