"""Everything that determines the bytes of shards: equal fingerprints mean equal shards."""

from __future__ import annotations

import unicodedata
from importlib.metadata import version
from typing import Any

from pipeline.config.data_settings import DataSettings, shard_settings
from pipeline.data.preparation.holdout import VALIDATION_VERSION
from pipeline.data.preparation.worker import SPLITS_VERSION
from pipeline.data.rows.masks import GENERATOR_VERSION
from pipeline.data.rows.pack import packing_version
from pipeline.data.text.cleaning import CLEANING_VERSION
from pipeline.data.text.sentences import SENTENCES_VERSION
from pipeline.data.tokenizers.document_encoder import fast_engine
from pipeline.data.tokenizers.vocabulary import ADDED_TOKENS_VERSION, WORDS_VERSION, Vocabulary
from pipeline.ingest.documents.read import READING_VERSION, file_identity
from pipeline.ingest.documents.records import Source

COLUMNS_VERSION = 1
"""Version of the columns of rows and masks, in whatever files."""


Identities = dict[Source, list[Any]]
"""The identity of each file read so far, see `file_identity`."""


def identify_files(sources: list[Source], known: Identities) -> list[list[Any]]:
    """The identity of each file; files not in `known` are read, and added to it."""
    for source in sources:
        if source not in known:
            known[source] = file_identity(source)
    return [known[source] for source in sources]


def shard_identity(
    data: DataSettings,
    files: list[list[Any]],
    vocabulary: Vocabulary,
    engine: str,
    compression: str,
    selection: str = "",
    *,
    finer: int = 1,
) -> dict[str, Any]:
    """Everything that determines the content of shards; its fingerprint names the directory.

    files: the identity of each input file, in order; selection: the mark of selection, empty if
    every document is kept; finer: how many times smaller the last tasks are, see `cut_tasks`.
    """
    # entries only where they apply: a new one leaves the fingerprints of all other shards
    optional: dict[str, Any] = {"selection": selection} if selection else {}
    if finer > 1:
        optional["finer"] = finer
    if vocabulary.has_spaceless_letters:
        optional["words"] = str(WORDS_VERSION)
    if vocabulary.text_tokens:
        optional["added tokens"] = str(ADDED_TOKENS_VERSION)
    return optional | {
        "schema": COLUMNS_VERSION,
        "data": shard_settings(data),
        "tokenizer": vocabulary.sha256,
        "engine": engine_versions(data, engine),
        "compression": compression,
        "files": files,
    }


def engine_versions(data: DataSettings, engine: str) -> dict[str, Any]:
    """Versions of the code for documents, ids, rows and masks; engine: fast or tokenizers."""
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
