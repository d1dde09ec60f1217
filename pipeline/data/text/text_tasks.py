"""Cuts sources into tasks that do not depend on the number of workers."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pipeline.base.errors import DataError
from pipeline.ingest.documents.read import cut, is_stored_plain
from pipeline.ingest.documents.records import Piece, Source

SPLIT_BYTES = 32 << 20
"""Text per part; it determines a worker's memory and the size of a shard."""

FINER = 4
"""The last quarter of much text is cut into tasks of a quarter of a split: done last, they occupy
the processes that would wait for those with the last large ones, however many processes there are.
"""
FEWEST_SPLITS = 1024
"""Less text is not cut so: a part takes some time however short it is, and few processes wait."""
_MOST_FINER = 2048
"""Splits that are cut so at most, as each task makes several files."""
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
    raw = piece.source.raw
    if raw and is_stored_plain(raw):
        return piece.weight
    packed = piece.source.compression or piece.source.format
    return piece.weight * _EXPANSION.get(packed, 1)


def cut_tasks(
    sources: list[Source], split_bytes: int = SPLIT_BYTES, *, finer: int = FINER
) -> list[SplitTask]:
    """Cut all sources into tasks of about `split_bytes`; small files of a corpus share a task.

    finer: see FINER; 1 for tasks of one size, as has a text of less than FEWEST_SPLITS.
    """
    tasks: list[SplitTask] = []
    pending: list[Piece] = []
    weight = 0
    for piece, most in _cut_pieces(sources, split_bytes, finer):
        corpus = piece.source.corpus
        weight += piece_weight(piece)
        # one corpus per task: its thresholds, decisions and counts are those of a corpus
        if pending and (pending[0].source.corpus != corpus or weight > most):
            tasks.append(SplitTask(len(tasks), pending[0].source.corpus, tuple(pending)))
            pending, weight = [], piece_weight(piece)
        pending.append(piece)
    if pending:
        tasks.append(SplitTask(len(tasks), pending[0].source.corpus, tuple(pending)))
    # a task's number is 16 bits of its rows' sequence ids, see `worker.sequence_base`
    if len(tasks) > _MOST_TASKS:
        raise DataError(
            f"{len(tasks):,} tasks, at most {_MOST_TASKS:,}; prepare the corpus in pieces"
        )
    return tasks


def _cut_pieces(sources: list[Source], split_bytes: int, finer: int) -> Iterator[tuple[Piece, int]]:
    """The pieces of all sources in order, each with the most that its task may weigh."""
    whole = [cut(source, split_bytes) for source in sources]
    left = _weight(itertools.chain.from_iterable(whole))
    end, small = 0, max(1, split_bytes // finer)
    if finer > 1 and has_finer_end(left, split_bytes):
        spare = max(0, _MOST_TASKS - left // split_bytes) // finer  # or much text has too many
        end = min(left // finer, min(_MOST_FINER, spare) * split_bytes)
    for source, pieces in zip(sources, whole):
        fine = cut(source, small) if left - _weight(pieces) < end else []
        starts = {piece.start for piece in fine}
        for piece in pieces:
            if left <= end and piece.start in starts:  # where tables can be cut in both ways
                rest = [one for one in fine if one.start >= piece.start]
                yield from ((one, small) for one in rest)
                left -= _weight(rest)
                break
            yield piece, split_bytes
            left -= piece_weight(piece)


def has_finer_end(weight: int, split_bytes: int) -> bool:
    """True if the last tasks of a text of this weight are smaller, see FINER."""
    return weight >= FEWEST_SPLITS * split_bytes


def _weight(pieces: Iterable[Piece]) -> int:
    return sum(map(piece_weight, pieces))
