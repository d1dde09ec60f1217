"""Everything that decides the bytes of shards: equal fingerprints mean equal shards."""

from __future__ import annotations

import unicodedata
from importlib.metadata import version
from typing import Any

from pipeline.config.run import DataSettings, shard_settings
from pipeline.data.documents.file_identity import file_identity
from pipeline.data.documents.read import READING_VERSION
from pipeline.data.documents.records import Source
from pipeline.data.preparation.holdout import VALIDATION_VERSION
from pipeline.data.preparation.worker import SPLITS_VERSION
from pipeline.data.rows.masks import GENERATOR_VERSION
from pipeline.data.rows.pack import packing_version
from pipeline.data.text.clean import CLEANING_VERSION
from pipeline.data.text.sentences import SENTENCES_VERSION
from pipeline.data.tokenizers.encoder import fast_engine
from pipeline.data.tokenizers.vocabulary import Vocabulary

COLUMNS_VERSION = 1
"""Of the columns of rows and masks, whatever files they are in."""


Identities = dict[Source, list[Any]]
"""What identifies each file that was looked at, see `file_identity`."""


def identify(sources: list[Source], known: Identities) -> list[list[Any]]:
    """The identity of each file; those that are not in `known` are read and added to it."""
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
) -> dict[str, Any]:
    """Everything that decides what the shards hold; its fingerprint names the directory.

    files: the identity of each input file, in order; selection: the mark of the group stage, empty
    when every document stays.
    """
    return ({"selection": selection} if selection else {}) | {
        "schema": COLUMNS_VERSION,
        "data": shard_settings(data),
        "tokenizer": vocabulary.sha256,
        "engine": engine_versions(data, engine),
        "compression": compression,
        "files": files,
    }


def engine_versions(data: DataSettings, engine: str) -> dict[str, Any]:
    """Versions of what makes documents, ids, rows and masks; engine: fast or tokenizers."""
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
