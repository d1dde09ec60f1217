"""One sequence of the shards as the encoder sees it, with its masks side by side."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from pipeline.base.errors import ConfigError
from pipeline.data.rows.masks import KEPT, MASK, RANDOM
from pipeline.data.rows.segment_rows import IN_ORDER, RANDOM_NEXT, UNLABELLED
from pipeline.data.shards import arrow_files
from pipeline.data.shards.document_index import DOCUMENTS, SEQUENCE_COLUMNS, DocumentIndex
from pipeline.data.shards.manifest import Manifest, Shard
from pipeline.data.shards.row_statistics import Drawn
from pipeline.data.tokenizers.definitions import UNIGRAM
from pipeline.data.tokenizers.vocabulary import Vocabulary

PAIRS = {
    IN_ORDER: "A and B in order",
    RANDOM_NEXT: "B of another document",
    UNLABELLED: "no label",
}
"""Kinds of pairs of segments, in words."""
_CELLS = {-1: "·", MASK: "M", RANDOM: "R", KEPT: "K"}
_LEGEND = "M {mask}  R random id  K kept, but predicted  · not predicted"


def locate(manifest: Manifest, split: str, index: int) -> tuple[Shard, int]:
    """The shard and its row of a sequence; index: number in the split, from 0.

    Raises ConfigError if the split has no such sequence.
    """
    count = sum(shard.sequences for shard in manifest.of(split))
    if not 0 <= index < count:
        raise ConfigError(f"--sequence {index}: {split} has {count:,} sequences, counted from 0")
    for shard in manifest.of(split):
        if index < shard.sequences:
            return shard, index
        index -= shard.sequences
    raise AssertionError("index is in no shard")


def print_sequence(
    directory: Path,
    shard: Shard,
    row: int,
    masks: list[Drawn],
    title: str,
    tokenizer: Tokenizer,
    vocabulary: Vocabulary,
    limit: int,
) -> None:
    """Print one row: its text, and the action of each duplicate on each token.

    masks: of this row; limit: of tokens, 0 for all.
    """
    table = arrow_files.read_table(directory / shard.file).slice(row, 1)
    ids = np.array(table["input_ids"][0].as_py())
    starts = table["document_starts"][0].as_py()
    second = table["second_segment"][0].as_py()
    label = table["pair_label"][0].as_py()
    pair = f", {PAIRS.get(label, f'impossible label {label}')}" if second else ""
    print(
        f"\n{title}: {shard.file} row {row}, id {table['sequence'][0]}, corpus "
        f"{table['corpus'][0]}, {len(ids)} tokens, {len(starts)} document(s){pair}"
    )
    width = max(40, min(shutil.get_terminal_size((100, 20)).columns, 120))
    starts = [0, second] if second else starts
    for number, (start, stop) in enumerate(zip(starts, [*starts[1:], len(ids)])):
        text = " ".join(tokenizer.decode(ids[start:stop].tolist()).split())
        name = f"segment {'AB'[number]}" if second else f"document {number}"
        print(f"  {name}: {_shortened(text, width - 14)}")
    coins = [drawn.swapped[0] for drawn in masks if drawn.swapped is not None]
    if second and coins:
        swapped = " ".join(str(k) for k in np.flatnonzero(coins))
        print(f"  B is shown before A with masks: {swapped or 'none'}")
    grid = np.stack(
        [_row_actions(drawn.positions[0], drawn.actions[0], len(ids)) for drawn in masks]
    )
    print(f"\n  {_LEGEND.format(mask=tokenizer.id_to_token(vocabulary.mask))}")
    print(f"  {'position  token':<30} " + " ".join(f"{k}" for k in range(len(grid))))
    shown_tokens = len(ids) if limit == 0 else min(limit, len(ids))
    for position in range(shown_tokens):
        token = tokenizer.decode([int(ids[position])], skip_special_tokens=False)
        if vocabulary.special[ids[position]] or vocabulary.kind == UNIGRAM:
            # Decoding would drop unigram's word-start mark.
            token = tokenizer.id_to_token(int(ids[position])) or ""
        mark = "|" if position in starts and position > 0 else " "
        cells = " ".join(_CELLS[int(code)] for code in grid[:, position])
        print(f"  {position:>5} {mark}  {token[:20]!r:<23}{cells}".rstrip())
    if shown_tokens < len(ids):
        print(f"  ... {len(ids) - shown_tokens} more tokens: --tokens 0 shows all")


def print_documents(directory: Path, shard: Shard, row: int) -> None:
    """Print id and origin of each document that has a part in one row."""
    sequences = arrow_files.read_table(directory / shard.file)["sequence"].to_numpy()
    sequence = sequences[row]
    # documents and rows of one part belong together, and the upper half of an id is its part's
    part = sequences[sequences >> np.uint64(32) == sequence >> np.uint64(32)]
    documents = DocumentIndex(directory).documents_of(part, (*SEQUENCE_COLUMNS, "id", "origin"))
    for document in documents.to_pylist():
        inside = document["first_sequence"] <= sequence <= document["last_sequence"]
        if inside or sequence in document["other_sequences"]:
            print(f"  {DOCUMENTS}: {document['id']} {document['origin']}")


def _shortened(text: str, room: int) -> str:
    if len(text) <= room:
        return text
    return f"{text[: room // 2 - 2]} ... {text[-room // 2 + 3 :]}"


def _row_actions(
    bitmap: npt.NDArray[np.uint8], packed: npt.NDArray[np.uint8], tokens: int
) -> npt.NDArray[np.int64]:
    """[tokens] action of each position, -1 where nothing is predicted; of a row's mask."""
    chosen = np.flatnonzero(np.unpackbits(bitmap, bitorder="little")[:tokens])
    # the last byte is padded with zeros, which are also [MASK]'s code: cut by the count
    codes = np.stack([(packed >> 2 * slot) & 3 for slot in range(4)], 1).ravel()[: len(chosen)]
    found = np.full(tokens, -1)
    found[chosen] = codes
    return found
