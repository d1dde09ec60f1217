"""Documents are held out whole, by their text, with their copies, and all of them if you ask."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from pipeline import inspect
from pipeline.data.preparation.holdout import EVERY_HASH, are_below
from pipeline.data.shards.manifest import read_manifest
from pipeline.errors import DataError
from pipeline.loading.dataset import Dataset
from tests.pipeline.preparing import Call, Prepare, tiny, write_jsonl


def test_documents_are_held_out_whole_and_from_every_corpus(prepared: Path) -> None:
    manifest = read_manifest(prepared)
    for name, corpus in manifest.corpora.items():
        assert 0 < corpus["validation_sequences"] < corpus["sequences"], name
    table = pq.read_table(prepared / "documents.parquet")
    assert len(set(zip(table["corpus"].to_pylist(), table["id"].to_pylist()))) == len(table)
    held_out = (table["first_sequence"].to_numpy() >> np.uint64(32)) % np.uint64(2) == 1
    assert 5 <= held_out.sum() <= len(table) // 4


def test_copies_of_a_document_are_on_one_side(
    tiny_tokenizer: Path, tmp_path: Path, run: Prepare
) -> None:
    texts = [f"Text number {i}. It has copies." for i in range(30)] * 3
    path = write_jsonl(tmp_path / "copies.jsonl", texts)
    run("--corpus", path, *tiny(tiny_tokenizer, tmp_path / "out"))
    table = pq.read_table(tmp_path / "out" / "documents.parquet")
    held_out = (table["first_sequence"].to_numpy() >> np.uint64(32)) % np.uint64(2) == 1
    # ids are name@position, in the order of the file: copy k of text i is document 30 k + i
    order = np.argsort([int(name.split("@")[1]) for name in table["id"].to_pylist()])
    sides = held_out[order].reshape(3, 30)
    assert (sides == sides[0]).all() and 1 <= sides[0].sum() <= 9


def test_validation_never_takes_everything(
    tiny_tokenizer: Path, tmp_path: Path, run: Prepare
) -> None:
    path = write_jsonl(tmp_path / "in.jsonl", ["One. A.", "Two. B.", "Three. C."])
    setting = ["--set", "data.validation_fraction=0.5"]
    run("--corpus", path, *setting, *tiny(tiny_tokenizer, tmp_path / "out"))
    manifest = read_manifest(tmp_path / "out")
    assert manifest.of("train") and manifest.of("validation")


@pytest.mark.parametrize("documents", [1, 3, 30])
def test_a_whole_corpus_is_prepared_to_evaluate_on(
    documents: int, tiny_tokenizer: Path, tmp_path: Path, run: Prepare, call: Call
) -> None:
    path = write_jsonl(
        tmp_path / "dev.jsonl", [f"Number {n}. It is short." for n in range(documents)]
    )
    setting = ["--set", "data.validation_fraction=1"]
    said = run("--corpus", path, *setting, *tiny(tiny_tokenizer, tmp_path / "out"))
    assert f"prepared {documents} documents" in said
    manifest = read_manifest(tmp_path / "out")
    assert not manifest.of("train")
    rows = sum(shard.sequences for shard in manifest.of("validation"))
    assert rows == manifest.totals["sequences"] > 0
    assert "verified: " in call(inspect.main, tmp_path / "out", "--verify")
    with pytest.raises(DataError, match=r"no train rows; it was prepared to evaluate"):
        Dataset.open(tmp_path / "out")
    assert len(Dataset.open(tmp_path / "out", "validation").shards) == 1


def test_the_highest_hash_is_held_out_with_all_others() -> None:
    hashes = np.array([0, 5, 2**64 - 1], np.uint64)
    assert are_below(hashes, EVERY_HASH).tolist() == [True, True, True]
    assert are_below(hashes, 2**64 - 1).tolist() == [True, True, False]
    assert are_below(hashes, 5).tolist() == [True, False, False]
    assert are_below(hashes, 0).tolist() == [False, False, False]
