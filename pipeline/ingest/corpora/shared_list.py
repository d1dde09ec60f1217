"""The formats of a corpus's files, which one of several processes finds out for all.

1. Every process that needs them looks which files there are and in which state: a call per file.
2. The name of the list has a hash of that, and of all that decides how a file is read. So a corpus
   that has changed has another list, and no process uses one that is out of date.
3. The first process opens the files and writes the list; the others wait for it and read it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from pipeline.base.errors import DataError
from pipeline.base.files import make_directory
from pipeline.execution.ledger import only_once
from pipeline.ingest.corpora.input_files import InputFile
from pipeline.ingest.documents.records import FoundAs, Source

LIST_VERSION = 1
"""Increase it when `sniff` finds something else in the same file."""
ENDING = ".files"
"""Of the names of lists, which are hidden files."""
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

Sniff = Callable[[InputFile], Source]


@contextmanager
def sniffed_once(
    files: list[InputFile], sniff: Sniff, how: list[str], directory: Path | None
) -> Iterator[Sniff]:
    """`sniff`, or what another process found out with it.

    how: all that decides what `sniff` finds besides the file; directory: of lists; None: no other
    process needs these files. Raises DataError if the list is damaged.
    """
    if directory is None:
        yield sniff
        return
    make_directory(directory)
    target = directory / f".{_mark(files, how)}{ENDING}"
    with only_once(target) as temporary:
        if temporary is not None:
            found: list[Source] = []

            def kept(file: InputFile) -> Source:
                found.append(source := sniff(file))
                return source

            yield kept
            pq.write_table(_table(found), temporary, compression="zstd")
            return
    try:
        table = pq.read_table(target, schema=_SCHEMA)
    except pa.ArrowException as error:
        raise DataError(f"{target} is damaged ({error}); remove it and rerun") from error
    listed = {source.name: source for source in _sources(table)}
    yield lambda file: listed[file.name]


def _mark(files: list[InputFile], how: list[str]) -> str:
    found = xxhash.xxh3_128("\0".join([str(LIST_VERSION), *how]).encode(errors="surrogateescape"))
    for file in files:
        path = os.fsencode(file.path.absolute())
        found.update(b"\0\0%b\0%b\0%b" % (path, file.name.encode(), repr(file.state).encode()))
    return found.hexdigest()


def _table(found: list[Source]) -> pa.Table:
    rows = (
        (os.fsencode(source.path), *(getattr(source, name) for name in _NAMES), *source.found)
        for source in found
    )
    columns = [*zip(*rows)] or [()] * len(_SCHEMA)
    return pa.table(dict(zip(_SCHEMA.names, columns)), schema=_SCHEMA)


def _sources(table: pa.Table) -> Iterator[Source]:
    for batch in table.to_batches(max_chunksize=_ROWS):
        for row in batch.to_pylist():
            seen = FoundAs(*(row.pop(name) for name in FoundAs._fields))
            path = os.fsdecode(row.pop("path"))
            yield Source(path=path, found=seen, **row)
