"""Compiled code that finds hard-wrapped lines in clean text without blank lines."""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

from pipeline.kernels.bits import Bytes

Offsets = npt.NDArray[np.int64]

LF, VT, SPACE = 10, 11, 32
SHORTEST_WRAPPED, LONGEST_WRAPPED = 40, 100  # bytes in a hard-wrapped line
MIN_WRAPPED_LINES_UNMARKED = 20  # in a document without blank lines, where a list looks similar


@numba.njit(cache=True, nogil=True)
def wrapped_width(buffer: Bytes, begin: int, end: int, histogram: Offsets) -> int:
    """The width of a hard-wrapped text without blank lines; 0 if the text is not hard-wrapped."""
    histogram[:] = 0
    lines, line = 0, begin
    for at in range(begin, end + 1):
        if at - line > LONGEST_WRAPPED:
            return 0
        if at < end and buffer[at] == LF:
            histogram[at - line] += 1
            lines += 1
            line = at + 1
    wrapped = histogram[SHORTEST_WRAPPED:].sum()
    if lines < MIN_WRAPPED_LINES_UNMARKED or wrapped * 10 < lines * 7:
        return 0
    width, seen = SHORTEST_WRAPPED, histogram[SHORTEST_WRAPPED]
    while seen * 10 < wrapped * 9:
        width += 1
        seen += histogram[width]
    full, line = 0, begin
    for at in range(begin, end):
        if buffer[at] == LF:
            full += _is_full(buffer, line, at, end, width)
            line = at + 1
    return width if full * 10 >= wrapped * 7 else 0


@numba.njit(cache=True, nogil=True)
def mark_full_lines(buffer: Bytes, begin: int, end: int, width: int) -> None:
    """Replace the newline after each full line by a VT."""
    line = begin
    for at in range(begin, end):
        if buffer[at] == LF:
            if _is_full(buffer, line, at, end, width):
                buffer[at] = VT
            line = at + 1


@numba.njit(cache=True, nogil=True)
def _is_full(buffer: Bytes, line: int, newline: int, end: int, width: int) -> bool:
    """True if a line is not short, and the next line's first word would exceed the width."""
    stop = newline + 1
    while stop < end and buffer[stop] != SPACE and buffer[stop] != LF:
        stop += 1
    return newline - line >= SHORTEST_WRAPPED and stop - line > width
