"""Cuts sources into tasks that do not depend on the number of workers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipeline.base.errors import DataError
from pipeline.ingest.documents.read import cut, is_stored_plain
from pipeline.ingest.documents.records import Piece, Source

SPLIT_BYTES = 32 << 20
"""Text per part; it determines a worker's memory and the size of a shard."""

_MOST_TASKS = 1 << 16  # 2 TB of text

_EXPANSION = {"gz": 3, "zst": 3, "xz": 4, "bz2": 4, "parquet": 2, "extracted": 3}
"""Expected bytes of text per byte of file."""


@dataclass(frozen=True, slots=True)
class SplitTask:
    """Pieces of one corpus, done by one worker."""

    number: int
    corpus: str
    pieces: tuple[Piece, ...]
    decisions: Path | None = None
    """File with the decisions of selection, see `decisions`; None: every document is kept."""

    @property
    def weight(self) -> int:
        """Expected bytes of text."""
        return sum(piece_weight(piece) for piece in self.pieces)

    @property
    def name(self) -> str:
        """Its description in logs."""
        first = self.pieces[0]
        return f"task {self.number}, {first.source.name} from {first.start}"

    @property
    def marker(self) -> str:
        """Name of the file that marks the task as done; it holds the number of parts."""
        return f"task-{self.number:06d}.json"


def piece_weight(piece: Piece) -> int:
    """Expected bytes of text in a piece."""
    if piece.source.frames:
        return piece.stop - piece.start
    raw = piece.source.raw
    if raw and is_stored_plain(raw):
        return piece.weight
    packed = piece.source.compression or piece.source.format
    return piece.weight * _EXPANSION.get(packed, 1)


def cut_tasks(sources: list[Source], split_bytes: int = SPLIT_BYTES) -> list[SplitTask]:
    """Cut all sources into tasks of about `split_bytes`; small files of a corpus share a task."""
    tasks: list[SplitTask] = []
    pending: list[Piece] = []
    weight = 0
    for source in sources:
        for piece in cut(source, split_bytes):
            weight += piece_weight(piece)
            if pending and (pending[0].source.corpus != source.corpus or weight > split_bytes):
                tasks.append(SplitTask(len(tasks), pending[0].source.corpus, tuple(pending)))
                pending, weight = [], piece_weight(piece)
            pending.append(piece)
    if pending:
        tasks.append(SplitTask(len(tasks), pending[0].source.corpus, tuple(pending)))
    if len(tasks) > _MOST_TASKS:
        raise DataError(
            f"{len(tasks):,} tasks, at most {_MOST_TASKS:,}; prepare the corpus in pieces"
        )
    return tasks
