"""Masks with random ids by frequency, through the whole of `prepare`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipeline import inspect, prepare
from pipeline.base.errors import DataError
from pipeline.config.settings import override
from pipeline.data.preparation import later_masks
from pipeline.data.shards import arrow_files
from pipeline.data.shards.manifest import TRAIN, read_manifest
from pipeline.data.shards.token_counts import TOKEN_COUNTS, count_ids, read_counts
from pipeline.data.tokenizers.folders import read_vocabulary
from pipeline.loading.dataset import Dataset
from pipeline.recipes import recipe
from tests.pipeline.preparing import Call, contents, many_documents, tiny

UNIGRAM = ["--set", "data.masks.random_ids=unigram", "--set", "data.duplicates=2"]
ANEW = ["--set", "data.mask_mode=per-epoch", "--set", "data.duplicates=0"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return many_documents(tmp_path_factory.mktemp("corpus") / "in.jsonl", 130)


def test_the_same_bytes_for_any_workers_and_after_a_kill(
    corpus: Path, tiny_tokenizer: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The masks are drawn in a stage of their own, from counts of all splits."""
    monkeypatch.setattr(prepare, "SPLIT_BYTES", 1 << 13)
    monkeypatch.setattr(prepare, "SHARD_BYTES", 1)

    def made(name: str, *more: object, code: int = 0) -> Path:
        given = ["--corpus", corpus, *tiny(tiny_tokenizer, tmp_path / name)]
        call(prepare.main, *given, *UNIGRAM, *more, code=code)
        return tmp_path / name

    one = made("1", "--workers", 1)
    expected = contents(one)
    assert contents(made("2", "--workers", 2)) == expected
    made("parts", "--workers", 1, "--part", "2/2")
    assert contents(made("parts", "--workers", 1, "--part", "1/2")) == expected

    done = 0
    draw = later_masks._draw

    def killed(*arguments: object) -> None:
        nonlocal done
        done += 1
        if done == 4:
            raise KeyboardInterrupt
        draw(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(later_masks, "_draw", killed)
        made("killed", "--workers", 1, code=130)
    assert len([*(tmp_path / "killed" / ".work").glob("masks-*.json")]) == 3
    assert contents(made("killed", "--workers", 1)) == expected

    manifest, vocabulary = read_manifest(one), read_vocabulary(one / "tokenizer")
    rows = [arrow_files.read_table(one / shard.file) for shard in manifest.of(TRAIN)]
    ids = np.concatenate([arrow_files.ragged(table["input_ids"])[0] for table in rows])
    assert len(rows) > 5 and manifest.masking["random_ids"] == "unigram"
    counts = read_counts(one, manifest, vocabulary.size)
    assert np.array_equal(counts, count_ids(ids, vocabulary.special))
    assert counts.sum() == np.count_nonzero(~vocabulary.special[ids])
    drawn = [
        np.asarray(arrow_files.masks_of(arrow_files.read_table(one / mask.file)).random_ids)
        for shard in manifest.of(TRAIN)
        for mask in shard.masks
    ]
    assert not vocabulary.special[np.concatenate(drawn)].any()
    assert (counts[np.concatenate(drawn)] > 0).all()
    assert "masks match their keys" in call(inspect.main, one, "--verify")


def test_the_loader_draws_what_would_be_stored(
    corpus: Path, tiny_tokenizer: Path, tmp_path: Path, call: Call
) -> None:
    """Of shards without masks; and those that differ from uniform ones do so in the random ids."""
    found = {}
    for name, more in {"stored": UNIGRAM, "anew": UNIGRAM + ANEW, "uniform": UNIGRAM[2:]}.items():
        call(prepare.main, "--corpus", corpus, *tiny(tiny_tokenizer, tmp_path / name), *more)
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
            expected, uniform = (
                arrow_files.masks_of(arrow_files.read_table(tmp_path / name / mask.file))
                for name in ("stored", "uniform")
            )
            drawn = dataset.masking.draw(*given, number)
            assert np.array_equal(drawn.random_ids, expected.random_ids)
            for column in ("positions", "actions", "random_offsets"):
                assert np.array_equal(getattr(drawn, column), getattr(expected, column))
                assert np.array_equal(getattr(uniform, column), getattr(expected, column))
            assert not np.array_equal(uniform.random_ids, expected.random_ids)

    data = override(recipe("roberta_tiny"), [*UNIGRAM[1::2], *ANEW[1::2]]).data
    again = dataset.drawing(data).masking
    assert again and again.describe() == found["anew"].masking
    call(prepare.main, "--corpus", corpus, *tiny(tiny_tokenizer, tmp_path / "plain"), *ANEW)
    with pytest.raises(DataError, match=r"its tokens were not counted; prepare it again with --se"):
        Dataset.open(tmp_path / "plain").drawing(data)


def test_a_corpus_to_evaluate_on_and_a_dry_run(
    corpus: Path, tiny_tokenizer: Path, tmp_path: Path, call: Call
) -> None:
    """Without train rows, the held-out rows are counted."""
    given = ["--corpus", corpus, *tiny(tiny_tokenizer, tmp_path / "out"), *UNIGRAM]
    assert "disk: about" in call(prepare.main, *given, "--dry-run")
    call(prepare.main, *given, "--set", "data.validation_fraction=1")
    manifest = read_manifest(tmp_path / "out")
    assert not manifest.of(TRAIN)
    counts = read_counts(tmp_path / "out", manifest, manifest.tokenizer["size"])
    assert 0 < counts.sum() < manifest.totals["tokens"]
    assert "masks match their keys" in call(inspect.main, tmp_path / "out", "--verify")
