"""Sources cut into tasks that do not depend on how many workers there are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipeline.data.documents.read import cut
from pipeline.data.documents.records import Piece, Source
from pipeline.errors import DataError

SPLIT_BYTES = 32 << 20
"""Of text in a part: memory of a worker and size of a shard follow from it."""

_MOST_TASKS = 1 << 16  # 2 TB of text

_EXPANSION = {"gz": 3, "zst": 3, "xz": 4, "bz2": 4, "parquet": 2, "extracted": 3}
"""Bytes of text expected from a byte of file."""


@dataclass(frozen=True, slots=True)
class SplitTask:
    """Pieces of one corpus, done by one worker."""

    number: int
    corpus: str
    pieces: tuple[Piece, ...]
    decisions: Path | None = None
    """File of the group stage, see `decisions`; None: every document stays."""

    @property
    def weight(self) -> int:
        """Bytes of text it is expected to hold."""
        return sum(piece_weight(piece) for piece in self.pieces)

    @property
    def name(self) -> str:
        """What it is, for logs."""
        first = self.pieces[0]
        return f"task {self.number}, {first.source.name} from {first.start}"

    @property
    def marker(self) -> str:
        """Name of the file that exists once all parts of the task do; it holds how many."""
        return f"task-{self.number:06d}.json"


def piece_weight(piece: Piece) -> int:
    """Bytes of text a piece is expected to hold."""
    packed = piece.source.compression or piece.source.format
    return piece.weight * _EXPANSION.get(packed, 1)


def cut_tasks(sources: list[Source], split_bytes: int = SPLIT_BYTES) -> list[SplitTask]:
    """Every source in tasks of about `split_bytes`; small files share one, corpora never do."""
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
