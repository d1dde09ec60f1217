"""Which files a corpus uses if the command gives none, or only some."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline import prepare
from pipeline.base.errors import ConfigError, DataError
from pipeline.ingest.corpora.catalogue import CORPORA, GROUPS
from pipeline.ingest.corpora.download import download_missing
from pipeline.ingest.corpora.hub_corpora import fetched_directory
from pipeline.recipes import recipe
from pipeline.remote.hub import MARKER
from tests.pipeline.preparing import tiny

CASED = recipe("roberta_tiny").data
UNCASED = recipe("bert_tiny").data


def put(downloads: Path, corpus: str, documents: int = 40) -> Path:
    """A fetched directory as `hub.fetch_corpus` leaves one."""
    hub = CORPORA[corpus].hub
    assert hub
    directory = fetched_directory(downloads, corpus, hub)
    directory.mkdir(parents=True)
    texts = [f"The {corpus} document {number} says it. It ends." for number in range(documents)]
    pq.write_table(pa.table({"text": texts}), directory / f"{corpus}-00000-of-00001.parquet")
    (directory / MARKER).write_text("{}")
    return directory


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail on any fetch."""

    def fetch(corpus: str, *_: object) -> None:
        raise AssertionError(f"{corpus} would be fetched")

    monkeypatch.setattr("pipeline.ingest.corpora.hub_corpora._fetch", fetch)


def test_given_files_need_no_download(tmp_path: Path) -> None:
    assert download_missing("cc-news", ["a", "b"], tmp_path, CASED) == ["a", "b"]
    assert download_missing("mine", [], tmp_path, CASED) == []


def test_a_fetched_copy_is_reused(tmp_path: Path) -> None:
    directory = put(tmp_path, "cc-news")
    assert download_missing("cc-news", [], tmp_path, CASED) == [str(directory)]
    with pytest.raises(AssertionError, match="cc-news would be fetched"):
        download_missing("cc-news", [], tmp_path, CASED, revision="another")


def test_an_unsuitable_copy_is_refused_before_the_fetch(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="lower-cased"):
        download_missing("bookcorpus", [], tmp_path, CASED)
    with pytest.raises(ConfigError, match="lower-cased"):
        download_missing("16gb", [], tmp_path, CASED)
    with pytest.raises(ConfigError, match="whole books"):
        download_missing("16gb", [], tmp_path, UNCASED)
    files = [f"{member}=x" for member in GROUPS["160gb"].members if member != "cc-news"]
    with pytest.raises(ConfigError, match="needs files of cc-news"):
        download_missing("160gb", files, tmp_path, CASED)
    fits = replace(UNCASED, format="full_sentences")
    with pytest.raises(
        DataError, match=r"160gb has too little text.*cc-news has on the Hub 2\.0 GB"
    ):
        download_missing("160gb", [], tmp_path, fits)


def test_a_fetched_member_fills_in_for_a_missing_input(tmp_path: Path) -> None:
    directory = put(tmp_path, "wikipedia")
    found = download_missing("16gb", ["bookcorpus=books"], tmp_path, CASED)
    assert found == [f"wikipedia={directory}", "bookcorpus=books"]


def test_fetch_skips_members_that_are_given(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="wikipedia would be fetched"):
        download_missing("16gb", ["bookcorpus=books"], tmp_path, CASED, fetching=True)


@pytest.mark.parametrize(
    ("corpus", "inputs", "more", "message"),
    [
        ("sample", [], {"fetching": True}, "sample is not on the Hub"),
        ("16gb", [], {"revision": "main"}, "--corpus 16gb is not on the Hub"),
        ("stories", ["x"], {"revision": "main"}, "drop it, or --input"),
        ("stories", ["x"], {"fetching": True}, "drop it, or --input"),
    ],
)
def test_options_without_effect_are_errors(
    corpus: str, inputs: list[str], more: dict[str, str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        download_missing(corpus, inputs, tmp_path, CASED, **more)  # type: ignore[arg-type]


def test_prepare_without_input_reads_the_fetched_copy_offline(
    tiny_tokenizer: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    put(tmp_path / "downloads", "cc-news")
    monkeypatch.setenv("TENFOLD_ROOT", str(tmp_path))
    arguments = ["--corpus", "cc-news", "--workers", 1, *tiny(tiny_tokenizer, tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", ["prepare", *map(str, arguments)])
    prepare.main()
    said = capsys.readouterr().out
    assert "cc-news: vblagoje/cc_news at 81eb2ce0d2a9, in " in said
    assert "prepared 40 documents" in said
