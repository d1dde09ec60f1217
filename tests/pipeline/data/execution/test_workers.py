"""What falls to whom; that workers give the same bytes is tests/pipeline/test_prepare.py's."""

from __future__ import annotations

import pytest

from pipeline.data.documents.records import Piece, Source
from pipeline.data.execution.tasks import SplitTask
from pipeline.data.execution.workers import share


def tasks(*weights: int) -> list[SplitTask]:
    source = Source("c", "/in", "in", sum(weights), "jsonl", "", "", "blank_lines", "")
    return [
        SplitTask(number, "c", (Piece(source, 0, weight, weight),))
        for number, weight in enumerate(weights)
    ]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 20])
def test_shares_are_all_tasks_once(count: int) -> None:
    every = tasks(5, 1, 9, 9, 3, 3, 3, 8, 1, 1, 2)
    shares = [share(every, number, count) for number in range(1, count + 1)]
    found = sorted(task.number for mine in shares for task in mine)
    assert found == list(range(11))


def test_shares_have_about_the_same_weight() -> None:
    """Whole shares: a compressed file of 90 MB is not on top of a third of everything else."""
    every = tasks(90, *[10] * 18)
    weights = [sum(task.weight for task in share(every, number, 3)) for number in (1, 2, 3)]
    assert weights == [90, 90, 90]
