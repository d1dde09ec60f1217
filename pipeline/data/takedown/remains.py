"""Finds the text of documents that were taken down in shards, extracted files and downloads."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np

from pipeline.base.errors import ConfigError, DataError
from pipeline.data.shards.document_index import TAKEN_DOWN, DocumentIndex
from pipeline.data.shards.manifest import MANIFEST, REWRITING, Manifest
from pipeline.data.takedown.request import Request
from pipeline.execution.work_directory import WORK
from pipeline.ingest.extraction.packs import PACK, members_of
from pipeline.ingest.extraction.tasks import kept_name

_MOST_FILES = 10
"""Raw files that are listed."""


def find_remains(
    data: Path, output: Path, root: Path, request: Request, purged: Collection[Path] = ()
) -> list[str]:
    """One line for each other place that holds text of the documents, or may hold it.

    data: the shards that they were taken from; output: the new ones; root: $TENFOLD_ROOT; purged:
    extracted files that do not hold it any more.
    """
    files = _files(request)
    lines = [f"{data}: the shards before this takedown"]
    lines += _shards_with_text([data.parent, root / "shards"], data, output, request)
    lines += [
        f"{path}: extracted text"
        for path in extracted_files(root / "documents", request)
        if path not in purged
    ]
    names = {Path(file).name for file in files}
    lines += [f"{path}: downloaded" for path in _downloads(root / "downloads", names)]
    shown = ", ".join(files[:_MOST_FILES]) + (", ..." if len(files) > _MOST_FILES else "")
    return [
        *lines,
        f"the raw input of pipeline.prepare: {shown}",
        f"copies of {data} elsewhere, and models that were trained on it",
    ]


def require_raw_texts(data: Path, manifest: Manifest) -> None:
    """Raise ConfigError if the shards hold what was made of the texts in extracted files."""
    if REWRITING in manifest.engine:
        raise ConfigError(
            f"--purge finds documents by their text, which --map or --filter c4 changed in {data}; "
            "omit it and remove the extracted files that are named then"
        )


def _shards_with_text(
    folders: list[Path], data: Path, output: Path, request: Request
) -> Iterator[str]:
    """Directories next to `data` with documents of the same text, and unfinished ones."""
    # resolved, so that a link and its target are one place
    beside = {path.resolve() for folder in folders if folder.is_dir() for path in folder.iterdir()}
    for path in [output.resolve(), *sorted(beside - {data.resolve(), output.resolve()})]:
        if not path.is_dir():
            continue
        if not (path / MANIFEST).exists():
            if (path / WORK).is_dir():
                yield f"{path / WORK}: unfinished shards, which may hold it"
            continue
        try:
            count = _count_texts(path, request)
        except DataError as error:  # what cannot be read may hold the text, so it is listed
            yield f"{path}: may hold it ({error})"
            continue
        if count and path == output.resolve():
            yield f"{output}: {count:,} documents with other ids have the same text"
        elif count:
            yield f"{path}: shards with {count:,} documents of the same text"


def _count_texts(directory: Path, request: Request) -> int:
    """Documents in `directory` with a text that was taken down elsewhere."""
    return sum(
        int((np.isin(table["text_hash"].to_numpy(), request.text_hashes) & ~taken).sum())
        for table in DocumentIndex(directory).tables(["text_hash"])
        for taken in [table[TAKEN_DOWN].to_numpy()]
    )


def _files(request: Request) -> list[str]:
    """The raw files of the documents."""
    return sorted({id.rpartition("@")[0] or id for _, id in request.names | request.taken_before})


def extracted_files(folder: Path, request: Request) -> list[Path]:
    """The files that `prepare` extracted from raw files with the names of the documents' files.

    folder: of extracted files; packs are among them if one of their files has such a name.
    """
    names = {Path(file).name for file in _files(request)}
    found = folder.glob("*.parquet") if folder.is_dir() else ()
    kept = set(map(kept_name, names))
    return sorted(
        path
        for path in found
        if path.name.rpartition("-")[0] in kept
        or (path.name.startswith(f"{PACK}-") and not names.isdisjoint(members_of(path)))
    )


def _downloads(folder: Path, names: set[str]) -> list[Path]:
    """Downloaded files with these names."""
    return sorted(
        Path(parent, name)
        for parent, _, files in os.walk(folder)
        for name in names.intersection(files)
    )
