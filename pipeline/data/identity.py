"""What decides the bytes of shards, all of it, so that equal fingerprints mean equal shards."""

from __future__ import annotations

import unicodedata
from importlib.metadata import version
from pathlib import Path
from typing import Any

import xxhash

from pipeline.config.run import Data, shard_settings
from pipeline.data import shards
from pipeline.data.cleaning import CLEANING_VERSION
from pipeline.data.documents import READERS, READING_VERSION
from pipeline.data.masking import GENERATOR_VERSION
from pipeline.data.packing import packing_version
from pipeline.data.raw_parquet import extraction_mark
from pipeline.data.records import EXTRACTED, Source
from pipeline.data.sentences import SENTENCES_VERSION
from pipeline.data.splits import SPLITS_VERSION
from pipeline.data.tokens import fast_engine
from pipeline.data.validation import VALIDATION_VERSION
from pipeline.data.vocabulary import Vocabulary

_EDGE_BYTES = 1 << 16


def shard_identity(
    data: Data,
    sources: list[Source],
    vocabulary: Vocabulary,
    engine: str,
    compression: str,
    selection: str = "",
) -> dict[str, Any]:
    """Everything that decides what the shards hold; its fingerprint names the directory.

    selection: of the group stage; empty when every document stays.
    """
    return ({"selection": selection} if selection else {}) | {
        "schema": shards.SCHEMA_VERSION,
        "data": shard_settings(data),
        "tokenizer": vocabulary.sha256,
        "engine": engine_versions(data, engine),
        "compression": compression,
        "files": [file_identity(source) for source in sources],
    }


def engine_versions(data: Data, engine: str) -> dict[str, Any]:
    """What makes documents, ids, rows and masks; engine: fast or tokenizers."""
    ids = f"tokenizers {version('tokenizers')}"
    return {
        "ids": ids if engine == "tokenizers" else f"{fast_engine(data.tokenizer)} and {ids}",
        "unicode": unicodedata.unidata_version,  # for NFC and the classes of characters
        "reading": READING_VERSION,
        "cleaning": CLEANING_VERSION,
        "validation": VALIDATION_VERSION,
        "splits": SPLITS_VERSION,
        "sentences": SENTENCES_VERSION,
        "packing": packing_version(data),
        "masks": GENERATOR_VERSION,
    }


def file_identity(source: Source) -> list[Any]:
    """How a file is read, its size and a hash of its ends: to read 160 GB twice would be too much.

    A change in the middle that keeps the size goes unseen here; `plan.json` of unfinished work has
    the time of change too.
    """
    if source.format == EXTRACTED:
        return [source.corpus, source.name, source.licence, extraction_mark(source.path)]
    reading: list[Any] = [source.corpus, source.name, source.licence]
    reading += [source.text_field, source.plain_text]
    if source.format in READERS:
        reading += [source.format, READERS[source.format]]
    return [*reading, source.size, file_ends(source.path)]


def file_ends(path: str) -> str:
    """A hash of a file's first and last 64 KiB."""
    with Path(path).open("rb") as file:
        head = file.read(_EDGE_BYTES)
        file.seek(max(0, Path(path).stat().st_size - _EDGE_BYTES))
        return xxhash.xxh3_64_hexdigest(head + file.read())
