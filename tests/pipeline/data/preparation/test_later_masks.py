"""Masks with random ids by frequency, through the whole of `prepare`."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from pipeline import prepare
from pipeline.base.errors import DataError
from pipeline.config.settings import override
from pipeline.data.preparation import later_masks
from pipeline.data.rows.masks import Masks
from pipeline.data.shards import arrow_files
from pipeline.data.shards.manifest import TRAIN, read_manifest
from pipeline.data.shards.token_counts import TOKEN_COUNTS, count_ids, read_counts
from pipeline.data.tokenizers.folders import read_vocabulary
from pipeline.loading.dataset import Dataset
from pipeline.recipes import recipe
from tests.pipeline.preparing import Call, Prepare, contents, many_documents

UNIGRAM = ["--set", "data.masks.random_ids=unigram", "--set", "data.duplicates=2"]
ANEW = ["--set", "data.mask_mode=per-epoch", "--set", "data.duplicates=0"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return many_documents(tmp_path_factory.mktemp("corpus") / "in.jsonl", 130)


def masks_of(directory: Path, file: str) -> Masks:
    return arrow_files.masks_of(arrow_files.read_table(directory / file))


@pytest.mark.usefixtures("quick_workers")
def test_two_workers_continue_a_killed_part_with_the_same_bytes(
    corpus: Path, make: Prepare, tmp_path: Path, show: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The masks are drawn in a stage of their own, from counts of all splits."""
    monkeypatch.setattr(prepare, "SPLIT_BYTES", 1 << 13)
    monkeypatch.setattr(prepare, "SHARD_BYTES", 1)

    def made(name: str, *more: object, code: int = 0) -> Path:
        make("--corpus", corpus, *UNIGRAM, *more, output=name, code=code)
        return tmp_path / name

    one = made("1")
    draws = itertools.count(1)
    draw = later_masks._draw

    def killed(*arguments: object) -> None:
        if next(draws) == 4:
            raise KeyboardInterrupt
        draw(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(later_masks, "_draw", killed)
        made("killed", "--part", "2/2", code=130)
    assert len([*(tmp_path / "killed" / ".work").glob("masks-*.json")]) == 3
    assert contents(made("killed", "--workers", 2)) == contents(one)

    manifest, vocabulary = read_manifest(one), read_vocabulary(one / "tokenizer")
    rows = [arrow_files.read_table(one / shard.file) for shard in manifest.of(TRAIN)]
    ids = np.concatenate([arrow_files.ragged(table["input_ids"])[0] for table in rows])
    assert len(rows) > 5 and manifest.masking["random_ids"] == "unigram"
    counts = read_counts(one, manifest, vocabulary.size)
    assert np.array_equal(counts, count_ids(ids, vocabulary.special))
    assert counts.sum() == np.count_nonzero(~vocabulary.special[ids])
    masks = [mask.file for shard in manifest.of(TRAIN) for mask in shard.masks]
    drawn = np.concatenate([np.asarray(masks_of(one, file).random_ids) for file in masks])
    assert not vocabulary.special[drawn].any() and (counts[drawn] > 0).all()
    assert "masks match their keys" in show(one, "--verify")


def test_the_loader_draws_what_would_be_stored(corpus: Path, make: Prepare, tmp_path: Path) -> None:
    """Of shards without masks; and those that differ from uniform ones do so in the random ids."""
    found = {}
    for name, more in {"stored": UNIGRAM, "anew": UNIGRAM + ANEW, "uniform": UNIGRAM[2:]}.items():
        make("--corpus", corpus, *more, output=name)
        found[name] = read_manifest(tmp_path / name)
    assert TOKEN_COUNTS not in found["uniform"].files
    assert "random_ids" not in found["uniform"].masking | found["uniform"].data
    dataset = Dataset.open(tmp_path / "anew")
    assert dataset.masking
    for shard in found["stored"].of(TRAIN):
        table = arrow_files.read_table(tmp_path / "anew" / shard.file)
        ids, offsets = arrow_files.ragged(table["input_ids"])
        given = (ids, offsets, str(table["corpus"][0]), table["sequence"].to_numpy())
        for number, mask in enumerate(shard.masks):
            expected, uniform = (masks_of(tmp_path / n, mask.file) for n in ("stored", "uniform"))
            drawn = dataset.masking.draw(*given, number)
            assert np.array_equal(drawn.random_ids, expected.random_ids)
            for column in ("positions", "actions", "random_offsets"):
                assert np.array_equal(getattr(drawn, column), getattr(expected, column))
                assert np.array_equal(getattr(uniform, column), getattr(expected, column))
            assert not np.array_equal(uniform.random_ids, expected.random_ids)

    data = override(recipe("roberta_tiny"), [*UNIGRAM[1::2], *ANEW[1::2]]).data
    again = dataset.drawing(data).masking
    assert again and again.describe() == found["anew"].masking
    make("--corpus", corpus, *ANEW, output="plain")
    with pytest.raises(DataError, match="its tokens were not counted"):
        Dataset.open(tmp_path / "plain").drawing(data)


def test_a_corpus_to_evaluate_on_and_a_dry_run(
    corpus: Path, make: Prepare, tmp_path: Path, show: Call
) -> None:
    """Without train rows, the held-out rows are counted."""
    out = tmp_path / "out"
    assert "disk: about" in make("--corpus", corpus, *UNIGRAM, "--dry-run")
    make("--corpus", corpus, *UNIGRAM, "--set", "data.validation_fraction=1")
    manifest = read_manifest(out)
    counts = read_counts(out, manifest, manifest.tokenizer["size"])
    assert not manifest.of(TRAIN) and 0 < counts.sum() < manifest.totals["tokens"]
    assert "masks match their keys" in show(out, "--verify")
