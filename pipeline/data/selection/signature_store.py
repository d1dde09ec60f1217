"""Signatures of the documents in published shards, which later shards are compared with.

`$TENFOLD_ROOT/signatures/<fingerprint>/` belongs to the shards of that fingerprint and to all that
takedowns made of them. Each Parquet file has the documents of a survey that are not dropped, in
the layout of a survey, so that the join reads both alike: 256 bytes per document, and its id.

1. `signatures.json` names the files and the rules that made them. It is written last, so a store
   is complete or does not exist.
2. Pages of the files have checksums, so every read notices damage.
3. A takedown clears the signatures of its documents. Their rows stay, and so do the numbers of all
   others. A file that it changes gets a new name, so that the old store counts until the new
   `signatures.json` is there; then the old files are removed.
"""

from __future__ import annotations

import itertools
import json
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.base.errors import ConfigError, DataError
from pipeline.base.files import (
    is_plain_name,
    one_at_a_time,
    remove_temporaries,
    size_of,
    whole_file,
    write_whole,
)
from pipeline.base.typed_json import build, name_damage, read_object
from pipeline.data.selection.minhash import ORDERS, SHINGLE_WORDS, SHINGLES_VERSION
from pipeline.data.selection.survey import word_names
from pipeline.data.text.cleaning import CLEANING_VERSION
from pipeline.execution.ledger import lock_of
from pipeline.execution.threads import on_threads

SIGNATURES = "signatures"
"""Folder of $TENFOLD_ROOT with all stores."""
BYTES_PER_DOCUMENT = ORDERS
"""Bytes per document of a store, without its id."""
STORE_VERSION = 1
"""Version of the layout of a store."""
INDEX = "signatures.json"
_WORDS = word_names(range(ORDERS // 8))
_STORE_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("corpus", pa.dictionary(pa.int32(), pa.string())),
        pa.field("dropped", pa.string()),
        *(pa.field(name, pa.uint64()) for name in _WORDS),
    ]
)
_CLEARED = "taken down"
"""Value of `dropped` for documents without a signature, which take no part in a join."""


def signature_rules() -> dict[str, Any]:
    """Rules that decide the signature of a text; only equal rules give comparable signatures."""
    return {
        "shingles": SHINGLES_VERSION, "words of a shingle": SHINGLE_WORDS, "orders": ORDERS,
        "cleaning": CLEANING_VERSION, "unicode": unicodedata.unidata_version,
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class SignatureFile:
    """A Parquet file of a store."""

    file: str
    documents: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreIndex:
    """The content of `signatures.json`."""

    version: int
    rules: dict[str, Any]
    """See `signature_rules`."""
    documents: int
    """All rows, cleared ones included."""
    files: tuple[SignatureFile, ...]
    taken_down: tuple[str, ...]
    """Fingerprints of the shards whose takedowns cleared signatures, oldest first."""


@dataclass(frozen=True, slots=True)
class SignatureStore:
    """A complete store."""

    directory: Path
    index: StoreIndex

    @property
    def paths(self) -> list[Path]:
        """The files, in order."""
        return [self.directory / file.file for file in self.index.files]

    @property
    def documents(self) -> int:
        """Documents by the index, cleared ones included."""
        return self.index.documents

    def ids(self, numbers: Collection[int]) -> dict[int, str]:
        """The id of each of these documents, which are counted from 0 over all files."""
        found: dict[int, str] = {}
        first = 0
        for path, file in zip(self.paths, self.index.files):
            here = [number for number in numbers if first <= number < first + file.documents]
            if here:
                ids = pq.read_table(path, columns=["id"])["id"]
                found |= {number: ids[number - first].as_py() for number in here}
            first += file.documents
        return found


@dataclass(frozen=True, slots=True)
class EarlierShards:
    """Shards whose documents count as kept before any of a selection."""

    fingerprint: str
    store: SignatureStore

    @property
    def identity(self) -> list[str]:
        """Fingerprints that determine these signatures."""
        return [self.fingerprint, *self.store.index.taken_down]

    def describe(self) -> tuple[str, str, int]:
        """Their entry in decisions: fingerprint, name of the store, documents."""
        return self.fingerprint, self.store.directory.name, self.store.documents


def is_stored(directory: Path) -> bool:
    """True if a store is complete."""
    return (directory / INDEX).exists()


def write_signatures(path: Path, corpus: str, tables: Iterator[pa.Table]) -> None:
    """Write a file of a store; tables: of surveyed documents that are kept."""
    with _writer(path) as writer:
        for table in tables:
            names = pa.array([corpus] * len(table), pa.string()).dictionary_encode()
            columns = [table["id"], names, table["dropped"], *(table[name] for name in _WORDS)]
            writer.write_table(pa.table(columns, schema=_STORE_SCHEMA))


def complete_store(directory: Path, files: Sequence[Path]) -> SignatureStore:
    """Write the index of a store whose files are all there; other files are removed."""
    # on threads, as a network file system takes its time for each footer
    counts = [*on_threads(lambda path: pq.read_metadata(path).num_rows, files)]
    stored = [
        SignatureFile(path.name, count, path.stat().st_size) for path, count in zip(files, counts)
    ]
    index = StoreIndex(
        version=STORE_VERSION, rules=signature_rules(),
        documents=sum(counts), files=tuple(stored), taken_down=(),
    )  # fmt: skip
    _write_index(directory, index)
    _remove_others(directory, index)  # locks and logs
    return SignatureStore(directory, index)


def read_store(directory: Path) -> SignatureStore:
    """A complete store. Raises DataError if it is damaged or of another version."""
    remedy = f"remove {directory} and prepare its shards again with --keep-signatures"
    with name_damage(directory / INDEX, remedy):
        content = read_object(directory / INDEX)
        if (version := content.get("version")) != STORE_VERSION:
            raise DataError(
                f"{directory / INDEX}: version {version}, but this version of Tenfold reads "
                f"{STORE_VERSION}; {remedy}"
            )
        index = build(StoreIndex, content)
        # a damaged index could name a file outside the store
        if odd := [file.file for file in index.files if not is_plain_name(file.file)]:
            raise ValueError(f"{odd[0]!r} is not the name of a file")
        if index.documents != (found := sum(file.documents for file in index.files)):
            raise ValueError(f"its files have {found:,} documents, not {index.documents:,}")
    store = SignatureStore(directory, index)
    for path, file, size in zip(store.paths, index.files, on_threads(size_of, store.paths)):
        if size != file.bytes:
            has = f"has {size:,} bytes" if size >= 0 else "is missing"
            raise DataError(f"{path} {has}, {INDEX} says {file.bytes:,}; {remedy}")
    return store


def require_comparable(store: SignatureStore, shards: Path) -> None:
    """Raise ConfigError if the signatures were made by other rules than this version's."""
    before, now = store.index.rules, signature_rules()
    for name in {**now, **before}:
        if before.get(name) != now.get(name):
            raise ConfigError(
                f"--against {shards}: its signatures have {name} {before.get(name)}, this version "
                f"has {now.get(name)}; prepare it again with --keep-signatures and a new --output"
            )


def clear_signatures(directory: Path, names: Collection[tuple[str, str]], mark: str) -> int:
    """Clear the signatures of documents that were taken down; returns how many had one.

    directory: of a store, if there is one; names: corpus and id of each; mark: fingerprint of the
    shards without them. A takedown that was killed here is repeated, and continues.
    """
    if not is_stored(directory):
        return 0
    with one_at_a_time(lock_of(directory)):
        store, count = read_store(directory), 0
        index = store.index
        # a repeated takedown finds its mark, and only has to remove the old files
        if mark not in index.taken_down:
            ids = pa.array(sorted({id for _, id in names}), pa.string())
            suffix = f"-{len(index.taken_down) + 1}.parquet"
            files = []
            for path, file in zip(store.paths, index.files):
                chosen = _chosen(path, ids, names)
                if cleared := sum(int(rows.sum()) for rows in chosen):
                    # the stem without the suffix of an earlier takedown
                    target = directory / f"{path.stem.partition('-')[0]}{suffix}"
                    _write_cleared(path, target, chosen)
                    file = SignatureFile(target.name, file.documents, target.stat().st_size)
                    count += cleared
                files.append(file)
            taken_down = (*index.taken_down, mark)
            index = replace(index, files=tuple(files), taken_down=taken_down)
            _write_index(directory, index)
        _remove_others(directory, index)  # every time: one that was killed left signatures there
    return count


def _write_index(directory: Path, index: StoreIndex) -> None:
    write_whole(directory / INDEX, json.dumps(asdict(index), indent=1).encode())


def _remove_others(directory: Path, index: StoreIndex) -> None:
    """Remove the files of a store's folder that its index does not name."""
    remove_temporaries(directory)
    named = {INDEX, *(file.file for file in index.files)}
    for path in directory.iterdir():
        if path.name not in named and path.suffix != ".tmp":  # of a process that still runs
            path.unlink(missing_ok=True)


def _writer(path: Path) -> pq.ParquetWriter:
    texts = ["id", "corpus", "dropped"]
    # signatures are random bytes, which zstd cannot shrink, and ids differ, so a dictionary of them
    # only costs
    return pq.ParquetWriter(
        path, _STORE_SCHEMA, compression=dict.fromkeys(texts, "zstd"), use_dictionary=texts[1:],
        write_statistics=False, write_page_checksum=True,
    )  # fmt: skip


def _groups(path: Path, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        yield from map(partial(file.read_row_group, columns=columns), range(file.num_row_groups))


def _chosen(
    path: Path, ids: pa.Array, names: Collection[tuple[str, str]]
) -> list[npt.NDArray[np.bool_]]:
    """For each row group, which rows have one of the names, and a signature."""
    chosen = []
    for table in _groups(path, ["id", "corpus", "dropped"]):
        rows = np.zeros(len(table), np.bool_)
        # ids are compared in Arrow; only the few rows with one of them become Python objects
        for row in np.flatnonzero(pc.is_in(table["id"], ids).to_numpy()).tolist():
            name = (table["corpus"][row].as_py(), table["id"][row].as_py())
            rows[row] = name in names and table["dropped"][row].as_py() is None
        chosen.append(rows)
    return chosen


def _write_cleared(path: Path, target: Path, chosen: list[npt.NDArray[np.bool_]]) -> None:
    """Write a file again with nothing in the chosen rows but their ids."""
    with whole_file(target, lasting=False) as temporary, _writer(temporary) as writer:
        for table, rows in itertools.zip_longest(_groups(path), chosen):
            gone = pa.array(rows)
            columns = [pc.if_else(gone, pa.scalar(0, pa.uint64()), table[name]) for name in _WORDS]
            dropped = pc.if_else(gone, _CLEARED, table["dropped"])
            columns = [table["id"], table["corpus"], dropped, *columns]
            writer.write_table(pa.table(columns, schema=_STORE_SCHEMA))
