"""Verification of shards against the manifest: hashes, well-formed rows, masks drawn again.

Masks of a row with a document that was taken down cannot be drawn again: words, and with them most
schemes, depend on the text that is gone. They must be well formed, and predict nothing there.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.base.errors import DataError
from pipeline.base.progress import tracked
from pipeline.config.data_settings import DataSettings
from pipeline.config.formats import SEPARATORS
from pipeline.data.rows.masks import GENERATOR_VERSION, Masking, Masks
from pipeline.data.rows.predictions import Predictions
from pipeline.data.rows.segment_rows import IN_ORDER, RANDOM_NEXT, UNLABELLED
from pipeline.data.shards import arrow_files
from pipeline.data.shards.document_index import documents_of, verify_documents
from pipeline.data.shards.manifest import (
    MANIFEST,
    TRAIN,
    VALIDATION,
    Manifest,
    Shard,
    check_size,
    hash_file,
    stored_masks,
)
from pipeline.data.shards.segments import BoolArray, IntArray, taken_tokens
from pipeline.data.shards.token_counts import TOKEN_COUNTS, count_ids, read_counts
from pipeline.data.tokenizers.definitions import BYTE_BPE
from pipeline.data.tokenizers.folders import read_word_starts
from pipeline.data.tokenizers.vocabulary import Vocabulary


def verify(directory: Path, manifest: Manifest, vocabulary: Vocabulary) -> None:
    """Hash every file and draw every mask again. Raises DataError naming the first difference."""
    verify_files(directory, manifest)
    for shard in tracked(manifest.shards, "verifying", "shards"):
        verify_shard(directory, manifest, shard, vocabulary)
    if TOKEN_COUNTS in manifest.files and not manifest.takedowns:
        _verify_counts(directory, manifest, vocabulary)


def verify_files(directory: Path, manifest: Manifest) -> None:
    """Raise DataError naming the first other file that differs from the manifest."""
    for name, entry in manifest.files.items():
        _verify_hash(check_size(directory, name, entry["bytes"]), entry["xxh3_64"])


def verify_shard(directory: Path, manifest: Manifest, shard: Shard, vocabulary: Vocabulary) -> None:
    """Raise DataError naming the file if a hash, a row or a mask of `shard` is wrong."""
    for file in shard.files():
        _verify_hash(check_size(directory, file.file, file.bytes), file.xxh3_64)
    table = arrow_files.read_table(directory / shard.file)
    ids, offsets = arrow_files.ragged(table["input_ids"])
    wrong = (
        _wrong_rows(manifest, shard, vocabulary, ids, offsets)
        or _wrong_columns(table, ids)
        or _wrong_pairs(table, ids, offsets, vocabulary.eos)
    )
    if wrong:
        raise DataError(f"{directory / shard.file}: {wrong}; run pipeline.prepare again")
    verify_documents(directory, shard.file, table)
    separators = SEPARATORS[manifest.tokenizer["kind"]]
    taken = taken_tokens(table, documents_of(directory, table["sequence"].to_numpy()), separators)
    if wrong := _wrong_takedown(ids, taken, vocabulary):
        raise DataError(f"{directory / shard.file}: {wrong}; run pipeline.takedown again")
    stored = stored_masks(manifest.duplicates, shard.split)
    if len(shard.masks) != stored:
        raise DataError(
            f"{directory / shard.file} has {len(shard.masks)} masks, the manifest says {stored}; "
            "run pipeline.prepare again"
        )
    drawn = masking_of(directory, manifest, vocabulary).draw_duplicates(
        ids, offsets, str(table["corpus"][0]), table["sequence"].to_numpy(), range(stored)
    )
    for mask, expected in zip(shard.masks, drawn):
        path = directory / mask.file
        found = arrow_files.masks_of(arrow_files.read_table(path))
        if taken.any():
            expected = _with_taken_rows(path, found, expected, taken, ids, offsets, vocabulary)
        if mask.predictions != expected.predictions:
            raise DataError(
                f"{path}: {expected.predictions:,} predictions, the manifest says "
                f"{mask.predictions:,}; run pipeline.prepare again"
            )
        _verify_masks(path, found, expected)


def masking_of(directory: Path, manifest: Manifest, vocabulary: Vocabulary) -> Masking:
    """The masking that draws a directory's masks, stored or not; vocabulary: the directory's."""
    if manifest.masking["generator"] != GENERATOR_VERSION:
        raise DataError(
            f"masks of {directory} are from generator {manifest.masking['generator']}, but this "
            f"version has {GENERATOR_VERSION}; use the version that made it, or prepare it again"
        )
    counts = None
    if manifest.masking.get("random_ids") == "unigram":
        counts = read_counts(directory, manifest, vocabulary.size)
    # not the vocabulary's: the rule for them may have changed since the masks were drawn
    word_starts = read_word_starts(directory / "tokenizer", vocabulary)
    try:
        return Masking.described(
            manifest.masking, vocabulary.special, word_starts, manifest.seed, counts
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{directory / MANIFEST} is damaged: masking cannot be used ({error}); copy it"
        ) from error


def _verify_counts(directory: Path, manifest: Manifest, vocabulary: Vocabulary) -> None:
    """Raise DataError unless the stored counts are those of the rows."""
    counts = np.zeros(vocabulary.size, np.uint64)
    for shard in manifest.of(TRAIN) or manifest.of(VALIDATION):
        ids, _ = arrow_files.ragged(arrow_files.read_table(directory / shard.file)["input_ids"])
        counts += count_ids(ids, vocabulary.special)
    if not np.array_equal(counts, read_counts(directory, manifest, vocabulary.size)):
        raise DataError(
            f"{directory / TOKEN_COUNTS} does not count the tokens of the rows; run "
            "pipeline.prepare again"
        )


def masking_for(data: DataSettings, prepared: Masking, directory: Path) -> Masking:
    """A directory's masking with other settings; prepared: its own.

    Raises DataError if they need counts of the tokens that it lacks.
    """
    if data.masks.random_ids == "unigram" and prepared.counts is None:
        raise DataError(
            f"{directory} was prepared with data.masks.random_ids=uniform, so its tokens were not "
            "counted; prepare it again with --set data.masks.random_ids=unigram, or train with "
            "--set data.masks.random_ids=uniform"
        )
    law = Masking.of(data, prepared.special, prepared.word_starts, prepared.counts)
    return replace(law, seed=prepared.seed)


def _verify_hash(path: Path, expected: str) -> None:
    found = hash_file(path)
    if found != expected:
        raise DataError(
            f"{path} is damaged: xxh3_64 {found}, the manifest says {expected}; copy it again"
        )


def _wrong_rows(
    manifest: Manifest,
    shard: Shard,
    vocabulary: Vocabulary,
    ids: npt.NDArray[Any],
    offsets: npt.NDArray[np.int64],
) -> str:
    """What is wrong with the tokens of the rows, or ""."""
    lengths = np.diff(offsets)
    if len(lengths) != shard.sequences or len(ids) != shard.tokens:
        return (
            f"{len(lengths):,} rows and {len(ids):,} tokens, the manifest says "
            f"{shard.sequences:,} and {shard.tokens:,}"
        )
    if lengths.max() > manifest.sequence_length or lengths.min() < 3:
        return f"a row has {lengths.max()} or {lengths.min()} tokens, which is out of range"
    if ids.max() >= vocabulary.size:
        return f"a row has id {ids.max()}, but the tokenizer has {vocabulary.size} ids"
    if (ids[offsets[:-1]] != vocabulary.bos).any() or (
        ids[offsets[1:] - 1] != vocabulary.eos
    ).any():
        return "a row does not start and end with its special tokens"
    if np.count_nonzero(ids == vocabulary.bos) != len(lengths):
        return "a row has a start token inside"
    never = [vocabulary.mask]
    if not manifest.takedowns:
        never.append(vocabulary.pad)
    if vocabulary.kind == BYTE_BPE:  # encodes every text without unknown tokens
        never.append(vocabulary.unk)
    if np.isin(ids, never).any():
        return "a row has a mask, padding or unknown token"
    return ""


def _wrong_columns(table: pa.Table, ids: npt.NDArray[Any]) -> str:
    """What is wrong with the other columns, or ""."""
    if len(table["corpus"].unique()) != 1:
        return "corpora are mixed"
    sequences = table["sequence"].to_numpy()
    if (sequences[1:] <= sequences[:-1]).any():
        return "sequence ids do not ascend"
    starts, mark_offsets = arrow_files.ragged(table["document_starts"])
    _, offsets = arrow_files.ragged(table["input_ids"])
    if (starts[mark_offsets[:-1]] != 0).any():
        return "a row's first document does not start at 0"
    inner = np.delete(np.arange(len(starts)), mark_offsets[:-1])
    rows = np.searchsorted(mark_offsets, inner, side="right") - 1
    places = offsets[rows] + starts[inner]
    if (starts[inner] <= starts[inner - 1]).any() or (places >= offsets[rows + 1] - 1).any():
        return "document starts do not ascend inside a row"
    if len(inner) and len(np.unique(ids[places - 1])) != 1:
        return "a document is not separated from the previous one"
    return ""


def _wrong_pairs(
    table: pa.Table, ids: npt.NDArray[Any], offsets: npt.NDArray[np.int64], eos: int
) -> str:
    """What is wrong with the segments of the rows, or ""."""
    second = table["second_segment"].to_numpy().astype(np.int64)
    label = table["pair_label"].to_numpy()
    paired = np.flatnonzero(second)
    places = offsets[paired] + second[paired]
    if (second[paired] < 3).any() or (places >= offsets[paired + 1] - 1).any():
        return "a second segment is outside its row"
    if (ids[places - 1] != eos).any() or (ids[places] == eos).any():
        return "a second segment does not start after a separator"
    if not np.isin(label, [IN_ORDER, RANDOM_NEXT, UNLABELLED]).all():
        return f"a pair label is {label.min()} or {label.max()}, which is not a label"
    if (label[second == 0] != UNLABELLED).any():
        return "a row of one segment has a pair label"
    mixed = table["document_starts"].combine_chunks().value_lengths().to_numpy()[paired] == 2
    if (mixed != (label[paired] == RANDOM_NEXT)).any():
        return "a pair's documents do not match its label"
    return ""


def _wrong_takedown(ids: npt.NDArray[Any], taken: BoolArray, vocabulary: Vocabulary) -> str:
    """What is wrong with the tokens of documents that were taken down, `taken` [tokens], or ""."""
    if (taken & ~vocabulary.special[ids]).any():
        return "text of a document that was taken down is still there"
    if (~taken & (ids == vocabulary.pad)).any():
        return "a padding token is outside the documents that were taken down"
    return ""


def _with_taken_rows(
    path: Path,
    stored: Masks,
    drawn: Masks,
    taken: BoolArray,
    ids: npt.NDArray[Any],
    offsets: IntArray,
    vocabulary: Vocabulary,
) -> Masks:
    """The masks that `path` should hold: as drawn, but as stored in rows with taken tokens."""
    is_taken = np.logical_or.reduceat(taken, offsets[:-1])
    try:
        theirs, ours = (Predictions.of(masks, offsets) for masks in (stored, drawn))
    except ValueError as error:
        raise DataError(f"{path}: {error}; run pipeline.takedown again") from error
    if vocabulary.special[ids[theirs.places]].any():
        raise DataError(f"{path} predicts a special token; run pipeline.takedown again")
    kept = [
        part.select(is_taken[np.searchsorted(offsets, part.places, "right") - 1] == wanted)
        for part, wanted in ((theirs, True), (ours, False))
    ]
    return Predictions.merge(*kept).to_masks(offsets, drawn.swapped)


def _verify_masks(path: Path, found: Masks, expected: Masks) -> None:
    for name, offsets in (
        ("positions", "position_offsets"),
        ("actions", "action_offsets"),
        ("random_ids", "random_offsets"),
    ):
        if not all(
            np.array_equal(getattr(found, column), getattr(expected, column))
            for column in (name, offsets)
        ):
            raise DataError(
                f"{path}: {name} are not what its key draws; run pipeline.prepare again"
            )
    coins, drawn = np.asarray(found.swapped), np.asarray(expected.swapped)
    if expected.swapped is not None and not np.array_equal(coins, drawn):
        raise DataError(f"{path}: swapped is not what its key draws; run pipeline.prepare again")
