"""Compiled code that finds hard-wrapped lines and joins them.

1. `end_line` puts a mark after each line and lists the line: LF if it is never joined to the next,
   VT if it is in a hard-wrapped text, FF if it only may be in one without spaces.
2. `join_lines` decides whether the text is hard-wrapped, and turns each mark into LF or joins the
   lines, until the joined text no longer looks wrapped, so that cleaning is idempotent.

Line widths are in columns, as on a terminal: two for a wide character, none for a combining mark.
Some programs count characters instead, so a text is hard-wrapped if it is in either measure.

Some scripts have no spaces between words, so that the break of a line may be inside a word. Such
lines are joined without a space, and they are all about as long as the longest, whether or not
the text has blank lines.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from pipeline.data.text.scripts import (
    AS_BEFORE,
    COLUMNS_MASK,
    LINE_TRAITS,
    NARROW_FLAG,
    PULL_AFTER,
    PULL_BEFORE,
    PULL_OF_LETTER,
    TOUCH,
)
from pipeline.data.text.torn_words import HYPHEN, hyphen_before, is_letter, is_torn
from pipeline.kernels.addresses import part
from pipeline.kernels.bits import (
    EVERY_HIGH_BIT,
    Bytes,
    Offsets,
    U,
    count_characters,
    move_bytes,
    word_at,
)

NUL, LF, VT, FF, CR, SPACE = 0, 10, 11, 12, 13, 32
WORD = 8  # bytes of simple text tested and copied at once

SHORTEST_WRAPPED, LONGEST_WRAPPED = 40, 100  # columns or characters of a hard-wrapped line
LONGER = 4  # a line this much wider than the others' width is a paragraph
MOST_BYTES = 8 * LONGEST_WRAPPED  # longer lines are not hard-wrapped
SHORTEST_SPACELESS = 24  # columns of a full line of a script without spaces
MIN_WRAPPED_LINES = 5  # in a document with blank lines, or without spaces
MIN_WRAPPED_LINES_UNMARKED = 20  # in a document without blank lines, where a list looks similar
COLUMNS, CHARACTERS = 0, 1  # measures of a line
MOST_COUNTED = 255  # columns or characters of a line

# How lines are joined: not at all, where they are broken at spaces, where they are broken anywhere.
# A single break is at a space, or between wide or narrow characters of scripts without spaces.
APART, SPACED, TIGHT = 0, 1, 2
AT_SPACE, WIDE, NARROW = 0, 1, 2
INSIDE = 4  # flag of WIDE and NARROW: after a letter, so that it may be inside a word
# What is counted in a document; also where its line starts, and where a soft hyphen was removed.
LINE, SOFT, BELOW, WRAPPED_LINES, BLANK_LINES, MARKS, INSIDE_WORDS, LINES = range(8)


class Lines(NamedTuple):
    """The lines of a document, listed so that its bytes are not searched for them again."""

    ends: Offsets
    """[lines] positions of their marks; a NUL ends the last."""
    breaks: Bytes
    """[lines] AT_SPACE, WIDE or NARROW, and INSIDE."""
    columns: Bytes
    """[lines] MOST_COUNTED at most."""
    characters: Bytes
    """[lines] MOST_COUNTED at most."""
    full: Bytes
    """[lines] 1 if a line is joined to the next in a hard-wrapped text."""
    counts: Offsets
    """[LINES + 1] counts of the whole document."""


def new_lines(size: int) -> Lines:
    """Space for the lines of a document of `size` bytes."""
    most = size // 2 + 2  # a line has a byte and a newline; the last may have no byte
    columns, characters, breaks, full = np.empty((4, most), np.uint8)
    ends, counts = np.empty(most, np.int64), np.empty(LINES + 1, np.int64)
    return Lines(ends, breaks, columns, characters, full, counts)


@numba.njit(cache=True, nogil=True, forceinline=True)
def _traits_at(buffer: Bytes, at: int) -> tuple[int, int]:
    """Traits and bytes of a character."""
    byte = np.int64(buffer[U(at)])
    if byte < 0x80:
        return 1, 1
    if byte < 0xE0:
        return np.int64(LINE_TRAITS[U((byte & 31) << 6 | buffer[U(at + 1)] & 63)]), 2
    code = np.int64(buffer[U(at + 1)] & 63) << 6 | np.int64(buffer[U(at + 2)] & 63)
    if byte < 0xF0:
        return np.int64(LINE_TRAITS[U((byte & 15) << 12 | code)]), 3
    plane = ((byte & 7) << 18 | code << 6) >> 16
    if plane == 2 or plane == 3:
        return 2 | PULL_OF_LETTER << PULL_AFTER | PULL_OF_LETTER << PULL_BEFORE, 4
    return 1 + (byte == 0xF0 and buffer[U(at + 1)] == 0x9F), 4  # emoji are wide


@numba.njit(cache=True, nogil=True, forceinline=True)
def _break_before(buffer: Bytes, end: int, after: Bytes, at: int) -> int:
    """AT_SPACE, WIDE or NARROW for a line that ends at `end` before the text at after[at]."""
    start = end - 1
    while buffer[U(start)] & 0xC0 == 0x80:
        start -= 1
    left, right = _traits_at(buffer, start)[0], _traits_at(after, at)[0]
    pull = left >> PULL_AFTER & 3
    if pull + (right >> PULL_BEFORE & 3) < TOUCH:
        return AT_SPACE
    return (NARROW if left & NARROW_FLAG else WIDE) | (INSIDE if pull == PULL_OF_LETTER else 0)


@numba.njit(cache=True, nogil=True, forceinline=True)
def _line_sizes(buffer: Bytes, line: int, end: int) -> tuple[int, int]:
    """Columns and characters of a line, counted until both are LONGER than any width."""
    if end - line > MOST_BYTES:
        return MOST_COUNTED, MOST_COUNTED
    enough = LONGEST_WRAPPED + LONGER
    columns, characters, width, at = 0, 0, 1, line
    while at < end and (columns <= enough or characters <= enough):
        if at + WORD <= end and word_at(buffer, at) & EVERY_HIGH_BIT == U(0):  # all ASCII
            columns += WORD
            characters += WORD
            width = 1
            at += WORD
            continue
        traits, size = _traits_at(buffer, at)
        if traits & COLUMNS_MASK:
            width = width if traits & COLUMNS_MASK == AS_BEFORE else traits & COLUMNS_MASK
            columns += width
        characters += 1
        at += size
    return min(columns, MOST_COUNTED), min(characters, MOST_COUNTED)


@numba.njit(cache=True, nogil=True, forceinline=True)
def end_line(
    source: Bytes, read: int, buffer: Bytes, write: int, blank: bool, wide: bool, lines: Lines
) -> int:
    """Write what separates a line from the text at `read`; returns the end.

    blank: whether blank lines do; wide: whether the line may be of other columns than bytes.
    """
    counts = lines.counts
    before, after = buffer[U(write - 1)], source[U(read)]
    torn, kind = False, AT_SPACE
    if before >= 0x80 or before == HYPHEN or after >= 0x80:
        torn = is_torn(buffer, write, after)
        kind = _break_before(buffer, write, source, read)
        counts[INSIDE_WORDS] += kind >= INSIDE
    line, counts[LINE] = counts[LINE], write
    mark = VT if torn else LF
    if blank or _is_indented(source, read):
        counts[BLANK_LINES] += 1
    elif kind & WIDE:
        mark = FF
    else:
        columns = characters = write - line
        if wide and SHORTEST_WRAPPED <= columns <= MOST_BYTES:  # no character has more columns
            columns = characters = count_characters(part(buffer, line, write))
            if not SHORTEST_WRAPPED <= characters <= LONGEST_WRAPPED:
                columns, characters = _line_sizes(buffer, line, write)
        is_long = max(columns, characters) >= SHORTEST_WRAPPED
        counts[BELOW] += 1
        counts[WRAPPED_LINES] += is_long and min(columns, characters) <= LONGEST_WRAPPED
        mark = VT if torn or is_long else FF
        if counts[SOFT] == write and is_letter(before) and is_letter(after):
            return write
        if kind & NARROW and _is_near_space(source, read):
            buffer[U(write)] = SPACE  # between phrases, if the lines are joined
            write += 1
    counts[MARKS] += mark != LF
    counts[LINE] = write + 1
    buffer[U(write)] = mark
    lines.ends[U(counts[LINES])], lines.breaks[U(counts[LINES])] = write, kind
    counts[LINES] += 1
    return write + 1


@numba.njit(cache=True, nogil=True, forceinline=True)
def _is_indented(source: Bytes, at: int) -> bool:
    """True if U+3000 is before the text at `at`: it indents a paragraph."""
    return bool(source[at - 1] == 0x80 and source[at - 2] == 0x80 and source[at - 3] == 0xE3)


@numba.njit(cache=True, nogil=True, forceinline=True)
def _is_near_space(source: Bytes, at: int) -> bool:
    """True if the newline before the text at `at` has a space before or after it."""
    while source[at - 1] == LF or source[at - 1] == CR:
        at -= 1
    return bool(source[at - 1] == SPACE)


@numba.njit(cache=True, nogil=True, forceinline=True)
def join_lines(buffer: Bytes, begin: int, end: int, lines: Lines) -> tuple[int, bool]:
    """Join the lines of a document that ends at `end` if it is hard-wrapped, and end it by a NUL.

    Returns the new end, and whether a word may be torn.
    """
    counts, torn = lines.counts, False
    buffer[U(end)], lines.ends[U(counts[LINES])] = NUL, end
    counts[LINES] += 1
    tight = counts[INSIDE_WORDS] >= MIN_WRAPPED_LINES
    first = VT if counts[MARKS] > 0 else LF
    while True:
        joins = APART
        if tight and _mark_full_lines(buffer, begin, first, lines, True):
            joins = TIGHT
        elif first == VT:
            below, wrapped = counts[BELOW], counts[WRAPPED_LINES]
            enough = below >= MIN_WRAPPED_LINES and wrapped * 10 >= below * 7
            joins = SPACED if enough and counts[BLANK_LINES] > 0 else APART
        elif _mark_full_lines(buffer, begin, LF, lines, False):
            joins = SPACED
        if first == LF and joins == APART:
            return lines.ends[U(counts[LINES] - 1)], torn
        torn |= _resolve_marks(buffer, begin, lines, joins)
        # Where every newline may be joined, the same lines are not looked at twice.
        tight &= joins != APART or counts[BLANK_LINES] > 0
        first = LF


@numba.njit(cache=True, nogil=True, forceinline=True)
def _mark_full_lines(buffer: Bytes, begin: int, first: int, lines: Lines, tight: bool) -> bool:
    """Put a VT after each line to be joined if a text is hard-wrapped; False if it is not.

    first: VT if newlines that may be joined are VT and FF, LF if any may be; tight: whether the
    text must be of a script without spaces, or else without blank lines. Of the former, lines that
    end in punctuation say nothing, because whole paragraphs do.
    """
    count = U(lines.counts[LINES])
    if tight:
        enough = _breaks_inside_words(buffer, first, lines)
    else:
        enough = count > MIN_WRAPPED_LINES_UNMARKED
    if not (enough and _measure_lines(buffer, begin, lines, tight)):
        return False
    for measure in range(COLUMNS, CHARACTERS + 1):
        width, wrapped = _width(buffer, first, lines, measure, tight)
        if width > 0 and _find_full_lines(buffer, first, lines, width, measure, tight, wrapped):
            for index in range(count):
                if lines.full[index]:
                    buffer[U(lines.ends[index])] = VT
            return True
    return False


@numba.njit(cache=True, nogil=True, forceinline=True)
def _breaks_inside_words(buffer: Bytes, first: int, lines: Lines) -> bool:
    """True if enough newlines, from the mark `first` on, may be inside words."""
    newlines, breaks, inside = 0, 0, 0
    for index in range(U(lines.counts[LINES])):
        if buffer[U(lines.ends[index])] >= first:
            newlines += 1
            breaks += lines.breaks[index] != AT_SPACE
            inside += lines.breaks[index] >= INSIDE
    return bool(inside >= MIN_WRAPPED_LINES and breaks * 2 >= newlines and inside * 4 >= breaks)


@numba.njit(cache=True, nogil=True, forceinline=True)
def _measure_lines(buffer: Bytes, begin: int, lines: Lines, tight: bool) -> bool:
    """Set the sizes of the lines; False if a line is too long for a text that is not `tight`."""
    line = begin
    for index in range(U(lines.counts[LINES])):
        end = lines.ends[index]
        columns, characters = _line_sizes(buffer, line, end)
        if not tight and min(columns, characters) > LONGEST_WRAPPED:
            return False
        lines.columns[index], lines.characters[index] = columns, characters
        line = end + 1
    return True


@numba.njit(cache=True, nogil=True, forceinline=True)
def _width(buffer: Bytes, first: int, lines: Lines, measure: int, tight: bool) -> tuple[int, int]:
    """The size that 90 % of the lines in question do not exceed, and the number of these lines.

    A size of 0 says that the text is not hard-wrapped.
    """
    counted = np.zeros(MOST_COUNTED + 1, np.int64)
    sizes = lines.columns if measure == COLUMNS else lines.characters
    for index in range(U(lines.counts[LINES])):
        size = sizes[index]
        if size > LONGEST_WRAPPED and not tight:
            return 0, 0
        if buffer[U(lines.ends[index])] >= first and (not tight or lines.breaks[index] >= INSIDE):
            counted[size] += 1
    width = 0 if tight else SHORTEST_WRAPPED
    wrapped, seen = counted[width:].sum(), counted[width]
    while seen * 10 < wrapped * 9:
        width += 1
        seen += counted[width]
    if tight:
        enough = width << measure >= SHORTEST_SPACELESS and width <= LONGEST_WRAPPED
    else:
        enough = wrapped * 10 >= (lines.counts[LINES] - 1) * 7
    return width if enough else 0, wrapped


@numba.njit(cache=True, nogil=True, forceinline=True)
def _find_full_lines(
    buffer: Bytes, first: int, lines: Lines, width: int, measure: int, tight: bool, wrapped: int
) -> bool:
    """Set `lines.full`; True if enough of the `wrapped` lines are full.

    Of a text without spaces, also hardly any line may be much longer than the width.
    """
    sizes = lines.columns if measure == COLUMNS else lines.characters
    full, longer = 0, 0
    for index in range(U(lines.counts[LINES])):
        size, kind = np.int64(sizes[index]), np.int64(lines.breaks[index])
        longer += size > width + LONGER
        end = lines.ends[index]
        is_full = buffer[U(end)] >= first and _is_full(
            buffer, size, kind, end + 1, width, measure, tight
        )
        lines.full[index] = is_full
        full += is_full and (not tight or kind >= INSIDE)
    if tight:
        return bool(full * 10 >= wrapped * 8 and longer * 10 <= wrapped)
    return bool(full * 10 >= wrapped * 7)


@numba.njit(cache=True, nogil=True, forceinline=True)
def _is_full(
    buffer: Bytes, size: int, kind: int, after: int, width: int, measure: int, tight: bool
) -> bool:
    """True if a line is not short, and the next line's first word would exceed the width.

    size, kind: of the line and its break; after: where the next line starts.
    """
    if size < (width >> 1 if tight else SHORTEST_WRAPPED):
        return False
    if tight and kind != AT_SPACE and size + (width // 6 if kind & NARROW else 4) >= width:
        return True
    free = width - size - (kind == AT_SPACE)
    stop = after
    while buffer[U(stop)] > SPACE:
        traits, length = _traits_at(buffer, stop)
        stop += length
        if traits >> PULL_BEFORE & 3 >= PULL_OF_LETTER and (tight or not traits & NARROW_FLAG):
            break
    if stop - after <= free:  # no character has more columns than bytes
        return False
    columns, characters = _line_sizes(buffer, after, stop)
    return (columns if measure == COLUMNS else characters) > free


@numba.njit(cache=True, nogil=True, forceinline=True)
def _resolve_marks(buffer: Bytes, begin: int, lines: Lines, joins: int) -> bool:
    """Turn each VT and FF into a newline, or join the lines at a VT.

    A VT stays after the hyphen of a word that may be torn; returns whether a word may be.
    """
    write, start, kept, torn = begin, begin, 0, False
    for index in range(U(lines.counts[LINES])):
        end = lines.ends[index]
        mark = np.int64(buffer[U(end)])
        write = move_bytes(buffer, start, end, write)
        start = end + 1
        if mark >= VT:
            maybe_torn = is_torn(buffer, write, buffer[U(start)])
            torn |= maybe_torn
            has_space = buffer[U(write - 1)] == SPACE
            if mark == FF or joins == APART:
                mark = LF
                write -= has_space
            elif has_space:
                continue
            elif not maybe_torn:
                if _touch(buffer, write, lines.breaks[index], joins):
                    continue
                mark = SPACE
        if mark <= LF:
            lines.ends[U(kept)] = write
            lines.breaks[U(kept)] = lines.breaks[index]
            kept += 1
        buffer[U(write)] = mark
        write += 1
    lines.counts[LINES] = kept
    return torn


@numba.njit(cache=True, nogil=True, forceinline=True)
def _touch(buffer: Bytes, write: int, kind: int, joins: int) -> bool:
    """True if no space belongs after a line that ends at `write` in a break of this kind."""
    hyphen = hyphen_before(buffer, write)
    if hyphen > 0:
        return bool(buffer[write - 1 - hyphen] != SPACE)
    return bool(kind & WIDE or (kind & NARROW and joins == TIGHT))
