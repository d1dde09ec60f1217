"""Small files are packed: a folder of a million becomes a few hundred Parquet files.

A million files cost a million times what a file costs in every stage, however little it holds. So
files of at most SMALL_BYTES that follow each other in a corpus are extracted together, whatever
their formats are. Where a pack ends is decided by its last file alone, by a hash of its name and by
its size: a file that is added, changed or removed remakes one pack, and all others stay.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import xxhash

from pipeline.ingest.documents.read import file_ends, is_readable
from pipeline.ingest.documents.records import EXTRACTED, Format, FoundAs, Source
from pipeline.ingest.documents.unchanged import joint_state

PACK: Format = "pack"
SMALL_BYTES = 1 << 20
PACK_BYTES, PACK_FILES = 32 << 20, 2048
"""Expected size of a pack: whichever is reached first."""
FEWEST_FILES = 16
"""Fewer files that follow each other are read one by one."""


def pack_small_files(sources: list[Source]) -> list[Source]:
    """The sources, with packs in place of small files, in the same order."""
    packed: list[Source] = []
    run: list[Source] = []
    for source in sources:
        small = _is_small(source)
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
    share = 1 / PACK_FILES + source.size / PACK_BYTES
    return xxhash.xxh3_64_intdigest(source.name.encode()) < share * 2**64


def _packed(files: list[Source]) -> list[Source]:
    if len(files) < FEWEST_FILES:
        return files
    # Packs are called after their first file; numbers would change with every pack before them.
    first = xxhash.xxh3_64_hexdigest(files[0].name.encode())
    return [group_files(files, f"{PACK}-{first}", PACK)]


def group_files(files: list[Source], name: str, format: Format) -> Source:
    """One source in place of several files of a corpus."""
    size, mtime_ns = joint_state([file.state for file in files])
    return replace(
        files[0], name=name, format=format, compression="", members=tuple(files),
        size=size, found=FoundAs(mtime_ns),
    )  # fmt: skip


def members_of(extracted: Path) -> set[str]:
    """The names of the files in a pack that was extracted, without their folders."""
    names = pq.read_table(extracted, columns=["file"])["file"].unique().to_pylist()
    return {Path(name).name for name in names if name}


def members_identity(source: Source, *, as_found: bool) -> str:
    """A hash of the names, formats and contents of a group's files.

    as_found: take what was seen of short files when they were found; otherwise read them now.
    """
    found = [
        f"{file.name}\0{file.format}\0{file.compression}\0"
        + (
            f"{file.size}\0{file.found.ends}"
            if as_found and file.found.ends
            else f"{Path(file.path).stat().st_size}\0{file_ends(file.path)}"
        )
        for file in source.members
    ]
    return xxhash.xxh3_64_hexdigest("\0".join(found).encode())
