"""One shard without the text of the documents that were taken down.

Their tokens become the pad id, and nothing is predicted there any more. Special tokens stay, and so
do rows, their lengths, documents, segments, labels and sequence ids. A shard that holds none of
these documents is linked, or copied to another file system.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.base.errors import DataError
from pipeline.base.files import whole_file, write_whole
from pipeline.config.formats import SEPARATORS
from pipeline.data.rows.predictions import Predictions
from pipeline.data.shards import arrow_files
from pipeline.data.shards.document_index import DocumentIndex
from pipeline.data.shards.manifest import Manifest, MaskFile, Shard, check_size, hash_file
from pipeline.data.shards.segments import BoolArray, taken_tokens
from pipeline.data.shards.shard_task import ShardTask
from pipeline.data.tokenizers.folders import read_vocabulary


@dataclass(frozen=True, slots=True)
class TakedownWorker:
    """The settings that all tasks of a takedown share."""

    data: Path
    """The shards that are read."""
    output: Path
    """The new ones."""
    work: Path
    """Holds the markers, and the new documents.parquet, which says what is taken down."""
    manifest: Manifest
    """Manifest of `data`."""
    first_sequences: npt.NDArray[np.uint64]
    """First sequences of the newly taken documents."""

    def start(self) -> Callable[[ShardTask], None]:
        """The function that does a task."""
        return partial(self.do, DocumentIndex(self.work))

    def do(self, index: DocumentIndex, task: ShardTask) -> None:
        """Write the files of the new shard, then its marker."""
        shard = task.shard
        for file in shard.files():
            check_size(self.data, file.file, file.bytes)
        rows = arrow_files.read_table(self.data / shard.file)
        # all rows with a part of a document are in one shard, so the first one decides
        touched = np.isin(self.first_sequences, rows["sequence"].to_numpy())
        content: dict[str, Any] = {"shard": asdict(shard), "sequences": 0, "tokens": 0}
        if touched.any():
            pieces = arrow_files.split_into_pieces(rows, shard, self.data / shard.file)
            content = self._clear(index, shard, pieces)
        else:
            for file in shard.files():
                copy(self.data / file.file, self.output / file.file, linked=True)
        write_whole(self.work / task.marker, json.dumps(content).encode())

    def _clear(self, index: DocumentIndex, shard: Shard, rows: list[pa.Table]) -> dict[str, Any]:
        """Write the shard without the taken text; rows: its pieces. Returns the content of its
        marker."""
        for file in shard.files():
            _check_hash(self.data / file.file, file.xxh3_64)
        vocabulary = read_vocabulary(self.data / "tokenizer")
        separators = SEPARATORS[self.manifest.tokenizer["kind"]]
        cleared, offsets, new_rows = [], [], []
        for piece in rows:
            documents = index.documents_of(piece["sequence"].to_numpy())
            ids, starts = arrow_files.ragged(piece["input_ids"])
            # special tokens stay, because readers check where rows and segments end by them
            gone = taken_tokens(piece, documents, separators) & ~vocabulary.special[ids]
            new_ids = np.where(gone, ids.dtype.type(vocabulary.pad), ids)
            new_rows.append(arrow_files.with_ids(piece, new_ids))
            cleared.append(gone)
            offsets.append(starts)
        masks = []
        for mask in shard.masks:
            tables = arrow_files.read_pieces(self.data / mask.file, shard)
            left = [clear_masks(*piece) for piece in zip(tables, offsets, cleared, strict=True)]
            entry = self._write(mask.file, [table for table, _ in left])
            masks.append(MaskFile(**entry, predictions=sum(count for _, count in left)))
        new = replace(shard, **self._write(shard.file, new_rows), masks=tuple(masks))
        touched = (
            np.logical_or.reduceat(gone, starts[:-1]) for gone, starts in zip(cleared, offsets)
        )
        return {
            "shard": asdict(new),
            "sequences": sum(int(rows.sum()) for rows in touched),
            "tokens": sum(int(gone.sum()) for gone in cleared),
        }

    def _write(self, file: str, pieces: list[pa.Table]) -> dict[str, Any]:
        """Write a file of the new shards. Returns its path, bytes and hash."""
        compression: arrow_files.Compression = (
            "zstd" if self.manifest.compression == "zstd" else "none"
        )
        schema = pieces[0].schema
        entry = arrow_files.write_tables(self.output / file, schema, pieces, compression)
        return entry | {"file": file}


def clear_masks(
    table: pa.Table, row_offsets: npt.NDArray[np.int64], cleared: BoolArray
) -> tuple[pa.Table, int]:
    """A mask file without predictions at `cleared` [tokens], and the number of the others."""
    masks = arrow_files.masks_of(table)
    predictions = Predictions.of(masks, row_offsets)
    kept = predictions.select(~cleared[predictions.places])
    return arrow_files.mask_table(kept.to_masks(row_offsets, masks.swapped)), len(kept.places)


def copy(source: Path, target: Path, *, linked: bool = False) -> None:
    """Copy a file; linked: as another name of the same file, if the file system can."""
    if linked:
        with suppress(OSError):
            if not target.exists():
                os.link(source, target)
            if target.samefile(source):  # linked now, or by a run that was killed
                return
    with whole_file(target, lasting=False) as temporary:
        shutil.copyfile(source, temporary)


def _check_hash(path: Path, expected: str) -> None:
    """Raise DataError if a file that is rewritten is damaged: nothing would show it later."""
    if hash_file(path) != expected:
        raise DataError(f"{path} is damaged: its hash does not match the manifest; copy it again")
