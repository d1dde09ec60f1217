"""A corpus from the Hugging Face Hub as local Parquet files: fetched once, then read offline.

Each file of a pinned commit is downloaded, compared with the Hub's list, and becomes one file with
the text and its origin columns. A file appears only when it is complete, so an interrupted fetch
resumes where it was cut. The directory is named for the revision, so compute nodes without a
network find it with the same command, and each revision has its own directory.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.base.errors import DataError
from pipeline.base.files import one_at_a_time, remove_temporaries, whole_file, write_whole
from pipeline.base.progress import tracked
from pipeline.ingest.corpora.catalogue import Hub
from pipeline.remote.hub import MARKER, Repository, download, list_matching

_ORIGINS = ("url", "id", "title")
_BATCH_ROWS = 1000
_GROUP_BYTES = 16 << 20
"""Text per row group: half a split, so that workers can share a large file."""
_PARTS = ".parts"
"""Folder of downloads that are not converted yet; hidden, so that it is not read as text."""


def fetched_directory(downloads: Path, corpus: str, hub: Hub) -> Path:
    """The directory of a corpus at this revision, fetched or not."""
    return downloads / f"{corpus}-{hub.revision[:12]}"


def is_fetched(directory: Path) -> bool:
    """True if the fetch is complete."""
    return (directory / MARKER).exists()


def fetch_corpus(corpus: str, hub: Hub, downloads: Path) -> Path:
    """Return the directory with all of `hub`'s files; fetches them if they are missing.

    Raises ConfigError if the package huggingface_hub is missing or the Hub refuses, DataError if it
    cannot be reached or a file differs from the Hub's list.
    """
    directory = fetched_directory(downloads, corpus, hub)
    if is_fetched(directory):
        return directory
    directory.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(directory / ".lock"):
        if not is_fetched(directory):  # another process may have fetched it meanwhile
            remove_temporaries(directory)
            _fetch(corpus, hub, directory)
    return directory


def _fetch(corpus: str, hub: Hub, directory: Path) -> None:
    repository = Repository(
        kind="dataset", name=hub.id, revision=hub.revision, shown=f"{corpus} ({hub.id})",
        instead=f"or give files with --input PATH... (the page on corpora lists sources, "
        f"--corpus {corpus} --fetch fetches the Hub's)",
    )  # fmt: skip
    commit, files = list_matching(repository, hub.files)
    rows = 0
    for index, file in enumerate(tracked(files, f"fetching {corpus}", "files")):
        path = directory / f"{corpus}-{index:05d}-of-{len(files):05d}.parquet"
        if not path.exists():  # whole, or it would not have this name
            raw = download(repository, commit, file, directory / _PARTS)
            try:
                _convert(raw, hub, path)
            except pa.ArrowException as error:
                raise DataError(
                    f"{hub.id}: {file.path} cannot be read as Parquet ({error}); choose another "
                    "--revision"
                ) from error
            raw.unlink()  # now: all raw files would double the disk that is needed
        rows += pq.read_metadata(path).num_rows
    shutil.rmtree(directory / _PARTS, ignore_errors=True)
    about = {
        "id": hub.id, "revision": hub.revision, "files": hub.files, "licence": hub.licence,
        "documents": rows,
    }  # fmt: skip
    # Last: it says that all files are here.
    write_whole(directory / MARKER, json.dumps(about, indent=1).encode())


def _convert(raw: Path, hub: Hub, path: Path) -> None:
    """Write a file of the Hub with the text in `text`, and the columns that say where it is from.

    Raises DataError if it has no column of text.
    """
    with pq.ParquetFile(raw) as file, whole_file(path) as temporary:
        found = file.schema_arrow
        if hub.text_field not in found.names:
            raise DataError(
                f"{hub.id} has no column {hub.text_field}, only {', '.join(found.names)}; choose "
                "another --revision"
            )
        columns = {"text": hub.text_field} | {
            name: name
            for name in _ORIGINS
            if name in found.names and pa.types.is_string(found.field(name).type)
        }
        schema = pa.schema([(new, found.field(name).type) for new, name in columns.items()])
        batches = file.iter_batches(_BATCH_ROWS, columns=[*columns.values()])
        tables = (
            pa.table([batch[name] for name in columns.values()], schema=schema) for batch in batches
        )
        with pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
            for table in _groups(tables):
                writer.write_table(table)


def _groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Concatenate tables into row groups."""
    pending: list[pa.Table] = []
    size = 0
    for table in tables:
        pending.append(table)
        size += table["text"].nbytes
        if size >= _GROUP_BYTES:
            yield pa.concat_tables(pending)
            pending, size = [], 0
    if pending:
        yield pa.concat_tables(pending)
