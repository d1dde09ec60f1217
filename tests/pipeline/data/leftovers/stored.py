"""A small $TENFOLD_ROOT with an extracted dump and shards, all written two days ago."""

import json
import os
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.data.shards.manifest import INPUTS, MANIFEST
from pipeline.ingest.documents.parquet import extracted_hash
from tests.pipeline.ingest.dump import small_dump
from tests.pipeline.ingest.tars import extracted

DAYS = 2


def age(folder: Path) -> None:
    """Date everything below a folder DAYS back."""
    then = time.time() - DAYS * 86_400
    for path in [*folder.rglob("*"), folder]:
        os.utime(path, (then, then), follow_symlinks=False)


def extracted_dump(root: Path, name: str = "dump.xml", content: bytes = b"") -> Path:
    """The extracted file of a dump that lies next to the root."""
    raw = root.parent / name
    raw.write_bytes(content or small_dump())
    made = extracted(raw, root / "documents")
    age(root)
    return Path(made.path)


def write_shards(directory: Path, *read: Path, parent: str = "") -> Path:
    """What is looked at in shards that were made of these extracted files; their fingerprint is
    their name. parent: fingerprint of shards that a takedown made them from."""
    directory.mkdir(parents=True)
    hashes = [extracted_hash(str(path)) for path in read]
    pq.write_table(pa.table({"xxh3_64": pa.array(hashes, pa.string())}), directory / INPUTS)
    takedowns = [{"parent": parent}] if parent else []
    manifest = {"fingerprint": directory.name, "takedowns": takedowns}
    (directory / MANIFEST).write_text(json.dumps(manifest))
    return directory
