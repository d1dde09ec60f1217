"""Finished pieces -> a shard: the record batches of its pieces in one file, for rows and each mask.

A piece is the train rows and masks of one split of the text. An assembly, a task of an executor,

1. writes the files of a shard under their final names, with one file of a piece in memory;
2. writes its marker, which holds the manifest's entry of the shard;
3. removes the files of the pieces, so the disk holds twice only what is assembled at the moment.

Until the marker exists, a restart writes all of it again, with the same bytes. Where locks
have no effect, two processes may do the same assembly: one that finds a piece missing also finds
the other's marker.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import xxhash

from pipeline.base.errors import DataError
from pipeline.base.files import sync_directory, write_whole
from pipeline.base.typed_json import build, read_object
from pipeline.data.shards import arrow_files
from pipeline.data.shards.manifest import (
    TRAIN,
    MaskFile,
    Shard,
    mask_file,
    rows_file,
    shard_name,
)
from pipeline.execution.threads import on_threads
from pipeline.execution.workers import Executor, Stage

SHARD_BYTES = 256 << 20
"""Text of a shard at most: at 160 GB 7,000 files, and still enough shards for hundreds of workers.
Each file costs every rank a look-up, an opened file and a mapping."""


@dataclass(frozen=True, slots=True)
class Assembly:
    """A shard to assemble."""

    number: int
    """Its number among the train shards."""
    weight: int
    """Bytes of text."""
    pieces: tuple[dict[str, Any], ...]
    """Each as the manifest's entry of a shard of its own, with files in the work directory."""

    @property
    def name(self) -> str:
        """Its description in logs."""
        return f"shard {self.number}"

    @property
    def marker(self) -> str:
        """Name of the file with the shard's entry in the manifest."""
        return f"shard-{self.number:06d}.json"


@dataclass(frozen=True, slots=True)
class Assembler:
    """The settings that all assemblies share."""

    work: Path
    """Has the pieces, and gets the markers."""
    output: Path
    compression: arrow_files.Compression

    def run(self, assemblies: list[Assembly], executor: Executor) -> list[Shard]:
        """Do all assemblies that are not finished; returns the shards, in order."""
        executor.run(Stage(self.work, self.start), assemblies)
        markers = on_threads(read_object, [self.work / each.marker for each in assemblies])
        shards = [build(Shard, marker) for marker in markers]
        for planned, shard in zip(assemblies, shards, strict=True):
            # of another version, which grouped the pieces otherwise
            if shard.piece_rows != tuple(piece["sequences"] for piece in planned.pieces):
                raise DataError(
                    f"{self.work / planned.marker} is of other pieces; remove {self.output} and "
                    "run pipeline.prepare again"
                )
        return shards

    def start(self) -> Callable[[Assembly], None]:
        """The function that does an assembly."""
        return self.assemble

    def assemble(self, assembly: Assembly) -> None:
        """Write a shard, then its marker, and remove its pieces."""
        marker = self.work / assembly.marker
        try:
            shard = self._write(assembly)  # 1. if it is done twice, the same bytes
        except (DataError, OSError):
            if marker.exists():
                return
            raise
        for folder in {(self.output / file.file).parent for file in shard.files()}:
            sync_directory(folder)  # names survive a power failure before the pieces are removed
        write_whole(marker, json.dumps(asdict(shard)).encode())  # 2. pieces are superfluous now
        # 3. a kill before this leaves files of pieces, which go with the work directory
        for piece in assembly.pieces:
            for file in (piece, *piece["masks"]):
                (self.work / file["file"]).unlink(missing_ok=True)

    def _write(self, assembly: Assembly) -> Shard:
        name, pieces = shard_name(TRAIN, assembly.number), assembly.pieces
        duplicates = zip(*(piece["masks"] for piece in pieces), strict=True)
        masks = tuple(
            MaskFile(
                **self._join(mask_file(name, duplicate), files),
                predictions=sum(file["predictions"] for file in files),
            )
            for duplicate, files in enumerate(duplicates)
        )
        rows = tuple(piece["sequences"] for piece in pieces)
        return Shard(
            **self._join(rows_file(name), pieces),
            split=TRAIN,
            sequences=sum(rows),
            tokens=sum(piece["tokens"] for piece in pieces),
            masks=masks,
            pieces=rows if len(rows) > 1 else (),
        )

    def _join(self, file: str, pieces: Iterable[dict[str, Any]]) -> dict[str, Any]:
        """Write the record batches of some files to one. Returns its path, bytes and hash."""
        tables = map(self._read, pieces)
        # read before the file is opened, whose schema is that of its pieces
        first = next(tables)
        written = arrow_files.write_tables(
            self.output / file, first.schema, itertools.chain([first], tables), self.compression
        )
        return written | {"file": file}

    def _read(self, piece: dict[str, Any]) -> pa.Table:
        """A file of a piece, read at once: a shared file system waits at each read."""
        path = self.work / piece["file"]
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise DataError(
                f"{path} is missing; remove {self.output} and run pipeline.prepare again"
            ) from None
        if xxhash.xxh3_64_hexdigest(content) != piece["xxh3_64"]:  # nothing would show it later
            raise DataError(
                f"{path} is damaged: its hash is not that of its marker; remove {self.output} and "
                "run pipeline.prepare again"
            )
        return pa.ipc.open_file(pa.py_buffer(content)).read_all()
