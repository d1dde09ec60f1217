"""Rows of a step -> micro-batches of lines: a row a line, or short rows end to end in one.

Packing happens here, when rows are read, so that what is stored, the order of samples and which of
them form a step are the same with it and without. A rank lays all its rows of a step at once, the
longest first, each into the line in which it leaves the least room: in so large a lot short rows
fill the lines to within a few tokens. Micro-batches are these lines in order, so none has more
lines than it may, whatever the rows; how many it takes differs from rank to rank, and the step's
count of predicted tokens tells all of them the most.

Legend: n rows of a step on this rank, R rows of a micro-batch, L its lines, S tokens of a line.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numba
import numpy as np
import numpy.typing as npt

from pipeline.data.kernels.permutation import IntArray

DRAWS = 32
"""Lots of rows that `expected_lines` lays out."""
DEVIATIONS = 4.0
"""Standard deviations above the mean that it takes for the most: one lot in 30,000 has more, and
its step then one more micro-batch, on every rank."""


@dataclass(frozen=True, slots=True)
class Laid:
    """Where the rows of a micro-batch lie; every line has one at its beginning."""

    rows: IntArray | slice
    """[R] which of the step's, from 0; -1 for a row of filling, of which a line has one alone."""
    starts: IntArray
    """[R] line x S + place of their first token, ascending."""


def one_a_line(rows: int, lines: int, length: int) -> list[Laid]:
    """`rows`, a multiple of `lines`, in order."""
    starts = np.arange(lines) * length
    return [Laid(slice(first, first + lines), starts) for first in range(0, rows, lines)]


def packed(tokens: IntArray, lines: int, length: int) -> list[Laid]:
    """One micro-batch or more of `lines`; tokens: of each row [n], 0 for one that is not read."""
    read = np.flatnonzero(tokens)
    line, place, used = lay_out(tokens[read], length)
    micro_batches = max(1, -(-used // lines))
    filling = np.arange(used, micro_batches * lines)
    rows = np.concatenate([read, np.full_like(filling, -1)])
    starts = np.concatenate([line * length + place, filling * length])
    order = np.argsort(starts)
    rows, starts = rows[order], starts[order]
    size = lines * length
    bounds = np.searchsorted(starts, np.arange(micro_batches + 1) * size).tolist()
    return [
        Laid(rows[begin:end], starts[begin:end] - number * size)
        for number, (begin, end) in enumerate(pairwise(bounds))
    ]


def lay_out(tokens: IntArray, length: int) -> tuple[IntArray, IntArray, int]:
    """Line and place of each row [n], and how many lines; tokens: of each [n], 1 to `length`."""
    return _best_fit(tokens, np.argsort(-tokens, kind="stable"), length)


def expected_lines(
    lengths: IntArray, weights: npt.NDArray[np.float64], rows: int, length: int
) -> tuple[float, int]:
    """Lines that `rows` rows take on average and nearly always at most, from a few draws of them.

    lengths: tokens of rows like them; weights: how many rows each of these stands for.
    """
    rng, shares = np.random.default_rng(0), weights / weights.sum()
    used = [lay_out(rng.choice(lengths, rows, p=shares), length)[2] for _ in range(DRAWS)]
    return float(np.mean(used)), min(rows, int(np.mean(used) + DEVIATIONS * np.std(used)) + 1)


@numba.njit(cache=True, nogil=True)
def _best_fit(tokens: IntArray, order: IntArray, length: int) -> tuple[IntArray, IntArray, int]:
    line = np.empty_like(tokens)
    place = np.empty_like(tokens)
    last = np.full(length + 1, -1)  # of the lines with so much room, the one that got it last
    before = np.empty_like(tokens)  # and of each line the one that had as much before it
    used = 0
    for row in order:
        room = tokens[row]
        while room <= length and last[room] < 0:
            room += 1
        if room > length:
            room, chosen = length, used
            used += 1
        else:
            chosen = last[room]
            last[room] = before[chosen]
        line[row], place[row] = chosen, length - room
        left = room - tokens[row]
        before[chosen], last[left] = last[left], chosen
    return line, place, used
