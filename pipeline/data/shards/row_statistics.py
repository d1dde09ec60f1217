"""Statistics of the rows and masks of a prepared directory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.base.errors import DataError
from pipeline.base.progress import tracked
from pipeline.data.rows.masks import MASK, Masking
from pipeline.data.rows.segment_rows import IN_ORDER, RANDOM_NEXT, UNLABELLED
from pipeline.data.shards import arrow_files
from pipeline.data.shards.manifest import Manifest, Shard
from pipeline.data.shards.verify import masking_of
from pipeline.data.tokenizers.vocabulary import Vocabulary

DRAWN_EPOCHS = 10
"""Epochs whose masks are drawn if none are stored."""
Ragged = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]
"""A binary column: flat bytes and [rows + 1] offsets."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """One duplicate of the masks of some rows."""

    positions: Ragged
    actions: Ragged
    swapped: npt.NDArray[np.bool_] | None
    """[rows]; None without sentence order prediction."""


@dataclass(slots=True)
class Statistics:
    """Sums over rows and duplicates."""

    lengths: npt.NDArray[np.int64]
    """[rows] tokens per row."""
    documents: npt.NDArray[np.int64]
    """[rows] documents, or parts of documents, per row."""
    text_tokens: int
    predictions: npt.NDArray[np.int64]
    """[duplicates] predicted positions."""
    actions: npt.NDArray[np.int64]
    """[duplicates, 3] predicted positions with [MASK], with a random id, and kept."""
    runs: int
    """Maximal runs of adjacent predicted positions, over all duplicates."""
    pairs: dict[int, int]
    """Rows of two segments by label."""
    coins: int
    """Pairs with a coin, over all duplicates."""
    swapped: int
    """Number of these pairs that show B before A."""


def measure_rows(directory: Path, manifest: Manifest, vocabulary: Vocabulary) -> Statistics:
    """Count lengths, documents and actions of every row and mask."""
    lengths, documents = [], []
    text_tokens = runs = coins = swapped = 0
    pairs = dict.fromkeys((IN_ORDER, RANDOM_NEXT, UNLABELLED), 0)
    duplicates = manifest.duplicates or DRAWN_EPOCHS
    predictions = np.zeros(duplicates, np.int64)
    actions = np.zeros((duplicates, 4), np.int64)
    # a histogram of bytes times such a table counts bits or actions without unpacking them
    bits = np.array([bin(byte).count("1") for byte in range(256)], np.int64)
    codes = np.array([[(byte >> 2 * slot) & 3 for slot in range(4)] for byte in range(256)])
    code_counts = np.stack([(codes == code).sum(1) for code in range(4)], 1)
    masking = _masking(directory, manifest, vocabulary)
    pieces = (
        (shard, *piece)
        for shard in tracked(manifest.shards, "reading", "shards")
        for piece in _read_pieces(directory, shard, masking)
    )
    for shard, table, masks in pieces:
        ids, offsets = arrow_files.ragged(table["input_ids"])
        if ids.max(initial=0) >= vocabulary.size:  # before ids index the vocabulary's tables
            raise DataError(f"{directory / shard.file} is damaged: id {ids.max()}; copy it again")
        lengths.append(np.diff(offsets))
        documents.append(np.diff(arrow_files.ragged(table["document_starts"])[1]))
        text_tokens += int(np.count_nonzero(~vocabulary.special[ids]))
        paired = table["second_segment"].to_numpy() > 0
        for label in pairs:
            pairs[label] += int(np.count_nonzero(table["pair_label"].to_numpy()[paired] == label))
        for duplicate, drawn in enumerate(masks):
            positions, packed = drawn.positions[0], drawn.actions[0]
            if drawn.swapped is not None:
                coins += int(paired.sum())
                swapped += int(drawn.swapped[paired].sum())
            found = np.bincount(positions, minlength=256) @ bits
            predictions[duplicate] += found
            runs += _count_runs(positions)
            counted = np.bincount(packed, minlength=256) @ code_counts
            counted[MASK] -= 4 * len(packed) - found  # padding of each row's last byte counts as 0
            actions[duplicate] += counted
    return Statistics(
        np.concatenate(lengths),
        np.concatenate(documents),
        text_tokens,
        predictions,
        actions[:, :3],  # there is no code 3
        runs,
        pairs,
        coins,
        swapped,
    )


def read_masks(
    directory: Path, manifest: Manifest, shard: Shard, vocabulary: Vocabulary, row: int
) -> list[Drawn]:
    """The duplicates of one row of a shard: the stored ones, or those of the first epochs."""
    masking = _masking(directory, manifest, vocabulary)
    files = shard.masks if masking is None else (shard,)
    tables = [arrow_files.read_table(directory / file.file).slice(row, 1) for file in files]
    return [*map(_stored, tables)] if masking is None else [*_draw(masking, tables[0])]


def _read_pieces(
    directory: Path, shard: Shard, masking: Masking | None
) -> Iterator[tuple[pa.Table, Iterator[Drawn]]]:
    """The rows of each piece of a shard, so that memory does not grow with the shard, and their
    duplicates; masking: as `_masking` returns it."""
    rows = arrow_files.read_pieces(directory / shard.file, shard)
    if masking is not None:
        yield from ((table, _draw(masking, table)) for table in rows)
        return
    masks = (arrow_files.read_pieces(directory / mask.file, shard) for mask in shard.masks)
    yield from ((table, map(_stored, own)) for table, *own in zip(rows, *masks, strict=True))


def _masking(directory: Path, manifest: Manifest, vocabulary: Vocabulary) -> Masking | None:
    """The masking that draws the masks of train rows, None if they are stored."""
    return None if manifest.duplicates else masking_of(directory, manifest, vocabulary)


def _stored(table: pa.Table) -> Drawn:
    coins = table["swapped"].to_numpy() if "swapped" in table.column_names else None
    positions, actions = (arrow_files.ragged(table[name]) for name in ("positions", "actions"))
    return Drawn(positions, actions, coins)


def _draw(masking: Masking, rows: pa.Table) -> Iterator[Drawn]:
    drawn = masking.draw_duplicates(
        *arrow_files.ragged(rows["input_ids"]),
        str(rows["corpus"][0]),
        rows["sequence"].to_numpy(),
        range(DRAWN_EPOCHS),
    )
    for masks in drawn:
        yield Drawn(
            (masks.positions, masks.position_offsets.astype(np.int64)),
            (masks.actions, masks.action_offsets.astype(np.int64)),
            masks.swapped,
        )


def _count_runs(positions: npt.NDArray[np.uint8]) -> int:
    """Number of maximal runs of set bits in the bitmaps of rows."""
    bits = np.unpackbits(positions, bitorder="little")
    begins = bits[1:] & ~bits[:-1]  # a row ends in a special token, so runs do not cross rows
    return int(np.count_nonzero(begins)) + int(bits[:1].sum())
