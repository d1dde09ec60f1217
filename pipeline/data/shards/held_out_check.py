"""Check that no directory of a run trains on documents that another one holds out.

Also what the held-out losses of a directory depend on, to know whether two runs compare.

A document is held out if the hash of its text is below the threshold of its corpus, which depends
on the corpus's other documents. So directories prepared from overlapping files can disagree, and
the held-out loss would be measured on documents that the model has seen. Documents are compared by
that hash, never by id, which only names a place in a file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.base.errors import DataError
from pipeline.data.shards.document_index import DOCUMENTS, is_held_out, require_columns
from pipeline.data.shards.manifest import VALIDATION, Manifest

Hashes = npt.NDArray[np.uint64]

_COLUMNS = ["text_hash", "first_sequence"]
_BATCH_ROWS = 1 << 20


def check_held_out(directories: Sequence[tuple[Path, Manifest]]) -> None:
    """Raise DataError if one directory trains on a document that another one holds out.

    Reads 16 bytes per document of each directory, twice; memory holds the hashes of held-out
    documents. Directories with the same documents.parquet cannot disagree and are read once.
    """
    distinct: dict[str, Path] = {}
    for directory, manifest in directories:
        distinct.setdefault(_identity(manifest), directory)
    if len(distinct) < 2:
        return
    held_out = {directory: _read_held_out(directory) for directory in distinct.values()}
    for reader in held_out:
        for hashes, is_held in _documents(reader):
            for holder, theirs in held_out.items():
                shared = _common(hashes[~is_held], theirs)
                if holder != reader and len(shared):
                    raise DataError(_conflict(holder, reader, int(shared[0])))


def held_out_key(manifest: Manifest, mask_rate: float) -> tuple[object, ...]:
    """Key of what held-out losses depend on besides the model: tokenizer, sequences, frozen masks.

    mask_rate: validation.mask_rate of the run. Equal keys: the losses compare, also if the
    directories differ in the masks that they train with.
    """
    law = manifest.masking | ({"rate": mask_rate} if mask_rate else {})
    rows = tuple(shard.xxh3_64 for shard in manifest.of(VALIDATION))
    tokenizer = manifest.tokenizer["sha256"]
    return tokenizer, rows, manifest.seed, json.dumps(law, sort_keys=True)


def _read_held_out(directory: Path) -> Hashes:
    """The sorted text hashes of a directory's held-out documents."""
    found = [hashes[is_held] for hashes, is_held in _documents(directory)]
    return np.unique(np.concatenate([np.empty(0, np.uint64), *found]))


def _identity(manifest: Manifest) -> str:
    return str(manifest.files[DOCUMENTS]["xxh3_64"])


def _documents(directory: Path) -> Iterator[tuple[Hashes, npt.NDArray[np.bool_]]]:
    """Text hash of each document, and whether it is held out, in batches."""
    path = directory / DOCUMENTS
    try:
        with pq.ParquetFile(path) as file:
            require_columns(path, file.schema_arrow.names, _COLUMNS)
            for batch in file.iter_batches(_BATCH_ROWS, columns=_COLUMNS):
                hashes, sequences = (batch.column(name).to_numpy() for name in _COLUMNS)
                yield hashes, is_held_out(sequences)
    except FileNotFoundError as error:
        raise DataError(
            f"{path} is missing; it is needed to check that no other --data directory trains on "
            "documents that this one holds out; copy it again"
        ) from error
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is damaged: {error}; copy it again") from error


def _common(hashes: Hashes, sorted_hashes: Hashes) -> Hashes:
    """The values of `hashes` that are in `sorted_hashes`."""
    if not len(sorted_hashes):
        return hashes[:0]
    hashes = hashes[hashes <= sorted_hashes[-1]]  # leaves few: held-out hashes are the smallest
    # searchsorted stays in range, as larger hashes are gone
    common: Hashes = hashes[sorted_hashes[np.searchsorted(sorted_hashes, hashes)] == hashes]
    return common


def _conflict(holder: Path, reader: Path, text_hash: int) -> str:
    """The message, with the ids of one such document in both directories."""
    held, trained = _name(holder, text_hash, True), _name(reader, text_hash, False)
    return (
        f"{reader} trains on documents that {holder} holds out for validation, for example "
        f"{trained} ({held} there); prepare all files together, as one corpus or with --dedup "
        "exact, or train on one of the two"
    )


def _name(directory: Path, text_hash: int, held_out: bool) -> str:
    """Corpus and id of a document with this text that is held out, or is not."""
    table = pq.read_table(
        directory / DOCUMENTS,
        columns=["corpus", "id", "first_sequence"],
        filters=pc.field("text_hash") == pa.scalar(text_hash, pa.uint64()),
    )
    # a copy on the other side of the same directory must not be named
    side = is_held_out(table["first_sequence"].to_numpy()) == held_out
    index = int(np.flatnonzero(side)[0])
    return f"{table['corpus'][index]} {table['id'][index]}"
