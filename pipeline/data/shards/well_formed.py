"""Finds errors in the rows of a shard, as far as the rows themselves show them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.data.rows.segment_rows import IN_ORDER, RANDOM_NEXT, UNLABELLED
from pipeline.data.shards import arrow_files
from pipeline.data.shards.manifest import Manifest, Shard
from pipeline.data.tokenizers.definitions import BYTE_BPE
from pipeline.data.tokenizers.vocabulary import Vocabulary


def wrong_rows(table: pa.Table, manifest: Manifest, shard: Shard, vocabulary: Vocabulary) -> str:
    """The first thing that is wrong with the rows of `shard`, or ""; table: its rows."""
    ids, offsets = arrow_files.ragged(table["input_ids"])
    return (
        _wrong_tokens(manifest, shard, vocabulary, ids, offsets)
        or _wrong_columns(table, ids)
        or _wrong_pairs(table, ids, offsets, vocabulary.eos)
    )


def _wrong_tokens(
    manifest: Manifest,
    shard: Shard,
    vocabulary: Vocabulary,
    ids: npt.NDArray[Any],
    offsets: npt.NDArray[np.int64],
) -> str:
    """The first error in the tokens of the rows, or ""."""
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
    never = [vocabulary.mask, vocabulary.pad]  # rows have no padding
    if vocabulary.kind == BYTE_BPE:  # encodes every text without unknown tokens
        never.append(vocabulary.unk)
    if np.isin(ids, never).any():
        return "a row has a mask, padding or unknown token"
    return ""


def _wrong_columns(table: pa.Table, ids: npt.NDArray[Any]) -> str:
    """The first error in the other columns, or ""."""
    if len(table["corpus"].unique()) != 1:
        return "corpora are mixed"
    sequences = table["sequence"].to_numpy()
    if (sequences[1:] <= sequences[:-1]).any():
        return "sequence ids do not ascend"
    starts, mark_offsets = arrow_files.ragged(table["document_starts"])
    _, offsets = arrow_files.ragged(table["input_ids"])
    if (starts[mark_offsets[:-1]] != 0).any():
        return "a row's first document does not start at 0"
    inner = np.delete(np.arange(len(starts)), mark_offsets[:-1])  # without each row's first
    rows = np.searchsorted(mark_offsets, inner, side="right") - 1
    places = offsets[rows] + starts[inner]
    if (starts[inner] <= starts[inner - 1]).any() or (places >= offsets[rows + 1] - 1).any():
        return "document starts do not ascend inside a row"
    if len(inner) and len(np.unique(ids[places - 1])) != 1:  # eos, in every format
        return "a document is not separated from the previous one"
    return ""


def _wrong_pairs(
    table: pa.Table, ids: npt.NDArray[Any], offsets: npt.NDArray[np.int64], eos: int
) -> str:
    """The first error in the segments of the rows, or ""."""
    second = table["second_segment"].to_numpy().astype(np.int64)
    label = table["pair_label"].to_numpy()
    paired = np.flatnonzero(second)
    places = offsets[paired] + second[paired]
    if (second[paired] < 3).any() or (places >= offsets[paired + 1] - 1).any():  # 3: <s>, A, </s>
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
