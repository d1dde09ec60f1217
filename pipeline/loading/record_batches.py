"""Files of a split -> the addresses of their record batches in memory, mapped or read.

`Layout` finds the shard and the record batch of a row of the split. `Columns` holds the split's
files of one kind: a table of the addresses of their columns, filled in as record batches are
requested.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.ipc

from pipeline.base.errors import EXIT_USER_ERROR, DataError
from pipeline.base.files import MISSING, size_of
from pipeline.data.shards.arrow_files import BATCH_ROWS, batch_rows, corpus_in
from pipeline.data.shards.manifest import check_is_file, check_size
from pipeline.loading.resolve import StructArray

BUS_MESSAGE = (
    b"error: a mapped data file was truncated, or its disk failed, while it was read; run the same "
    b"command again: it checks every file's size and names the bad file, or skips it with "
    b"data.damaged=skip\n"
)
_libc = ctypes.CDLL(None, use_errno=True)  # else get_errno gives 0
_mmap, _munmap = _libc.mmap, _libc.munmap
_mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_mmap.restype = ctypes.c_size_t
_munmap.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
_MAP_FAILED = (1 << 8 * ctypes.sizeof(ctypes.c_size_t)) - 1  # (void *) -1
_HANDLERS: list[Any] = []
"""Keeps what the handler refers to alive until the process ends."""

IntArray = npt.NDArray[np.int64]
Found = TypeVar("Found")

LOOK_SECONDS = 10.0
"""Time between looks for copies of files that are mapped from the shared file system."""


@dataclass(frozen=True, eq=False)
class Layout:
    """Starts of the record batches and the shards of a split.

    A shard's last record batch is shorter than 1,024 rows, and so is that of each of its pieces.
    """

    row_starts: IntArray
    """The first row of each record batch, and the number of rows [blocks + 1]."""
    file_starts: IntArray
    """The first record batch of each shard, and the number of record batches [shards + 1]."""

    @classmethod
    def of(cls, shard_pieces: Sequence[Sequence[int]]) -> Layout:
        """Layout of a split, from the rows of each piece of each shard."""
        rows = [batch_rows(pieces) for pieces in shard_pieces]
        row_starts = np.cumsum(np.concatenate([[0], *rows]), dtype=np.int64)
        return cls(row_starts, np.cumsum([0, *map(len, rows)], dtype=np.int64))

    def shard_of(self, block: int) -> int:
        """The shard of record batch `block` of the split."""
        return int(self.shards_of(np.array(block)))

    def shards_of(self, blocks: IntArray) -> IntArray:
        """The shards of record batches `blocks` [n] of the split."""
        return np.searchsorted(self.file_starts, blocks, side="right") - 1

    def shards_of_rows(self, rows: IntArray) -> IntArray:
        """The shards of rows `rows` [n] of the split."""
        return self.shards_of(self.locate(rows)[0])

    def blocks_of(self, shard: int) -> range:
        """The record batches of a shard."""
        return range(*self.file_starts[shard : shard + 2].tolist())

    def rows_of(self, block: int) -> range:
        """The rows of a record batch."""
        return range(*self.row_starts[block : block + 2].tolist())

    def locate(self, rows: IntArray) -> tuple[IntArray, IntArray]:
        """Record batch of the split [n] and row within it [n], for rows [n] of the split."""
        blocks = np.searchsorted(self.row_starts, rows, side="right") - 1
        return blocks, rows - self.row_starts[blocks]


class Columns:
    """The record batches in memory of one kind of file of a split: rows, or one mask duplicate."""

    def __init__(
        self,
        directory: Path,
        files: list[tuple[str, int]],
        layout: Layout,
        schema: pa.Schema,
        columns: np.dtype[np.void],
        copies: Path | None = None,
    ) -> None:
        """files: name and size in bytes of each shard's file; schema: of these files; columns:
        ROW_COLUMNS or MASK_COLUMNS, which names the columns needed; copies: a directory where
        copies of files may appear and disappear, which are read instead."""
        self.directory = directory
        self.copies = copies
        self.files = files
        self.layout = layout
        self.schema = pa.schema([field for field in schema if field.name in (columns.names or ())])
        self.blocks = int(layout.file_starts[-1])
        self.addresses: StructArray = np.zeros(self.blocks, columns)
        """`columns` of each record batch [blocks]; zeros where none is loaded."""
        self.checked = np.zeros((self.blocks, BATCH_ROWS // 64), np.uint64)
        """Bits [blocks, words], 1 for rows whose ids were checked since they were loaded."""
        self._loaded = self.addresses[self.schema.names[0]]["data"]
        """[blocks] not 0 where a record batch is loaded."""
        self._mapped: dict[int, pa.Buffer] = {}
        """The mapped file of each shard."""
        self._replaced: list[pa.Buffer] = []
        """Mapped files that copies have replaced; their memory was handed out."""
        self._mapped_originals: set[int] = set()
        """Shards that are mapped from `directory` although there may be a copy some time."""
        self._next_look = 0.0
        self._reading: dict[int, Future[pa.RecordBatch]] = {}
        self._read: dict[int, pa.RecordBatch] = {}

    def path_of(self, block: int) -> Path:
        """The file of record batch `block`."""
        return self.directory / self.files[self.layout.shard_of(block)][0]

    def damage(self, block: int, row: int) -> DataError:
        """The error about impossible values in row `row` of record batch `block`."""
        first = self.layout.blocks_of(self.layout.shard_of(block))[0]
        row += self.layout.rows_of(block)[0] - self.layout.rows_of(first)[0]
        is_rows = "input_ids" in self.schema.names
        values = "ids, documents or segments" if is_rows else "predictions"
        path = self.path_of(block)
        return DataError(
            f"{path} is damaged: row {row} has impossible {values}; copy the file again", path
        )

    def map(self, blocks: IntArray) -> None:
        """Make record batches `blocks` [n] addressable by mapping the files that hold them."""
        if self._mapped_originals and time.monotonic() >= self._next_look:
            self._move_to_copies()
        for block in np.unique(blocks[self._loaded[blocks] == 0]).tolist():  # sorted: file order
            if self._loaded[block] == 0:  # else mapped with another record batch of its shard
                self._map_shard(self.layout.shard_of(block))

    def request(self, blocks: IntArray, pool: ThreadPoolExecutor) -> None:
        """Start reading the record batches in `blocks` [n] that are not read or being read."""
        for block in np.unique(blocks).tolist():
            started = self._reading.get(block)
            # A cancelled read is of an earlier iteration, whose pool was shut down.
            if block not in self._read and (started is None or started.cancelled()):
                self._reading[block] = pool.submit(self.read, block)

    def wait(self, blocks: IntArray, pool: ThreadPoolExecutor, keep: int) -> list[pa.RecordBatch]:
        """Make `blocks` [n] addressable for as long as the result lives; `keep` others stay too."""
        self.request(blocks, pool)
        needed = np.unique(blocks).tolist()
        for block in needed:
            # Last in the dict: record batches used longest ago are dropped first.
            ready = block in self._read
            batch = self._read.pop(block) if ready else self._reading.pop(block).result()
            self._read[block] = batch
            if self._loaded[block] == 0:
                self._put(batch, block)
        for block in list(self._read)[: max(0, len(self._read) - len(needed) - keep)]:
            self.addresses[block] = np.zeros((), self.addresses.dtype)  # freed below
            del self._read[block]
        return [self._read[block] for block in needed]

    def corpus_of(self, block: int) -> str:
        """The corpus of an addressable record batch of rows; asks the file system nothing."""
        path, shard = self.path_of(block), self.layout.shard_of(block)
        if (batch := self._read.get(block)) is None:
            number = self.layout.blocks_of(shard).index(block)
            with _reading(path):
                batch = pa.ipc.open_file(pa.BufferReader(self._mapped[shard])).get_batch(number)
        return corpus_in(batch, path)

    def _map_shard(self, shard: int) -> None:
        if self.copies:  # dropped again if its copy is found
            self._mapped_originals.add(shard)
        self._from_copy(shard, self._map_file)

    def _move_to_copies(self) -> None:
        """Map shards from their copies if these have appeared; memory already handed out stays."""
        for shard in sorted(self._mapped_originals):
            if self._copy_of(shard):
                self._from_copy(shard, self._map_file)
        self._next_look = time.monotonic() + LOOK_SECONDS

    def _copy_of(self, shard: int) -> Path | None:
        """The copy of a shard's file if there is one."""
        name, size = self.files[shard]
        path = self.copies / name if self.copies else None
        return path if path and size_of(path) == size else None

    def _from_copy(self, shard: int, read: Callable[[Path, int], Found]) -> Found:
        """The result of `read` on the copy of a shard's file, or else on the file."""
        if copy := self._copy_of(shard):
            with suppress(DataError):  # the copy was removed, or the node's disk fails
                found = read(copy, shard)
                self._mapped_originals.discard(shard)
                return found
        return read(self.directory / self.files[shard][0], shard)

    def _map_file(self, path: Path, shard: int) -> None:
        blocks = self.layout.blocks_of(shard)
        with _reading(path):
            whole = map_file(path, self.files[shard][1])
            reader = self._open(pa.BufferReader(whole), path, shard)
            found = [reader.get_batch(number) for number in range(len(blocks))]
        if shard in self._mapped:
            self._replaced.append(self._mapped[shard])
        self._mapped[shard] = whole
        for block, batch in zip(blocks, found):
            self._put(batch, block, whole)

    def read(self, block: int) -> pa.RecordBatch:
        """One record batch, read whole; raises DataError if it is missing or damaged."""
        shard = self.layout.shard_of(block)
        number = self.layout.blocks_of(shard).index(block)
        return self._from_copy(shard, lambda path, shard: self._read_file(path, shard, number))

    def _read_file(self, path: Path, shard: int, number: int) -> pa.RecordBatch:
        check_is_file(path)  # opening a pipe would wait for a writer
        with _reading(path), pa.OSFile(str(path)) as source:
            return self._open(source, path, shard).get_batch(number)

    def _open(self, source: pa.NativeFile, path: Path, shard: int) -> pa.ipc.RecordBatchFileReader:
        reader = pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(use_threads=False))
        expected = len(self.layout.blocks_of(shard))
        if reader.num_record_batches != expected:
            raise DataError(
                f"{path} has {reader.num_record_batches} record batches, the manifest expects "
                f"{expected}; prepare it again",
                path,
            )
        for field in self.schema:
            index = reader.schema.get_field_index(field.name)
            if index < 0 or reader.schema.field(index).type != field.type:
                raise DataError(
                    f"{path} has no column {field.name} of {field.type}; prepare it again", path
                )
        return reader

    def _put(self, batch: pa.RecordBatch, block: int, mapping: pa.Buffer | None = None) -> None:
        """Fill in the addresses of one record batch; mapping: of its file, if it is mapped.

        Raises DataError if it has another number of rows than expected, a column is too short, or
        a buffer is outside the mapping, i.e. a copy that ends with `batch`.
        """
        expected = len(self.layout.rows_of(block))
        if batch.num_rows != expected:
            raise DataError(
                f"{self.path_of(block)} has a record batch of {batch.num_rows} rows, the manifest "
                f"expects {expected}; prepare it again",
                self.path_of(block),
            )
        found = np.zeros((), self.addresses.dtype)
        for field in self.schema:
            buffers = batch.column(batch.schema.get_field_index(field.name)).buffers()
            # Arrow's buffers: validity, data; of lists and binaries: validity, offsets, ..., data.
            offsets, data = (buffers[1], buffers[-1]) if len(buffers) > 2 else (None, buffers[1])
            if mapping is not None and not all(_is_within(part, mapping) for part in buffers):
                raise DataError(
                    f"{self.path_of(block)} is compressed, or of another byte order, but the "
                    "manifest says that its files are plain; copy it again, or prepare it again",
                    self.path_of(block),
                )
            items = data.size * 8 // _item_bits(field.type) if data is not None else 0
            if (offsets.size // 4 - 1 if offsets is not None else items) < expected:
                raise DataError(
                    f"{self.path_of(block)} is damaged: column {field.name} is shorter than its "
                    "record batch; copy it again",
                    self.path_of(block),
                )
            found[field.name] = (
                offsets.address if offsets is not None else 0,
                data.address if data is not None else 0,
                items,
            )
        self.addresses[block] = found
        self.checked[block] = 0  # other memory: ids are checked again


class _Mapping:
    """Mapped memory, until nothing refers to it."""

    def __init__(self, descriptor: int, size: int) -> None:
        found = _mmap(None, size, mmap.PROT_READ, mmap.MAP_PRIVATE, descriptor, 0)
        self.address, self.size, self._munmap = found, size, _munmap
        if found == _MAP_FAILED:
            number, self.size = ctypes.get_errno(), 0  # nothing to unmap
            raise OSError(number, os.strerror(number))

    def __del__(self) -> None:
        if self.size:
            self._munmap(self.address, self.size)


def map_file(path: Path, size: int) -> pa.Buffer:
    """The bytes of a plain file in memory. Raises DataError if it is missing or of another size.

    The path is looked up once: a file server has this to do for all files and ranks in the first
    pass. `pa.memory_map` looks it up twice, and `mmap.mmap` keeps a descriptor, so that thousands
    of shards would exceed the usual limit of 1,024 open files.
    """
    try:
        # O_NONBLOCK: opening a pipe would wait for its writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        check_size(path.parent, path.name, size, MISSING)
        raise
    try:
        check_size(path.parent, path.name, size, size_of(descriptor))
        mapping = _Mapping(descriptor, size)
    finally:
        os.close(descriptor)  # the mapping outlives it
    return pa.foreign_buffer(mapping.address, size, mapping)  # which keeps it mapped


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Raise Arrow's errors about a file as DataError."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read: {error}; copy it again", path) from error


def _is_within(part: pa.Buffer | None, mapping: pa.Buffer) -> bool:
    """True if the bytes of a buffer, if any, are in the mapping."""
    if part is None or part.size == 0:
        return True
    start = part.address - mapping.address
    return bool(0 <= start <= mapping.size - part.size)


def _item_bits(kind: pa.DataType) -> int:
    """Bits of a value of a column, or of an item of its lists."""
    if pa.types.is_binary(kind):
        return 8
    return int((kind.value_type if pa.types.is_list(kind) else kind).bit_width)


def announce_bus_errors() -> None:
    """On a bus error in this process, print BUS_MESSAGE and exit with code 2.

    The kernel raises SIGBUS in the middle of compiled code, after a mapped file is truncated or a
    disk fails, where no Python handler runs. So the handler is compiled too, and calls only write
    and _exit, which are safe there. Checking each file's size before each read would be cheap on a
    local disk, but too much load on a file server that thousands of ranks share.
    """
    if _HANDLERS:
        return
    text = ctypes.create_string_buffer(BUS_MESSAGE)
    address, size, code = ctypes.addressof(text), len(BUS_MESSAGE), EXIT_USER_ERROR
    write, leave, install = _libc.write, _libc._exit, _libc.signal
    write.argtypes, write.restype = [ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t], ctypes.c_long
    leave.argtypes, leave.restype = [ctypes.c_int], None
    install.argtypes, install.restype = [ctypes.c_int, ctypes.c_size_t], ctypes.c_size_t

    @numba.cfunc("void(int32)")
    def handler(number: int) -> None:
        write(2, address, size)
        leave(code)

    _HANDLERS.extend([text, handler])
    install(signal.SIGBUS, handler.address)
