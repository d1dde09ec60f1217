"""A corpus from the Hugging Face Hub, as Parquet files that stay: fetched once, read offline.

`datasets` streams a pinned revision, shard by shard; each becomes one file with the text and what
says where it is from. A file appears when it is whole, so a fetch that was killed goes on where it
was. The directory is named for the revision: compute nodes without a network find it by the same
command, and another revision is another directory.
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
from tqdm import tqdm

from pipeline.data.corpora.catalogue import Hub
from pipeline.errors import ConfigError, DataError
from pipeline.files import one_at_a_time, remove_temporaries, whole_file, write_whole

MARKER = ".fetched.json"
"""Appears last: what the directory holds; hidden, so that it is not read as text."""
_ORIGINS = ("url", "id", "title")
_BATCH_ROWS = 1000
_GROUP_BYTES = 16 << 20
"""Text of a row group: half a split, so that a large file is shared among workers."""


def fetched_directory(downloads: Path, corpus: str, hub: Hub) -> Path:
    """Where a corpus of this revision is, or would be."""
    return downloads / f"{corpus}-{hub.revision[:12] or 'local'}"


def is_fetched(directory: Path) -> bool:
    """Whether all of it is there."""
    return (directory / MARKER).exists()


def fetch(corpus: str, hub: Hub, downloads: Path) -> Path:
    """The directory with all of `hub`'s files, fetched if need be.

    ConfigError without the package `datasets`, DataError when the Hub cannot be reached, or stops.
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
    for index in tqdm(range(count), desc=f"fetching {corpus}", unit="file", disable=None):
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
    """The dataset, not yet read."""
    try:
        import datasets
    except ImportError as error:
        raise ConfigError(
            f"--corpus {corpus} without --input comes from the Hub, by the package datasets, which "
            "is not installed: pip install '.[hub]', or give files with --input PATH..."
        ) from error
    # of its five attempts it would tell each
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    try:
        # Its files rather than its name: a script beside them would be refused.
        return datasets.load_dataset(
            "parquet", data_files=_address(hub), split="train", streaming=True
        )
    except _network_errors(ValueError) as error:
        raise DataError(
            f"cannot fetch {corpus}: {error}; where there is a network run --corpus {corpus} "
            "--fetch with the same TENFOLD_ROOT, or give files with --input PATH... "
            f"(--corpus {corpus} --explain: where they are)"
        ) from error


def _network_errors(other: type[Exception]) -> tuple[type[Exception], ...]:
    """What the Hub's client raises, be it made of requests, httpx or its successor; and `other`."""
    from huggingface_hub import get_session

    client = importlib.import_module(type(get_session()).__module__.partition(".")[0])
    return OSError, client.HTTPError, other


def _address(hub: Hub) -> str:
    """Its files at the Hub; of a directory on this machine where there is no revision."""
    if not hub.revision:
        return f"{hub.id}/{hub.files}"
    return f"hf://datasets/{hub.id}@{hub.revision}/{hub.files}"


def _write(batches: Iterator[pa.Table], hub: Hub, path: Path) -> None:
    """One shard as one Parquet file, the text in `text`."""
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
    """Rows of a shard; what goes wrong at the other end must not look like a full disk here."""
    try:
        yield from shard.with_format("arrow").iter(batch_size=_BATCH_ROWS)
    except _network_errors(pa.ArrowException) as error:
        raise DataError(
            f"fetching {hub.id} stopped in {place} ({error}); run the same command again: whole "
            "files are kept"
        ) from error


def _columns(table: pa.Table, hub: Hub) -> pa.Table:
    if hub.text_field not in table.column_names:
        raise DataError(
            f"{hub.id} has no column {hub.text_field}, only {', '.join(table.column_names)}; name "
            "another --revision"
        )
    columns = {"text": table[hub.text_field]} | {
        name: table[name]
        for name in _ORIGINS
        if name in table.column_names and pa.types.is_string(table[name].type)
    }
    return pa.table(columns)


def _groups(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Tables put together to row groups."""
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
