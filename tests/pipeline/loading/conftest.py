"""Prepared directories of random rows, for the tests of loading."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pipeline.config.data_settings import prediction_count
from pipeline.data.rows.masks import Masking, Masks
from pipeline.data.rows.sentence_rows import Rows
from pipeline.data.shards import arrow_files
from pipeline.data.shards.manifest import (
    MANIFEST,
    Manifest,
    MaskFile,
    Shard,
    mask_file,
    read_manifest,
    rows_file,
    shard_name,
)
from pipeline.loading.dataset import Dataset
from tests.pipeline.data import small_shards

LENGTH, SLOTS = 70, 10  # round(0.15 x 68)
BOS, PAD, EOS, MASK = 0, 1, 2, 4
NEWS = {
    **dict.fromkeys(("documents", "validation_sequences", "tokens", "bytes", "characters"), 0),
    **{name: {} for name in ("dropped", "bad", "cut", "noted")},
    "packed": dict.fromkeys(("text_tokens", "repeated_tokens", "dropped_tokens"), 0),
    "unknown": {"tokens": 0, "characters": 0},
    "licence": "unknown",
}  # fmt: skip
"""A corpus's entry of a manifest, without its rows."""
TOKEN_MASKS = {"scheme": "token", "rate": 0.15, "split": [0.8, 0.1]}


@pytest.fixture(scope="session")
def random_shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three shards of 1,500, 1,024 and 300 rows with ten mask duplicates."""
    return prepare_directory(tmp_path_factory.mktemp("plain") / "news")


@pytest.fixture(scope="session")
def compressed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same rows and masks, compressed."""
    return prepare_directory(tmp_path_factory.mktemp("zstd") / "news", compression="zstd")


@pytest.fixture
def damaged(random_shards: Path, tmp_path: Path) -> Path:
    """A copy of `random_shards` that a test may damage."""
    return Path(shutil.copytree(random_shards, tmp_path / "damaged"))


def drawing(directory: Path, **changed: Any) -> Dataset:
    """The training rows with masks that are drawn instead of read; changed: in the manifest."""
    manifest = read_manifest(directory)
    special = np.arange(manifest.tokenizer["size"]) < 5
    masking = Masking.described(manifest.masking, special, special, manifest.seed)
    return Dataset(directory, replace(manifest, **changed), manifest.of("train"), masking)


def prepare_directory(
    directory: Path,
    shard_rows: tuple[int | tuple[int, ...], ...] = (1500, 1024, 300),
    *,
    duplicates: int = 10,
    vocabulary: int = 1000,
    compression: arrow_files.Compression = "none",
    seed: int = 0,
    tokenizer: str = "aa" * 32,
    label: str = "",
    length: int = LENGTH,
    shortest: int = 3,
) -> Path:
    """A prepared directory of random rows, of `shortest` to `length` tokens, some with several
    documents.

    shard_rows: of each shard, or of each of its pieces; label: rows of 9 tokens or more are pairs,
    "next" with labels or "order" with coins.
    """
    directory.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    special = np.arange(vocabulary) < 5
    masks_described = TOKEN_MASKS | ({"swaps": True} if label == "order" else {})
    scheme = Masking.described(masks_described, special, special, seed)
    described, first = [], 0
    for number, counts in enumerate(shard_rows):
        pieces = (counts,) if isinstance(counts, int) else counts
        tables: list[pa.Table] = []
        masks: list[list[Masks]] = [[] for _ in range(duplicates)]
        tokens = 0
        for count in pieces:
            rows = random_rows(rng, count, vocabulary, length, shortest)
            if label:
                part_in_two(rows, label)
            sequences = np.arange(first, first + count, dtype=np.uint64)
            first += count
            tokens += len(rows.ids)
            content = arrow_files.encode_rows(rows, "news", ["news"], sequences, "none")
            tables.append(pa.ipc.open_file(content).read_all())
            drawn = scheme.draw_duplicates(
                rows.ids, rows.offsets, "news", sequences, range(duplicates)
            )
            for own, mask in zip(masks, drawn, strict=True):
                own.append(mask)
        name = shard_name("train", number)
        described.append(
            Shard(
                **write(directory, rows_file(name), tables, compression),
                split="train",
                sequences=sum(pieces),
                tokens=tokens,
                masks=tuple(
                    MaskFile(
                        **write(
                            directory, mask_file(name, duplicate),
                            [*map(arrow_files.mask_table, own)], compression,
                        ),
                        predictions=sum(mask.predictions for mask in own),
                    )
                    for duplicate, own in enumerate(masks)
                ),
                pieces=pieces if len(pieces) > 1 else (),
            )
        )  # fmt: skip
    rows_in_all = sum(shard.sequences for shard in described)
    tokens_in_all = sum(shard.tokens for shard in described)
    manifest = Manifest(
        fingerprint="0",
        data={
            "format": "segment_pair" if label else "full_sentences", "duplicates": duplicates,
            "sequence_length": length,
        },
        masking=scheme.describe(), sequence_length=length,
        max_predictions=prediction_count(length - 2, 0.15),
        duplicates=duplicates, seed=seed, compression=compression,
        engine={"recipe": "none", "ids": "none", "mismatches": []},
        tokenizer={
            "sha256": tokenizer, "kind": "byte-bpe", "size": vocabulary, "bos": BOS, "pad": PAD,
            "eos": EOS, "unk": 3, "mask": MASK,
        },
        corpora={"news": NEWS | {"sequences": rows_in_all}},
        totals={"documents": 0, "sequences": rows_in_all, "tokens": tokens_in_all},
        files={f"{name}.parquet": {"bytes": 0, "xxh3_64": ""} for name in ("documents", "inputs")},
        shards=tuple(described),
    )  # fmt: skip
    (directory / MANIFEST).write_bytes(manifest.to_json())
    return directory


def part_in_two(rows: Rows, label: str) -> None:
    """Put two separators before the second half of rows of 9 tokens or more."""
    for row, (start, stop) in enumerate(zip(rows.offsets, rows.offsets[1:])):
        if stop - start >= 9:
            second = (stop - start) // 2
            rows.ids[start + second - 2 : start + second] = EOS
            rows.second_segment[row] = second
            rows.pair_label[row] = row % 2 if label == "next" else 0


def random_rows(
    rng: np.random.Generator, count: int, vocabulary: int, length: int, shortest: int
) -> Rows:
    lengths = np.where(rng.random(count) < 0.5, length, rng.integers(shortest, length + 1, count))
    id_type = np.uint16 if vocabulary <= 65_536 else np.uint32
    starts = [[0, 20, 41] if row > 60 else [0] for row in lengths]
    return replace(
        small_shards.random_rows(lengths.tolist(), vocabulary, id_type, rng),
        document_starts=np.concatenate(starts).astype(np.uint16),
        document_offsets=np.cumsum([0, *map(len, starts)]).astype(np.int32),
    )


def write(
    directory: Path, file: str, pieces: list[pa.Table], compression: arrow_files.Compression
) -> dict[str, Any]:
    path = directory / file
    path.parent.mkdir(exist_ok=True)
    return arrow_files.write_tables(path, pieces[0].schema, pieces, compression) | {"file": file}
