"""Fetching from the Hub with the real `datasets`: pinned, once, resumable, one-line errors."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.base.errors import DataError
from pipeline.data.corpora import hub as hub_module
from pipeline.data.corpora.catalogue import Hub
from pipeline.data.corpora.hub import MARKER, fetch, fetched_directory, is_fetched
from pipeline.data.corpora.sources import corpus_sources
from pipeline.data.documents.read import cut, read
from pipeline.data.documents.records import Record
from tests.pipeline.remote.small_hub import NAME, REVISION, small_hub

FILES, ROWS = 3, 20
HUB = Hub(
    id=NAME, revision=REVISION, files="plain_text/train-*.parquet", licence="none",
    documents=FILES * ROWS, text_bytes=1e3, download_bytes=1e3,
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
    (folder / "README.md").write_text("---\nlicense: unknown\n---\n")
    (folder / "news.py").write_text("import datasets\n")
    return folder


@pytest.fixture(autouse=True)
def no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the cache of `datasets` separate for each test."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_MODULES_CACHE", str(tmp_path / "modules"))


def texts(directory: Path) -> list[str]:
    """What `prepare` reads from a fetched directory."""
    _, sources = corpus_sources("cc-news", [str(directory)])
    pieces = [piece for source in sources for piece in cut(source, 1 << 20)]
    return [item.text for piece in pieces for item in read(piece) if isinstance(item, Record)]


def test_every_request_names_the_revision_and_a_second_fetch_sends_none(
    repository: Path, tmp_path: Path
) -> None:
    """Over HTTP, in a subprocess, because `datasets` reads the endpoint when it is imported."""
    code = (
        "import sys; from pathlib import Path\n"
        "from pipeline.data.corpora.hub import fetch\n"
        "from tests.pipeline.data.corpora.test_hub import HUB\n"
        "print(fetch('cc-news', HUB, Path(sys.argv[1])))\n"
    )
    with small_hub(repository) as (address, asked):
        environment = os.environ | {"HF_ENDPOINT": address, "HF_HOME": str(tmp_path / "home")}
        command = [sys.executable, "-c", code, str(tmp_path / "downloads")]
        result = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=120
        )
        assert result.returncode == 0, result.stderr
        about_data = [line for line in asked if NAME in line]
        assert len(about_data) >= FILES and all(REVISION in line for line in about_data)
        before = len(asked)
        subprocess.run(command, capture_output=True, check=True, env=environment, timeout=120)
        assert len(asked) == before
    directory = Path(result.stdout.strip())
    assert directory == tmp_path / "downloads" / f"cc-news-{REVISION[:12]}"
    assert texts(directory) == [f"Article {file}.{row}." for file in range(3) for row in range(20)]
    about = json.loads((directory / MARKER).read_bytes())
    assert (about["id"], about["revision"], about["documents"]) == (NAME, REVISION, FILES * ROWS)
    table = pq.read_table(directory / f"cc-news-00001-of-{FILES:05d}.parquet")
    assert table.column_names == ["text", "url", "title"]
    assert table["url"][3].as_py() == "http://example.org/1/3"


def test_an_interrupted_fetch_resumes_with_the_next_file(repository: Path, tmp_path: Path) -> None:
    local = replace(HUB, id=str(repository), revision="")
    whole = fetch("cc-news", local, tmp_path / "whole")
    second = repository / "plain_text" / "train-00001-of-00003.parquet"
    content = second.read_bytes()
    second.write_bytes(content[: len(content) // 2] + content[-8:])
    with pytest.raises(DataError, match=r"file 2 of 3 \(.*run the same command again"):
        fetch("cc-news", local, tmp_path / "cut")
    directory = fetched_directory(tmp_path / "cut", "cc-news", local)
    assert not is_fetched(directory)
    (first,) = directory.glob("*.parquet")
    written = first.stat().st_mtime_ns
    second.write_bytes(content)
    fetch("cc-news", local, tmp_path / "cut")
    assert first.stat().st_mtime_ns == written
    for path in whole.iterdir():
        assert (directory / path.name).read_bytes() == path.read_bytes()


def test_a_lost_network_is_not_reported_as_a_full_disk(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Hub's client raises errors of several types."""
    from huggingface_hub import get_session

    client = importlib.import_module(type(get_session()).__module__.partition(".")[0])
    for error in (ConnectionError("gone"), client.ConnectError("gone")):

        class Shard:
            def with_format(self, _: str) -> Any:
                return self

            def iter(self, batch_size: int, error: Exception = error) -> Iterator[pa.Table]:
                yield pa.table({"text": ["one"]})
                raise error

        class Dataset:
            num_shards = 1

            def shard(self, num_shards: int, index: int) -> Shard:
                return Shard()

        monkeypatch.setattr(hub_module, "_open", lambda corpus, hub: Dataset())
        with pytest.raises(DataError, match=r"stopped in file 1 of 1 \(gone\); run the same"):
            fetch("cc-news", HUB, tmp_path / "downloads")
        assert not [*(tmp_path / "downloads").rglob("*.*et*")]


def test_another_text_field(tmp_path: Path) -> None:
    for number in range(2):
        columns = {"plain_text": [f"{number}.{row}" for row in range(5)], "language": ["en"] * 5}
        pq.write_table(pa.table(columns), tmp_path / f"2016_{number}.parquet")
    local = replace(
        HUB, id=str(tmp_path), revision="", files="2016_*.parquet", text_field="plain_text"
    )
    directory = fetch("cc-news", local, tmp_path / "downloads")
    assert texts(directory) == [f"{number}.{row}" for number in range(2) for row in range(5)]
    with pytest.raises(DataError, match="no column words, only plain_text, language"):
        fetch("cc-news", replace(local, text_field="words"), tmp_path / "others")


def refusal(arguments: Sequence[str], before: str = "", **environment: str) -> str:
    """The one error line that `prepare` prints."""
    code = (
        f"import sys\n{before}\nsys.argv = ['prepare', *{list(arguments)}]\n"
        "from pipeline import prepare; from pipeline.base.errors import run_command\n"
        "run_command(prepare.main)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False,
        env=os.environ | environment,
    )  # fmt: skip
    assert result.returncode == 2 and result.stderr.count("\n") == 1, result.stderr
    return result.stderr


def test_offline_the_error_says_how_to_give_files(tmp_path: Path) -> None:
    offline = {"HF_HUB_OFFLINE": "1", "TENFOLD_ROOT": str(tmp_path), "HF_HOME": str(tmp_path)}
    line = refusal(["--corpus", "cc-news"], **offline)
    assert line.startswith("error: cannot fetch cc-news: ") and "offline mode is enabled" in line
    assert "--corpus cc-news --fetch" in line and "--input PATH..." in line


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    before = "sys.modules['datasets'] = None"
    line = refusal(["--corpus", "stories", "--fetch"], before, TENFOLD_ROOT=str(tmp_path))
    assert "pip install '.[hub]'" in line


def test_missing_files(tmp_path: Path) -> None:
    local = replace(HUB, id=str(tmp_path), revision="")
    with pytest.raises(DataError, match=r"cannot fetch cc-news: .*data_files"):
        fetch("cc-news", local, tmp_path / "downloads")
