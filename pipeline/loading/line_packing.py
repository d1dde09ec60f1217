"""Rows of a step -> micro-batches of lines: one row per line, or short rows end to end in a line.

Rows are packed when they are read, so packing changes neither the shards nor the order of samples
nor which samples form a step. A rank places all its rows of a step together, longest first, each
into the line with the least room for it. With that many rows, the short ones fill the lines to
within a few tokens. Micro-batches are these lines in order, so none has too many lines, whatever
the rows. The number of micro-batches differs from rank to rank; ranks agree on the largest one when
they exchange the step's loss denominators.

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
"""Samples of rows that `expected_lines` places."""
DEVIATIONS = 4.0
"""Standard deviations above the mean that `expected_lines` takes for the maximum. One step in
30,000 has more lines, and then one more micro-batch on every rank."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the rows of a micro-batch are; every line has one at its first column."""

    rows: IntArray | slice
    """[R] indices of rows of the step; -1 for a filling row, which has its own line."""
    starts: IntArray
    """[R] line x S + column of their first token, ascending."""


def place_in_order(rows: int, lines: int, length: int) -> list[Placement]:
    """One row per line, in order, in micro-batches of `lines`; rows: a multiple of `lines`."""
    starts = np.arange(lines) * length
    return [Placement(slice(first, first + lines), starts) for first in range(0, rows, lines)]


def place_packed(tokens: IntArray, lines: int, length: int) -> list[Placement]:
    """Short rows together, in micro-batches of `lines`, at least one.

    tokens: of each row [n], 0 for a skipped one.
    """
    read = np.flatnonzero(tokens)
    line, column, used = fit_rows(tokens[read], length)
    micro_batches = max(1, -(-used // lines))
    filling = np.arange(used, micro_batches * lines)
    rows = np.concatenate([read, np.full_like(filling, -1)])
    starts = np.concatenate([line * length + column, filling * length])
    order = np.argsort(starts)
    rows, starts = rows[order], starts[order]
    size = lines * length
    bounds = np.searchsorted(starts, np.arange(micro_batches + 1) * size).tolist()
    return [
        Placement(rows[first:stop], starts[first:stop] - number * size)
        for number, (first, stop) in enumerate(pairwise(bounds))
    ]


def fit_rows(tokens: IntArray, length: int) -> tuple[IntArray, IntArray, int]:
    """Line and column of each row [n], and the number of lines; tokens: of each [n], 1 to S."""
    return _best_fit(tokens, np.argsort(-tokens, kind="stable"), length)


def expected_lines(
    lengths: IntArray, weights: npt.NDArray[np.float64], rows: int, length: int
) -> tuple[float, int]:
    """Lines that `rows` rows need on average and, nearly always, at most; from a few samples.

    lengths: tokens of some rows; weights: how many rows each of them represents.
    """
    rng, shares = np.random.default_rng(0), weights / weights.sum()
    used = [fit_rows(rng.choice(lengths, rows, p=shares), length)[2] for _ in range(DRAWS)]
    return float(np.mean(used)), min(rows, int(np.mean(used) + DEVIATIONS * np.std(used)) + 1)


@numba.njit(cache=True, nogil=True)
def _best_fit(tokens: IntArray, order: IntArray, length: int) -> tuple[IntArray, IntArray, int]:
    """As `fit_rows`; order: the indices of the rows [n] by descending length.

    Lines with equal room form a stack: `last` [S + 1] is its top, `below` [n] the line under each.
    """
    line = np.empty_like(tokens)
    column = np.empty_like(tokens)
    last = np.full(length + 1, -1)
    below = np.empty_like(tokens)
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
            last[room] = below[chosen]
        line[row], column[row] = chosen, length - room
        left = room - tokens[row]
        below[chosen], last[left] = last[left], chosen
    return line, column, used
