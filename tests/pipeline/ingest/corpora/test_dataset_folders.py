"""Folders that the library `datasets` writes: of each only the train split is read, once."""

import shutil
from pathlib import Path
from typing import Any

import datasets
import pytest
from datasets import Dataset, DatasetDict

from pipeline.base.errors import DataError
from pipeline.ingest.corpora.sources import corpus_sources
from tests.pipeline.ingest.files import put, read_all, texts_of
from tests.pipeline.preparing import write_jsonl

ROWS = 6


def shout(row: dict[str, Any]) -> dict[str, Any]:
    return {"text": row["text"].upper()}


def texts(*inputs: Path | str) -> list[str]:
    """The documents that `prepare --input` reads."""
    _, sources = corpus_sources("news", [str(given) for given in inputs])
    items = read_all(*sources)
    assert len(texts_of(items)) == len(items)
    return sorted(texts_of(items))


def expected(*splits: str) -> list[str]:
    return sorted(f"Story {row} of {split}." for split in splits for row in range(ROWS))


def split(name: str) -> Dataset:
    return Dataset.from_dict({"text": expected(name)})


def one_note(capsys: pytest.CaptureFixture[str]) -> str:
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "is a dataset" in line]
    return line


@pytest.fixture(autouse=True)
def quiet() -> None:
    datasets.disable_progress_bars()


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A builder's cache with two splits, the first in two shards, and what `map` left there."""
    files: dict[str, list[str]] = {}
    for name in ("train", "test"):
        halves = {"": expected(name)[:3], "2": expected(name)[3:]}
        files[name] = [
            str(write_jsonl(tmp_path / f"{name}{half}.jsonl", rows))
            for half, rows in halves.items()
        ]
    found = datasets.load_dataset("json", data_files=files, cache_dir=str(tmp_path / "cache"))
    found.map(shout)
    found["train"].shuffle(seed=1)
    return Path(found["train"].cache_files[0]["filename"]).parent


def test_a_builder_s_cache(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len([*cache.glob("cache-*.arrow")]) >= 3
    assert texts(cache) == expected("train")
    note = one_note(capsys)
    assert f"split test ({cache}/json-test*)" in note and "file(s) in no split" in note
    assert texts(cache.parents[3]) == expected("train")
    assert texts(cache, cache / "json-test*") == expected("test", "train")
    assert texts(cache / "json-test.arrow") == expected("test")


def test_a_builder_s_cache_in_shards_of_parquet(tmp_path: Path) -> None:
    """Split by the ends of the names."""
    (tmp_path / "dataset_info.json").write_text("{}")
    for index in range(2):
        shard = split("train").shard(2, index, contiguous=True)
        shard.to_parquet(tmp_path / f"my_html_news-train-{index:05d}-of-00002.parquet")
    split("test").to_parquet(tmp_path / "my_html_news-test.parquet")
    split("train").to_parquet(tmp_path / "my_html_news-train_more.parquet")
    assert texts(tmp_path) == expected("train")
    for path in tmp_path.glob("*train*"):
        path.unlink()
    with pytest.raises(DataError, match=r"without a split train, only test; .*news-test\*"):
        texts(tmp_path)


def test_a_saved_dataset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "saved"
    split("train").shuffle(seed=1).save_to_disk(folder, num_shards=3)
    assert texts(folder) == expected("train")
    loaded = datasets.load_from_disk(folder)
    loaded.map(shout)
    loaded.shuffle(seed=1)
    assert capsys.readouterr().err == ""
    assert texts(folder) == texts(tmp_path) == expected("train")
    assert "2 file(s) in no split (cache-" in capsys.readouterr().err


def test_other_splits_of_a_saved_dict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "saved"
    shards = {"train": 2, "test": 1, "validation": 1}
    DatasetDict({name: split(name) for name in shards}).save_to_disk(folder, num_shards=shards)
    assert texts(folder) == expected("train")
    note = one_note(capsys)
    assert f"split test ({folder}/test), split validation ({folder}/validation)" in note
    assert note.endswith("name one with --input to read it as well")
    assert texts(tmp_path) == expected("train")
    assert texts(folder / "test") == expected("test")  # it is named
    capsys.readouterr()
    assert texts(folder, folder / "test") == expected("test", "train")
    assert f"skipped: split validation ({folder}/validation); name" in one_note(capsys)
    assert texts(folder, folder / "test", folder / "validation") == expected(*shards)
    assert capsys.readouterr().err == ""


def test_a_saved_dict_without_train_or_a_description(tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    DatasetDict({name: split(name) for name in ("en", "test")}).save_to_disk(folder)
    message = (
        f"^{folder} .* without .* train, only en, test; .*--input {folder}/en or {folder}/test$"
    )
    for given in (folder, tmp_path):
        with pytest.raises(DataError, match=message):
            texts(given)
    assert texts(folder / "en") == expected("en")
    # each split's state still names it, be it a part of train; no split at all is train
    parts = tmp_path / "parts"
    files = {name: str(write_jsonl(tmp_path / name, expected(name))) for name in ("train", "test")}
    for name, wanted in (("train", "train[:4]"), ("test", "test")):
        loaded = datasets.load_dataset(
            "json", data_files=files, cache_dir=str(tmp_path / "cache"), split=wanted
        )
        loaded.save_to_disk(parts / name)
    assert texts(parts) == expected("train")[:4]
    assert texts(parts / "test") == expected("test")
    shutil.rmtree(parts / "train")
    with pytest.raises(DataError, match=r"without a split train, only test; .*/parts/test$"):
        texts(parts)


def repository(folder: Path, *names: str) -> None:
    """Parquet files with the text of the split at the start of their names."""
    for name in names:
        split((folder / name).name.partition("-")[0]).to_parquet(put(folder / name))


def test_shards_of_a_repository(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the names that `push_to_hub` gives, unless none is train."""
    ending = "00000-of-00001"
    repository(tmp_path, f"data/train-{ending}-5f2c.parquet", f"data/dev-{ending}.parquet")
    (tmp_path / "README.md").write_text("A corpus of short stories.\n")
    assert texts(tmp_path) == texts(tmp_path / "data") == expected("train")
    note = capsys.readouterr().err.splitlines()[0]
    assert f"{tmp_path}/data is a dataset" in note
    assert f"skipped: split dev ({tmp_path}/data/dev-*); name" in note
    repository(tmp_path / "parts", "part-00000-of-00002.parquet")
    assert texts(tmp_path / "parts") == expected("part")
    # the Hub's own cache: blobs are the files, and snapshots links to them, whose names count
    repository(tmp_path / "hub/blobs", "train-0", "test-0")
    data = tmp_path / "hub/snapshots" / "1f2e" / "data"
    data.mkdir(parents=True)
    for name in ("train", "test"):
        (data / f"{name}-00000-of-00001.parquet").symlink_to(tmp_path / "hub/blobs" / f"{name}-0")
    assert texts(tmp_path / "hub") == texts(data.parent) == expected("train")
