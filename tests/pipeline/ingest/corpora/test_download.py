"""Which files a corpus uses if the command gives none, or only some."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.base.errors import ConfigError, DataError
from pipeline.ingest.corpora.catalogue import CORPORA, GROUPS
from pipeline.ingest.corpora.download import download_missing, fetched_directory
from pipeline.recipes import recipe
from pipeline.remote.hub import MARKER, Repository
from tests.pipeline.preparing import Prepare

CASED = recipe("roberta_tiny").data
UNCASED = recipe("bert_tiny").data


def put(downloads: Path, corpus: str) -> Path:
    """A fetched directory as `hub.fetch_corpus` leaves one."""
    hub = CORPORA[corpus].hub
    assert hub
    directory = fetched_directory(downloads, corpus, hub)
    directory.mkdir(parents=True)
    texts = [f"The {corpus} document {number} says it. It ends." for number in range(40)]
    pq.write_table(pa.table({"text": texts}), directory / f"{corpus}-00000-of-00001.parquet")
    (directory / MARKER).write_text("{}")
    return directory


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(repository: Repository, _: str) -> None:
        raise AssertionError(f"{repository.shown} would be fetched")

    monkeypatch.setattr("pipeline.ingest.corpora.download.list_files", ask)


def test_given_files_and_fetched_copies_need_no_download(tmp_path: Path) -> None:
    assert download_missing("cc-news", ["a", "b"], tmp_path, CASED) == ["a", "b"]
    assert download_missing("mine", [], tmp_path, CASED) == []
    directory = put(tmp_path, "cc-news")
    assert download_missing("cc-news", [], tmp_path, CASED) == [str(directory)]
    with pytest.raises(AssertionError, match=r"cc-news .* would be fetched"):
        download_missing("cc-news", [], tmp_path, CASED, revision="another")
    # members that are not given are fetched
    with pytest.raises(AssertionError, match=r"wikipedia .* would be fetched"):
        download_missing("16gb", ["bookcorpus=books"], tmp_path / "new", CASED, fetching=True)
    directory = put(tmp_path, "wikipedia")
    found = download_missing("16gb", ["bookcorpus=books"], tmp_path, CASED)
    assert found == [f"wikipedia={directory}", "bookcorpus=books"]


def test_unsuitable_copies_and_options_are_refused_before_the_fetch(tmp_path: Path) -> None:
    files = [f"{member}=x" for member in GROUPS["160gb"].members if member != "cc-news"]
    fetching, revision = {"fetching": True}, {"revision": "main"}
    more: dict[str, Any]
    for corpus, inputs, data, more, message in (
        ("bookcorpus", [], CASED, {}, "lower-cased"), ("16gb", [], CASED, {}, "lower-cased"),
        ("16gb", [], UNCASED, {}, "whole books"), ("160gb", files, CASED, {}, "files of cc-news"),
        ("sample", [], CASED, fetching, "sample is not on"),
        ("16gb", [], CASED, revision, "16gb is not on"),
        ("stories", ["x"], CASED, revision, "--input"),
        ("stories", ["x"], CASED, fetching, "--input"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=message):
            download_missing(corpus, inputs, tmp_path, data, **more)
    fits = replace(UNCASED, format="full_sentences")
    with pytest.raises(DataError, match=r"160gb has too little text.*cc-news .* 2\.0 GB"):
        download_missing("160gb", [], tmp_path, fits)


def test_prepare_without_input_reads_the_fetched_copy_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Prepare
) -> None:
    put(tmp_path / "downloads", "cc-news")
    monkeypatch.setenv("TENFOLD_ROOT", str(tmp_path))
    said = make("--corpus", "cc-news")
    assert "cc-news: vblagoje/cc_news at 81eb2ce0d2a9, in " in said
    assert "prepared 40 documents" in said
