"""Ids that a user names -> the documents of the shards that have them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base.errors import ConfigError
from pipeline.config.settings import fingerprint
from pipeline.data.shards.document_index import TAKEN_DOWN, DocumentIndex

_SHOWN = 3
_COLUMNS = ["id", "corpus", "first_sequence", "text_hash"]


@dataclass(frozen=True, slots=True)
class Request:
    """The documents that a user wants to be gone."""

    names: frozenset[tuple[str, str]]
    """Corpus and id of each that is still there."""
    first_sequences: npt.NDArray[np.uint64]
    """First sequences of these documents, sorted."""
    taken_before: frozenset[tuple[str, str]]
    """Corpus and id of documents that an earlier takedown took."""
    text_hashes: npt.NDArray[np.uint64]
    """Hashes of all their texts, sorted."""

    @property
    def corpora(self) -> dict[str, int]:
        """Documents per corpus."""
        return dict(sorted(Counter(corpus for corpus, _ in self.names).items()))

    def fingerprint(self, parent: str) -> str:
        """The fingerprint of the new shards; parent: that of the shards they are made from."""
        return fingerprint({"parent": parent, "taken_down": sorted(map(list, self.names))})


def find_documents(directory: Path, given: Sequence[str]) -> Request:
    """The documents that `given` names: ids, or files with one id per line.

    An id that occurs in several corpora takes the name of one and a tab in front of it. Raises
    ConfigError for an id that no document has.
    """
    wanted = dict.fromkeys(given)
    index = DocumentIndex(directory)
    found = _search(index, wanted)
    # ids first: a document can have the id of an existing file
    files = [name for name in wanted if name not in found and Path(name).is_file()]
    for name in files:
        del wanted[name]
        wanted |= dict.fromkeys(_read_ids(Path(name)))
    if files:
        found = _search(index, wanted)
    _require_all(index, wanted, found)
    rows = [row for name in wanted for row in found[name]]
    new = [row for row in rows if not row[TAKEN_DOWN]]
    return Request(
        names=frozenset((row["corpus"], row["id"]) for row in new),
        first_sequences=np.unique(np.array([row["first_sequence"] for row in new], np.uint64)),
        taken_before=frozenset((row["corpus"], row["id"]) for row in rows if row[TAKEN_DOWN]),
        text_hashes=np.unique(np.array([row["text_hash"] for row in rows], np.uint64)),
    )


def _search(index: DocumentIndex, wanted: dict[str, None]) -> dict[str, list[dict[str, Any]]]:
    """The documents of each wanted name that some document has."""
    plain = {name.rpartition("\t")[2] for name in wanted}
    # An argument may not be UTF-8, and then equals no id.
    ids = pa.array([name.encode(errors="replace") for name in sorted(plain)], pa.string())
    found: dict[str, list[dict[str, Any]]] = {}
    for table in index.tables(_COLUMNS):
        for row in table.filter(pc.is_in(table["id"], ids)).to_pylist():
            for name in (row["id"], f"{row['corpus']}\t{row['id']}"):
                if name in wanted:
                    found.setdefault(name, []).append(row)
    return found


def _read_ids(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")  # Windows editors write a mark
    except (UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"{path} cannot be read as a list of ids: {error}") from error
    return [line.strip() for line in lines if line.strip()]


def _ids_from(index: DocumentIndex, origin: str) -> list[str]:
    """The first ids of documents from a file or URL, which users take for an id."""
    ids: list[str] = []
    for table in index.tables(["id", "origin"]):
        same = pc.equal(table["origin"], origin.encode(errors="replace").decode())
        ids += table["id"].filter(same)[: _SHOWN + 1].to_pylist()
        if len(ids) > _SHOWN:
            return [*ids[:_SHOWN], "..."]
    return ids


def _require_all(
    index: DocumentIndex, wanted: dict[str, None], found: dict[str, list[dict[str, Any]]]
) -> None:
    """Raise ConfigError unless each name belongs to documents of one corpus."""
    if not wanted:
        raise ConfigError("--documents names no document; give ids, or a file with one per line")
    if unknown := [name for name in wanted if name not in found]:
        ids = _ids_from(index, unknown[0])
        whose = f", the origin of {', '.join(ids)}" if ids else ""
        raise ConfigError(
            f"--documents: {len(unknown):,} of {len(wanted):,} ids are not in {index.path}, for "
            f"example {unknown[0]!r}{whose}; give ids from its column id, or a file with one per "
            "line"
        )
    for name, rows in found.items():
        corpora = sorted({row["corpus"] for row in rows})
        if len(corpora) > 1:
            raise ConfigError(
                f"--documents: {name!r} is in the corpora {' and '.join(corpora)}; put the name of "
                "one and a tab before the id"
            )
