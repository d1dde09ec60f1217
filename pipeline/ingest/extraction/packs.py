"""Small files are packed: a folder of a million becomes a few hundred Parquet files.

A million files cost a million times what a file costs in every stage, however little it holds. So
files of at most SMALL_BYTES that follow each other in a corpus are extracted together, whatever
their formats are. Where a pack ends is decided only by its last file, by a hash of its name and by
its size: a file that is added, changed or removed remakes one pack, and all others stay.

HTML files of a corpus are gathered in groups of their own, wherever they are, so that lines that a
site repeats on its pages are found.

Files are grouped as they are found. A group keeps about 40 bytes of each, from which a reader makes
its `Source.files`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path

import pyarrow.parquet as pq
import xxhash

from pipeline.ingest.compression.codecs import Compression
from pipeline.ingest.documents.packed_rows import pack_rows
from pipeline.ingest.documents.read import file_ends, is_readable
from pipeline.ingest.documents.records import (
    EXTRACTED,
    FileGroup,
    FileKind,
    Format,
    FoundAs,
    Source,
)
from pipeline.ingest.documents.unchanged import joint_state

PACK: Format = "pack"
SMALL_BYTES = 1 << 20
PACK_BYTES, PACK_FILES = 32 << 20, 2048
"""Expected size of a pack: whichever is reached first."""
FEWEST_FILES = 16
"""Fewer files that follow each other are read one by one."""
PAGES_BYTES = 128 << 20
"""Bytes on disk of the HTML files in a group."""


def group_files(sources: Iterable[Source]) -> list[Source]:
    """The sources, with groups in place of small files and of HTML files, in the same order.

    sources: files, not groups.
    """
    groups: dict[Source, Source] = {}
    packed = _pack(_gather_pages(sources, groups))
    return [groups.get(source, source) for source in packed]


def ungrouped(sources: Iterable[Source]) -> Iterator[Source]:
    """The files in the order in which they were grouped: by name, in each corpus with HTML."""
    for _, of_corpus in groupby(sources, key=attrgetter("corpus")):
        its = [*of_corpus]
        pages = (file for source in its if source.format == "html" for file in source.files)
        others = (file for source in its if source.format != "html" for file in source.files)
        yield from heapq.merge(pages, others, key=attrgetter("name"))


def _gather_pages(sources: Iterable[Source], groups: dict[Source, Source]) -> Iterator[Source]:
    """Yield the files that are not HTML, and the first page of each group; fills `groups` by it."""
    gathered: dict[str, list[Source]] = {}
    sizes: dict[str, int] = {}
    numbers: dict[str, int] = {}

    def close(corpus: str) -> None:
        number = numbers[corpus] = numbers.get(corpus, -1) + 1
        pages = gathered.pop(corpus)
        groups[pages[0]] = make_group(pages, f"html-{number:05d}", "html")

    for source in sources:
        corpus = source.corpus
        if source.format != "html":
            yield source
            continue
        if corpus in gathered and sizes[corpus] + source.size > PAGES_BYTES:
            close(corpus)
        if corpus not in gathered:
            gathered[corpus], sizes[corpus] = [], 0
            yield source  # stands for its group, which is not known yet
        gathered[corpus].append(source)
        sizes[corpus] += source.size
    for corpus in [*gathered]:
        close(corpus)


def _pack(sources: Iterable[Source]) -> list[Source]:
    packed: list[Source] = []
    run: list[Source] = []
    for source in sources:
        small = _is_small(source)
        # Its size or corpus differs: the run ends.
        if run and not (small and source.corpus == run[-1].corpus):
            packed += _packed(run)
            run = []
        if not small:
            packed.append(source)
            continue
        run.append(source)
        if _is_last(source):
            packed += _packed(run)
            run = []
    return packed + _packed(run)


def _is_small(source: Source) -> bool:
    return (
        source.size <= SMALL_BYTES
        and is_readable(source)
        and source.format != EXTRACTED
        and source.published is None
    )


def _is_last(source: Source) -> bool:
    # By chance, but so that a pack has PACK_FILES files or PACK_BYTES on average, as stated above.
    share = 1 / PACK_FILES + source.size / PACK_BYTES
    return xxhash.xxh3_64_intdigest(source.name.encode()) < share * 2**64


def _packed(files: list[Source]) -> list[Source]:
    if len(files) < FEWEST_FILES:
        return files
    # Packs are called after their first file; numbers would change with every pack before them.
    first = xxhash.xxh3_64_hexdigest(files[0].name.encode())
    return [make_group(files, f"{PACK}-{first}", PACK)]


def make_group(files: list[Source], name: str, format: Format) -> Source:
    """One source in place of several files of a corpus, which are read in the same way."""
    size, mtime_ns = joint_state([file.state for file in files])
    rows = pack_rows([file.row for file in files])
    # If not, they are only read when the identity is asked for.
    has_ends = all(file.found.ends for file in files)
    group = FileGroup(rows, _kinds(files), _identity(files) if has_ends else "")
    return replace(
        files[0], name=name, format=format, compression="", group=group,
        size=size, found=FoundAs(mtime_ns),
    )  # fmt: skip


def _kinds(files: list[Source]) -> tuple[FileKind, ...]:
    """The kinds among the files, in the order in which they come."""
    sizes: dict[tuple[Format, Compression], list[int]] = {}
    for file in files:
        sizes.setdefault((file.format, file.compression), []).append(file.size)
    return tuple((*kind, len(its), sum(its)) for kind, its in sizes.items())


def members_of(extracted: Path) -> set[str]:
    """The names of the files in a pack that was extracted, without their folders."""
    names = pq.read_table(extracted, columns=["file"])["file"].unique().to_pylist()
    return {Path(name).name for name in names if name}


def identity_of_group(source: Source, *, as_found: bool) -> str:
    """A hash of the names, formats and contents of a group's files.

    as_found: take what was seen of short files when they were found; otherwise read them now.
    """
    assert source.group
    if as_found and source.group.identity:
        return source.group.identity
    return _identity(source.files, as_found=as_found)


def _identity(files: list[Source], *, as_found: bool = True) -> str:
    found = [
        f"{file.name}\0{file.format}\0{file.compression}\0"
        + (
            f"{file.size}\0{file.found.ends}"
            if as_found and file.found.ends
            else f"{Path(file.path).stat().st_size}\0{file_ends(file.path)}"
        )
        for file in files
    ]
    return xxhash.xxh3_64_hexdigest("\0".join(found).encode())
