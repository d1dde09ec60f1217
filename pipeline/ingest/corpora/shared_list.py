"""The files of a corpus, which one of the parts of a job finds for all.

1. The first part looks for the files, finds out their formats and writes a list of them as they
   pass; others wait for it meanwhile. Each part holds a shared lock on the list until it ends.
2. A part that starts while another one runs reads the list, and asks nothing about the files: their
   readers compare size and time with the list (`unchanged`). It asks only for the times of their
   folders, so that a file that was added or removed makes it look itself.
3. A part that finds no other part looks again and replaces the list. So the list is never older
   than the job, in which no file may change, and without locks every part looks itself.
"""

from __future__ import annotations

import fcntl
import glob
import itertools
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from pipeline.base.errors import DataError
from pipeline.base.files import make_directory, open_lock, try_lock, whole_file
from pipeline.execution.ledger import lock_of
from pipeline.ingest.corpora.input_files import Folders, in_threads, time_of_folder
from pipeline.ingest.documents.records import FoundAs, Source
from pipeline.ingest.extraction.packs import group_files

ENDING = ".files"
"""Suffix of the names of lists, which are hidden files."""
_FOLDERS = b"tenfold_folders"
_NAMES = (
    "corpus", "name", "size", "format", "compression", "text_field", "plain_text", "licence",
)  # fmt: skip
_TYPES = {"path": pa.binary(), "size": pa.int64(), "mtime_ns": pa.int64()}
_SCHEMA = pa.schema(
    [(name, _TYPES.get(name, pa.string())) for name in ("path", *_NAMES, *FoundAs._fields)]
)
"""Columns as in `Source`; a path need not be UTF-8."""
_ROWS = 1 << 14
"""Most rows that are Python objects at a time."""

Look = Callable[[Folders], Iterator[Source]]
"""Finds files, and adds the folders in which it looks; all is found when it yields the first."""


@dataclass(frozen=True, slots=True)
class SharedLists:
    """The lists of a job, whose locks this process holds until `running` is closed."""

    directory: Path
    running: ExitStack

    def find(self, inputs: list[str], how: list[str], look: Look) -> list[Source]:
        """The files that `look` finds, or another process of the job has found with it, in groups.

        how: all that decides what it finds besides the inputs. Raises DataError if the list is
        damaged.
        """
        make_directory(self.directory)
        target = self.directory / f".{_mark(inputs, how)}{ENDING}"
        lock = self.running.enter_context(open_lock(lock_of(target)))
        if try_lock(lock) is False:
            fcntl.flock(lock, fcntl.LOCK_SH)  # waits for the process that looks
            if _is_current(target):  # 2.
                return group_files(_read(target))
        target.unlink(missing_ok=True)  # 3. If this process fails, an older one must not be read.
        folders = Folders()
        left = look(folders)  # 1.
        # Taking the first file completes `folders`, which are written before the files.
        found = itertools.chain([*itertools.islice(left, 1)], left)
        with whole_file(target) as temporary:
            groups = group_files(_written(temporary, found, folders))
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_SH)  # from exclusive: the parts that wait can read
        return groups


def _mark(inputs: list[str], how: list[str]) -> str:
    """A hash of the inputs as they are given, and of what their globs match now."""
    inputs = [os.path.abspath(given) for given in inputs]  # noqa: PTH100 (keeps links)
    matched = [
        found
        for given in inputs
        if glob.has_magic(given)
        for found in sorted(glob.iglob(given, recursive=True))  # noqa: PTH207 (takes no absolute pattern)
    ]
    words = "\0".join([*how, "", *inputs, "", *matched])
    return xxhash.xxh3_128_hexdigest(os.fsencode(words))


def _is_current(path: Path) -> bool:
    """True if there is a list, and no folder has changed since it was made."""
    try:
        with _open(path) as file:
            folders = json.loads(file.schema_arrow.metadata[_FOLDERS])
    except FileNotFoundError:
        return False
    return [*in_threads(time_of_folder, folders)] == [*folders.values()]


@contextmanager
def _open(path: Path) -> Iterator[pq.ParquetFile]:
    """Raises DataError if the list is damaged."""
    try:
        with pq.ParquetFile(path) as file:
            yield file
    except pa.ArrowException as error:
        raise DataError(f"{path} is damaged ({error}); remove it and rerun") from error


def _read(path: Path) -> Iterator[Source]:
    """The files in a list."""
    with _open(path) as file:
        for batch in file.iter_batches(_ROWS):
            yield from _sources(batch)


def _written(path: Path, found: Iterator[Source], folders: Folders) -> Iterator[Source]:
    """The files, which are written to a list as they pass."""
    schema = _SCHEMA.with_metadata({_FOLDERS: json.dumps(folders)})
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        while some := [*itertools.islice(found, _ROWS)]:
            columns = zip(*map(_row, some))
            writer.write_table(pa.table(dict(zip(schema.names, columns)), schema=schema))
            yield from some


def _row(source: Source) -> tuple[object, ...]:
    named = (getattr(source, name) for name in _NAMES)
    return (os.fsencode(source.path), *named, *source.found)


def _sources(batch: pa.RecordBatch) -> Iterator[Source]:
    for row in batch.to_pylist():
        seen = FoundAs(*(row.pop(name) for name in FoundAs._fields))
        path = os.fsdecode(row.pop("path"))
        yield Source(path=path, found=seen, **row)
