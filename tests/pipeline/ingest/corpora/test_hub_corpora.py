"""Fetching a corpus from the Hub: pinned, once, resumable, one-line errors."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import constants

from pipeline.base.errors import DataError
from pipeline.ingest.corpora.catalogue import Hub
from pipeline.ingest.corpora.download import fetch_corpus, fetched_directory, is_fetched
from pipeline.ingest.corpora.sources import corpus_sources
from pipeline.remote.hub import MARKER
from tests.pipeline.ingest.files import put, read_all, texts_of
from tests.pipeline.preparing import Prepare
from tests.pipeline.remote.small_hub import NAME, REVISION, leave_home, server_of

FILES, ROWS = 3, 20
HUB = Hub(
    id=NAME, revision=REVISION, files="plain_text/train-*.parquet", licence="none",
    text_bytes=1e3, download_bytes=1e3,
)  # fmt: skip


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A dataset as on the Hub: Parquet files, a card, and a legacy script."""
    folder = tmp_path / "repository"
    (folder / "plain_text").mkdir(parents=True)
    for file in range(FILES):
        columns = {
            "title": [f"title {file}"] * ROWS,
            "text": [f"Article {file}.{row}." for row in range(ROWS)],
            "url": [f"http://example.org/{file}/{row}" for row in range(ROWS)],
            "score": list(range(ROWS)),
        }
        name = f"train-{file:05d}-of-{FILES:05d}.parquet"
        pq.write_table(pa.table(columns), folder / "plain_text" / name)
    put(folder / "README.md", "---\nlicense: unknown\n---\n")
    put(folder / "news.py", "import datasets\n")
    return folder


@pytest.fixture
def serving(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Serves the repository while a block runs; yields the requests."""
    leave_home(tmp_path, monkeypatch)
    return server_of(repository, "datasets", monkeypatch)


def texts(directory: Path) -> list[str]:
    """What `prepare` reads from a fetched directory."""
    return texts_of(read_all(*corpus_sources("cc-news", [str(directory)])[1]))


def test_the_commit_is_fetched_once(serving: Any, tmp_path: Path) -> None:
    """Its columns stay as they are; the address of an article is read."""
    with serving() as asked:
        directory = fetch_corpus("cc-news", HUB, tmp_path / "downloads")
        assert len(asked) >= FILES and all(NAME in line and REVISION in line for line in asked)
        before = len(asked)
        assert fetch_corpus("cc-news", HUB, tmp_path / "downloads") == directory
        assert len(asked) == before
    assert directory == tmp_path / "downloads" / f"cc-news-{REVISION[:12]}"
    assert sorted(path.name for path in directory.iterdir()) == [MARKER, ".lock", "plain_text"]
    _, sources = corpus_sources("cc-news", [str(directory)])
    records = read_all(*sources)
    assert texts_of(records) == [f"Article {file}.{row}." for file in range(3) for row in range(20)]
    assert records[23].origin == "http://example.org/1/3"
    assert json.loads((directory / MARKER).read_bytes()) == {"id": NAME, "commit": REVISION}


def test_an_interrupted_fetch_resumes(serving: Any, tmp_path: Path) -> None:
    def damage(name: str, whole: bytes) -> bytes:
        return whole[:-9] + b"9" + whole[-8:] if "00001" in name else whole

    directory = fetched_directory(tmp_path, "cc-news", HUB)
    with serving(sent=damage), pytest.raises(DataError, match=r"train-00001-.* differs from what"):
        fetch_corpus("cc-news", HUB, tmp_path)
    assert not is_fetched(directory)
    with serving() as asked:
        fetch_corpus("cc-news", HUB, tmp_path)
    assert is_fetched(directory) and not [x for x in asked if "GET" in x and "train-00000" in x]
    with serving(), pytest.raises(DataError, match=r"the Hub has no \*.x"):
        fetch_corpus("cc-news", replace(HUB, files="*.x"), tmp_path / "others")


def test_what_prevents_a_fetch_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Prepare
) -> None:
    """Offline it says how to give files; a missing package is named."""
    monkeypatch.setenv("TENFOLD_ROOT", str(tmp_path))
    with monkeypatch.context() as offline:
        offline.setattr(constants, "HF_HUB_OFFLINE", True)
        line = run("--corpus", "cc-news", code=2)
    assert line.startswith("error: cc-news (") and "offline mode is enabled" in line
    assert "--fetch where there is a network" in line and "--input PATH..." in line
    assert line.count("\n") == 1
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert "pip install '.[hub]'" in run("--corpus", "stories", "--fetch", code=2)
