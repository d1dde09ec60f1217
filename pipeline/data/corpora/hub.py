"""A corpus from the Hugging Face Hub as local Parquet files: fetched once, then read offline.

`datasets` streams a pinned revision shard by shard; each shard becomes one file with the text and
its origin columns. A file appears only when it is complete, so an interrupted fetch resumes with
the next file. The directory is named for the revision, so compute nodes without a network find it
with the same command, and each revision has its own directory.
"""

from __future__ import annotations

import importlib
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.base.errors import ConfigError, DataError
from pipeline.base.files import one_at_a_time, remove_temporaries, whole_file, write_whole
from pipeline.base.progress import tracked
from pipeline.data.corpora.catalogue import Hub

MARKER = ".fetched.json"
"""Written last: describes the directory. Hidden, so that it is not read as text."""
_ORIGINS = ("url", "id", "title")
_BATCH_ROWS = 1000
_GROUP_BYTES = 16 << 20
"""Text per row group: half a split, so that workers can share a large file."""


def fetched_directory(downloads: Path, corpus: str, hub: Hub) -> Path:
    """The directory of a corpus at this revision, fetched or not."""
    return downloads / f"{corpus}-{hub.revision[:12] or 'local'}"


def is_fetched(directory: Path) -> bool:
    """Whether the fetch is complete."""
    return (directory / MARKER).exists()


def fetch(corpus: str, hub: Hub, downloads: Path) -> Path:
    """Return the directory with all of `hub`'s files; fetches them if they are missing.

    Raises ConfigError if the package `datasets` is missing, DataError if the Hub cannot be reached
    or the transfer fails.
    """
    directory = fetched_directory(downloads, corpus, hub)
    if is_fetched(directory):
        return directory
    directory.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(directory / ".lock"):
        if not is_fetched(directory):
            remove_temporaries(directory)
            _fetch(corpus, hub, directory)
    return directory


def _fetch(corpus: str, hub: Hub, directory: Path) -> None:
    dataset = _open(corpus, hub)
    count = dataset.num_shards
    rows = 0
    for index in tracked(range(count), f"fetching {corpus}", "files"):
        path = directory / f"{corpus}-{index:05d}-of-{count:05d}.parquet"
        if not path.exists():
            place = f"file {index + 1} of {count}"
            _write(_batches(dataset.shard(num_shards=count, index=index), hub, place), hub, path)
        rows += pq.read_metadata(path).num_rows
    about = {
        "id": hub.id, "revision": hub.revision, "files": hub.files, "licence": hub.licence,
        "documents": rows,
    }  # fmt: skip
    write_whole(directory / MARKER, json.dumps(about, indent=1).encode())


def _open(corpus: str, hub: Hub) -> Any:
    """The streaming dataset."""
    try:
        import datasets
    except ImportError as error:
        raise ConfigError(
            f"--corpus {corpus} without --input needs the package datasets to fetch it from the "
            "Hub: pip install '.[hub]', or give files with --input PATH..."
        ) from error
    # It would log each of its five attempts.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    try:
        # By files rather than by name: `datasets` refuses a repository that has a script.
        return datasets.load_dataset(
            "parquet", data_files=_address(hub), split="train", streaming=True
        )
    except network_errors(ValueError) as error:
        raise DataError(
            f"cannot fetch {corpus}: {error}; on a machine with network run --corpus {corpus} "
            "--fetch with the same TENFOLD_ROOT, or give files with --input PATH... "
            f"(--corpus {corpus} --explain lists sources)"
        ) from error


def network_errors(other: type[Exception]) -> tuple[type[Exception], ...]:
    """What the Hub's client raises, whether it uses requests or httpx, plus `other`."""
    from huggingface_hub import get_session

    client = importlib.import_module(type(get_session()).__module__.partition(".")[0])
    return OSError, client.HTTPError, other


def _address(hub: Hub) -> str:
    """The glob of its files on the Hub, or in a local directory if it has no revision."""
    if not hub.revision:
        return f"{hub.id}/{hub.files}"
    return f"hf://datasets/{hub.id}@{hub.revision}/{hub.files}"


def _write(batches: Iterator[pa.Table], hub: Hub, path: Path) -> None:
    """Write one shard as one Parquet file, with the text in `text`."""
    with whole_file(path) as temporary:
        writer: pq.ParquetWriter | None = None
        try:
            for table in _groups(_columns(table, hub) for table in batches):
                if writer is None:
                    writer = pq.ParquetWriter(temporary, table.schema, compression="zstd")
                writer.write_table(table.cast(writer.schema))
            if writer is None:
                schema = pa.schema([pa.field("text", pa.string())])
                writer = pq.ParquetWriter(temporary, schema, compression="zstd")
        finally:
            if writer is not None:
                writer.close()


def _batches(shard: Any, hub: Hub, place: str) -> Iterator[pa.Table]:
    """Rows of a shard. Turns network errors into a DataError, so none looks like a full disk."""
    try:
        yield from shard.with_format("arrow").iter(batch_size=_BATCH_ROWS)
    except network_errors(pa.ArrowException) as error:
        raise DataError(
            f"fetching {hub.id} stopped in {place} ({error}); run the same command again: complete "
            "files are kept"
        ) from error


def _columns(table: pa.Table, hub: Hub) -> pa.Table:
    if hub.text_field not in table.column_names:
        raise DataError(
            f"{hub.id} has no column {hub.text_field}, only {', '.join(table.column_names)}; "
            "choose another --revision"
        )
    columns = {"text": table[hub.text_field]} | {
        name: table[name]
        for name in _ORIGINS
        if name in table.column_names and pa.types.is_string(table[name].type)
    }
    return pa.table(columns)


def _groups(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
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
