"""The identity of an input file: how it is read, its size and what identifies its content."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import xxhash

from pipeline.data.documents.parquet import extraction_mark
from pipeline.data.documents.read import READERS
from pipeline.data.documents.records import EXTRACTED, Source

BZIP2_VERSION = 1
"""Of what a file gives in which zeros stand between streams: version 0 stopped there."""
_EDGE_BYTES = 1 << 16


def file_identity(source: Source) -> list[Any]:
    """How a file is read, its size and what identifies its content.

    A change in the middle that keeps the size is for `content` to find.
    """
    if source.format == EXTRACTED:
        return [source.corpus, source.name, source.licence, extraction_mark(source.path)]
    reading: list[Any] = [source.corpus, source.name, source.licence]
    reading += [source.text_field, source.plain_text]
    if source.format in READERS:
        reading += [source.format, READERS[source.format]]
    if source.compression == "bz2":
        reading.append(BZIP2_VERSION)
    if source.language:
        reading.append(source.language)
    return [*reading, source.size, content_identity(source)]


def content_identity(source: Source) -> Any:
    """A hash of a file's ends, as hashing all of 160 GB is too slow; a published file's path.

    A published file is identified before it is fetched and after its copy was removed.
    """
    if source.published:
        return [source.published.path, source.published.hash]
    return file_ends(source.path)


def file_ends(path: str) -> str:
    """A hash of a file's first and last 64 KiB."""
    with Path(path).open("rb") as file:
        head = file.read(_EDGE_BYTES)
        file.seek(max(0, Path(path).stat().st_size - _EDGE_BYTES))
        return xxhash.xxh3_64_hexdigest(head + file.read())
