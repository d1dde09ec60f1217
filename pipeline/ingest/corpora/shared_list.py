"""The files of a corpus, which one of the parts of a job finds for all.

1. The first part looks for the files, finds out their formats and writes a list; others wait for it
   meanwhile. Each part holds a shared lock on the list until it ends.
2. A part that starts while another one runs reads the list, and asks nothing about the files:
   whoever reads a file compares its size and time with the list (`unchanged`). It asks only for the
   times of their folders, so that a file that was added or removed makes it look itself.
3. A part that finds nobody else looks again and replaces the list. So the list is never older than
   the job, in which no file may change, and without locks every part looks itself.
"""

from __future__ import annotations

import fcntl
import glob
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
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

ENDING = ".files"
"""Of the names of lists, which are hidden files."""
_FOLDERS = b"tenfold_folders"
_NAMES = (
    "corpus", "name", "size", "format", "compression", "text_field", "plain_text", "licence",
)  # fmt: skip
_TYPES = {"path": pa.binary(), "size": pa.int64(), "mtime_ns": pa.int64()}
_SCHEMA = pa.schema(
    [(name, _TYPES.get(name, pa.string())) for name in ("path", *_NAMES, *FoundAs._fields)]
)
"""As in `Source`; a path need not be UTF-8."""
_ROWS = 1 << 14
"""Rows that are Python's objects at a time, beside the sources."""

Look = Callable[[Folders], list[Source]]
"""Finds files, and adds the folders in which it looks."""


@dataclass(frozen=True, slots=True)
class SharedLists:
    """The lists of a job, whose locks this process holds until `running` is closed."""

    directory: Path
    running: ExitStack

    def find(self, inputs: list[str], how: list[str], look: Look) -> list[Source]:
        """What `look` finds, or another process of the job has found with it.

        how: all that decides what it finds besides the inputs. Raises DataError if the list is
        damaged.
        """
        make_directory(self.directory)
        target = self.directory / f".{_mark(inputs, how)}{ENDING}"
        lock = self.running.enter_context(open_lock(lock_of(target)))
        if try_lock(lock) is False:
            fcntl.flock(lock, fcntl.LOCK_SH)  # waits for the process that looks
            if (found := _read(target)) is not None:
                return found
        target.unlink(missing_ok=True)  # if this process fails, nobody shall read an older one
        folders = Folders()
        found = look(folders)
        with whole_file(target) as temporary:
            _write(temporary, found, folders)
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_SH)
        return found


def _mark(inputs: list[str], how: list[str]) -> str:
    """Of the inputs as they are given, and of what their globs match now."""
    inputs = [os.path.abspath(given) for given in inputs]  # noqa: PTH100 (keeps links)
    matched = [
        found
        for given in inputs
        if glob.has_magic(given)
        for found in sorted(glob.iglob(given, recursive=True))  # noqa: PTH207 (takes no absolute pattern)
    ]
    words = "\0".join([*how, "", *inputs, "", *matched])
    return xxhash.xxh3_128_hexdigest(os.fsencode(words))


def _read(path: Path) -> list[Source] | None:
    """The files in a list; None if there is no list, or a folder has changed since it was made."""
    try:
        with pq.ParquetFile(path) as file:
            folders = json.loads(file.schema_arrow.metadata[_FOLDERS])
            if [*in_threads(time_of_folder, folders)] != [*folders.values()]:
                return None
            batches = file.iter_batches(_ROWS)
            return [source for batch in batches for source in _sources(batch)]
    except FileNotFoundError:
        return None
    except pa.ArrowException as error:
        raise DataError(f"{path} is damaged ({error}); remove it and rerun") from error


def _write(path: Path, found: list[Source], folders: Folders) -> None:
    schema = _SCHEMA.with_metadata({_FOLDERS: json.dumps(folders)})
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for first in range(0, len(found), _ROWS):
            columns = zip(*map(_row, found[first : first + _ROWS]))
            writer.write_table(pa.table(dict(zip(schema.names, columns)), schema=schema))


def _row(source: Source) -> tuple[object, ...]:
    named = (getattr(source, name) for name in _NAMES)
    return (os.fsencode(source.path), *named, *source.found)


def _sources(batch: pa.RecordBatch) -> Iterator[Source]:
    for row in batch.to_pylist():
        seen = FoundAs(*(row.pop(name) for name in FoundAs._fields))
        path = os.fsdecode(row.pop("path"))
        yield Source(path=path, found=seen, **row)
