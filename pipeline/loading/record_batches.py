"""Files of a split -> where their record batches lie in memory, mapped or read.

`Layout` says which shard and record batch a row of the split is in. `Columns` is the split's files
of one kind: a table of the addresses of their columns, filled as record batches are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.ipc

from pipeline.data.shards.arrow_files import BATCH_ROWS
from pipeline.data.shards.manifest import check_size
from pipeline.errors import DataError
from pipeline.loading import decode

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Layout:
    """Where the shards of a split begin, counted in rows and in record batches [shards + 1]."""

    row_starts: IntArray
    block_starts: IntArray

    @classmethod
    def of(cls, shard_rows: IntArray) -> Layout:
        """From the rows of each shard."""
        blocks = -(-shard_rows // BATCH_ROWS)
        return cls(*(np.concatenate([[0], np.cumsum(counts)]) for counts in (shard_rows, blocks)))

    def shard_of(self, block: int) -> int:
        """The shard that record batch `block` of the split is in."""
        return int(self.shards_of(np.array(block)))

    def shards_of(self, blocks: IntArray) -> IntArray:
        """The shards that record batches `blocks` of the split are in."""
        return np.searchsorted(self.block_starts, blocks, side="right") - 1

    def shards_of_rows(self, rows: IntArray) -> IntArray:
        """The shards that rows `rows` [n] of the split are in."""
        return np.searchsorted(self.row_starts, rows, side="right") - 1

    def locate(self, rows: IntArray) -> tuple[IntArray, IntArray]:
        """Record batch of the split and row in it, for rows [n] of the split."""
        shards = self.shards_of_rows(rows)
        inside = rows - self.row_starts[shards]
        return self.block_starts[shards] + inside // BATCH_ROWS, inside % BATCH_ROWS


class Columns:
    """One kind of file of a split, rows or one duplicate of masks: its record batches in memory."""

    def __init__(
        self, directory: Path, files: list[tuple[str, int]], layout: Layout, schema: pa.Schema
    ) -> None:
        """files: name and size in bytes of each shard's file; schema: the columns needed."""
        self.directory = directory
        self.files = files
        self.layout = layout
        self.schema = schema
        self.blocks = int(layout.block_starts[-1])
        self.addresses = np.zeros((self.blocks, len(schema) * decode.COLUMN_FIELDS), np.int64)
        """[blocks, columns x COLUMN_FIELDS] for `batches.resolve`; zeros where none is loaded."""
        self._mapped: list[pa.Buffer] = []
        self._reading: dict[int, Future[pa.RecordBatch]] = {}
        self._read: dict[int, pa.RecordBatch] = {}

    def path_of(self, block: int) -> Path:
        """The file that holds record batch `block`."""
        return self.directory / self.files[self.layout.shard_of(block)][0]

    def map(self, blocks: IntArray) -> None:
        """Make record batches `blocks` [n] addressable by mapping the files that hold them."""
        for block in np.unique(blocks[self.addresses[blocks, 1] == 0]).tolist():
            if self.addresses[block, 1] == 0:
                self._map_shard(self.layout.shard_of(block))

    def request(self, blocks: IntArray, pool: ThreadPoolExecutor) -> None:
        """Start reading those of `blocks` [n] that are neither read nor being read."""
        for block in np.unique(blocks).tolist():
            started = self._reading.get(block)
            if block not in self._read and (started is None or started.cancelled()):
                self._reading[block] = pool.submit(self.read, block)

    def wait(self, blocks: IntArray, pool: ThreadPoolExecutor, keep: int) -> list[pa.RecordBatch]:
        """Make `blocks` [n] addressable while what is returned lives; `keep` others stay too."""
        self.request(blocks, pool)
        needed = np.unique(blocks).tolist()
        for block in needed:
            # Put last what is used now: the first ones go first.
            ready = block in self._read
            batch = self._read.pop(block) if ready else self._reading.pop(block).result()
            self._read[block] = batch
            if self.addresses[block, 1] == 0:
                self.addresses[block] = self._addresses(batch, block)
        for block in list(self._read)[: max(0, len(self._read) - len(needed) - keep)]:
            self.addresses[block] = 0
            del self._read[block]
        return [self._read[block] for block in needed]

    def _map_shard(self, shard: int) -> None:
        name, size = self.files[shard]
        path = check_size(self.directory, name, size)
        first, stop = self.layout.block_starts[shard : shard + 2].tolist()
        with _reading(path):
            source = pa.memory_map(str(path))
            # The mapping lives as long as this buffer; closing gives the descriptor back, so that
            # thousands of shards fit under the usual limit of 1,024 open files.
            whole = source.read_buffer()
            source.close()
            reader = self._open(pa.BufferReader(whole), shard)
            found = [reader.get_batch(block - first) for block in range(first, stop)]
        for block, batch in zip(range(first, stop), found):
            self.addresses[block] = self._addresses(batch, block)
        self._mapped.append(whole)

    def read(self, block: int) -> pa.RecordBatch:
        """One record batch, read whole; DataError when that cannot be done."""
        shard = self.layout.shard_of(block)
        path = self.directory / self.files[shard][0]
        with _reading(path), pa.OSFile(str(path)) as source:
            reader = self._open(source, shard)
            return reader.get_batch(block - int(self.layout.block_starts[shard]))

    def _open(self, source: pa.NativeFile, shard: int) -> pa.ipc.RecordBatchFileReader:
        path = self.directory / self.files[shard][0]
        reader = pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(use_threads=False))
        first, stop = self.layout.block_starts[shard : shard + 2].tolist()
        if reader.num_record_batches != stop - first:
            raise DataError(
                f"{path} has {reader.num_record_batches} record batches where the manifest makes "
                f"{stop - first}; prepare it again",
                path,
            )
        for field in self.schema:
            index = reader.schema.get_field_index(field.name)
            if index < 0 or reader.schema.field(index).type != field.type:
                raise DataError(
                    f"{path} has no column {field.name} of {field.type}; prepare it again", path
                )
        return reader

    def _addresses(self, batch: pa.RecordBatch, block: int) -> list[int]:
        shard = self.layout.shard_of(block)
        start = (block - int(self.layout.block_starts[shard])) * BATCH_ROWS
        rows = int(self.layout.row_starts[shard + 1] - self.layout.row_starts[shard])
        expected = min(BATCH_ROWS, rows - start)
        if batch.num_rows != expected:
            raise DataError(
                f"{self.path_of(block)} has a record batch of {batch.num_rows} rows where the "
                f"manifest makes {expected}; prepare it again",
                self.path_of(block),
            )
        fields: list[int] = []
        for field in self.schema:
            buffers = batch.column(batch.schema.get_field_index(field.name)).buffers()
            offsets, data = (buffers[1], buffers[-1]) if len(buffers) > 2 else (None, buffers[1])
            items = data.size * 8 // _item_bits(field.type) if data is not None else 0
            if (offsets.size // 4 - 1 if offsets is not None else items) < expected:
                raise DataError(
                    f"{self.path_of(block)} is damaged: column {field.name} is shorter than its "
                    "record batch; copy it again",
                    self.path_of(block),
                )
            fields += (
                offsets.address if offsets is not None else 0,
                data.address if data is not None else 0,
                items,
            )
        return fields


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Arrow's errors about a file as DataError."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read: {error}; copy it again", path) from error


def _item_bits(kind: pa.DataType) -> int:
    if pa.types.is_binary(kind):
        return 8
    return int((kind.value_type if pa.types.is_list(kind) else kind).bit_width)
