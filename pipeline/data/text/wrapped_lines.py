"""Compiled code that finds hard-wrapped lines and joins them.

A buffer of clean text has LF after each paragraph, VT and FF for newlines that may be joined. Line
widths are in columns, as on a terminal: two for a wide character, none for a combining mark. Some
programs count characters instead, so a text is hard-wrapped if it is in either measure.

Some scripts have no spaces between words, so that the break of a line may be inside a word. Such
lines are joined without a space, and they are all about as long as the longest, whether or not
the text has blank lines.
"""

from __future__ import annotations

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
from pipeline.kernels.bits import EVERY_HIGH_BIT, EVERY_ONE, Bytes, Offsets, U, word_at

LF, VT, FF, CR, SPACE = 10, 11, 12, 13, 32
WORD = 8  # bytes of simple text tested and copied at once

SHORTEST_WRAPPED, LONGEST_WRAPPED = 40, 100  # columns or characters of a hard-wrapped line
MOST_BYTES = 8 * LONGEST_WRAPPED  # longer lines are not hard-wrapped
SHORTEST_SPACELESS = 24  # columns of a full line of a script without spaces
MIN_WRAPPED_LINES = 5  # in a document with blank lines, or without spaces
MIN_WRAPPED_LINES_UNMARKED = 20  # in a document without blank lines, where a list looks similar
COLUMNS, CHARACTERS, BYTES = 0, 1, 2  # measures of a line; BYTES if it is ASCII

# How lines are joined: not at all, where they are broken at spaces, where they are broken anywhere.
# A single break is at a space, or between wide or narrow characters of scripts without spaces.
APART, SPACED, TIGHT = 0, 1, 2
AT_SPACE, WIDE, NARROW = 0, 1, 2
# What is known of a document: where its line starts, where a soft hyphen was removed, and counts.
LINE, SOFT, BELOW, WRAPPED_LINES, BLANK_LINES, MARKS, INSIDE = range(7)


@numba.njit(cache=True, nogil=True)
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


@numba.njit(cache=True, nogil=True)
def break_kind(buffer: Bytes, end: int, after: Bytes, at: int) -> int:
    """AT_SPACE, WIDE or NARROW for a line that ends at `end` before the text at after[at]."""
    start = _last_character(buffer, end)
    left, right = _traits_at(buffer, start)[0], _traits_at(after, at)[0]
    if (left >> PULL_AFTER & 3) + (right >> PULL_BEFORE & 3) < TOUCH:
        return AT_SPACE
    return NARROW if left & NARROW_FLAG else WIDE


@numba.njit(cache=True, nogil=True)
def _last_character(buffer: Bytes, end: int) -> int:
    """Position of the last character of a line, or of the one before a space that may go."""
    start = end - 1
    if buffer[U(start)] == SPACE:
        start -= 1
    while buffer[U(start)] & 0xC0 == 0x80:
        start -= 1
    return start


@numba.njit(cache=True, nogil=True)
def _line_sizes(buffer: Bytes, line: int, end: int) -> tuple[int, int]:
    """Columns and characters of a line, counted until both exceed LONGEST_WRAPPED."""
    if end - line > MOST_BYTES:
        return end - line, end - line
    columns, characters, width, at = 0, 0, 1, line
    while at < end and (columns <= LONGEST_WRAPPED or characters <= LONGEST_WRAPPED):
        characters += 1
        if buffer[U(at)] < 0x80:
            columns += 1
            width = 1
            at += 1
            continue
        traits, size = _traits_at(buffer, at)
        if traits & COLUMNS_MASK:
            width = width if traits & COLUMNS_MASK == AS_BEFORE else traits & COLUMNS_MASK
            columns += width
        at += size
    return columns, characters


@numba.njit(cache=True, nogil=True)
def _size(buffer: Bytes, line: int, end: int, measure: int) -> int:
    """A line's size in one of the measures."""
    if measure == BYTES:
        return end - line
    columns, characters = _line_sizes(buffer, line, end)
    return columns if measure == COLUMNS else characters


@numba.njit(cache=True, nogil=True)
def _next_newline(buffer: Bytes, at: int, end: int, last: int) -> int:
    """Position of the first byte from LF to `last`, VT or FF at most, or `end`."""
    while at + WORD <= end and not _has_newline(word_at(buffer, at)):
        at += WORD
    while at < end and not LF <= buffer[U(at)] <= last:
        at += 1
    return at


@numba.njit(cache=True, nogil=True)
def end_line(
    source: Bytes, read: int, buffer: Bytes, write: int, blank: bool, wide: bool, known: Offsets
) -> int:
    """Write what separates a line from the text at `read`; returns the end.

    blank: whether blank lines do; wide: whether the line may be of other columns than bytes.
    """
    before, after = buffer[U(write - 1)], source[U(read)]
    torn, kind = False, AT_SPACE
    if before >= 0x80 or before == HYPHEN or after >= 0x80:
        torn = is_torn(buffer, write, after)
        kind = break_kind(buffer, write, source, read)
        known[INSIDE] += kind != AT_SPACE and _ends_in_letter(buffer, write)
    line, known[LINE] = known[LINE], write
    mark = VT if torn else LF
    if blank or _is_indented(source, read):
        known[BLANK_LINES] += 1
    elif kind == WIDE:
        mark = FF
    else:
        columns, characters = write - line, write - line
        if wide:
            columns, characters = _line_sizes(buffer, line, write)
        is_long = max(columns, characters) >= SHORTEST_WRAPPED
        known[BELOW] += 1
        known[WRAPPED_LINES] += is_long and min(columns, characters) <= LONGEST_WRAPPED
        mark = VT if torn or is_long else FF
        if known[SOFT] == write and is_letter(before) and is_letter(after):
            return write
        if kind == NARROW and _is_near_space(source, read):
            buffer[U(write)] = SPACE  # between phrases, if the lines are joined
            write += 1
    known[MARKS] += mark != LF
    buffer[U(write)] = mark
    known[LINE] = write + 1
    return write + 1


@numba.njit(cache=True, nogil=True)
def _is_indented(source: Bytes, at: int) -> bool:
    """True if U+3000 is before the text at `at`: it indents a paragraph."""
    return bool(source[at - 1] == 0x80 and source[at - 2] == 0x80 and source[at - 3] == 0xE3)


@numba.njit(cache=True, nogil=True)
def _is_near_space(source: Bytes, at: int) -> bool:
    """True if the newline before the text at `at` has a space before or after it."""
    while source[at - 1] == LF or source[at - 1] == CR:
        at -= 1
    return bool(source[at - 1] == SPACE)


@numba.njit(cache=True, nogil=True)
def is_wrapped(known: Offsets) -> bool:
    """True if a document with blank lines is hard-wrapped."""
    enough = known[BELOW] >= MIN_WRAPPED_LINES and known[WRAPPED_LINES] * 10 >= known[BELOW] * 7
    return bool(enough and known[BLANK_LINES] > 0)


@numba.njit(cache=True, nogil=True)
def mark_wrapped(
    buffer: Bytes, begin: int, end: int, first: int, tight: bool, is_ascii: bool, sizes: Offsets
) -> int:
    """Put a VT after each line to be joined if a text is hard-wrapped; returns how to join them.

    first: VT if newlines that may be joined are VT and FF, LF if any may be; tight: whether the
    text may be of a script without spaces; sizes: space for two histograms.
    """
    if tight:
        width, measure = _tight_width(buffer, begin, end, first, sizes)
        if width > 0:
            _mark_full_lines(buffer, begin, end, first, width, measure, True)
            return TIGHT
    if first == LF:
        for measure in range(BYTES, BYTES + 1) if is_ascii else range(COLUMNS, CHARACTERS + 1):
            width = _wrapped_width(buffer, begin, end, measure, sizes[0])
            if width > 0:
                _mark_full_lines(buffer, begin, end, first, width, measure, False)
                return SPACED
    return APART


@numba.njit(cache=True, nogil=True)
def _tight_width(
    buffer: Bytes, begin: int, end: int, first: int, sizes: Offsets
) -> tuple[int, int]:
    """Width and measure of a hard-wrapped text of a script without spaces; 0 if it is not one.

    Lines that end in punctuation say nothing, because whole paragraphs do. Of the others 80 % must
    be full, and hardly any line may be longer.
    """
    sizes[:] = 0
    last = LF if first == LF else FF
    lines, breaks, inside, line = 0, 0, 0, begin
    while line < end:
        at = _next_newline(buffer, line, end, last)
        if at < end and buffer[at] >= first:
            lines += 1
            if break_kind(buffer, at, buffer, at + 1) != AT_SPACE:
                breaks += 1
                if _ends_in_letter(buffer, at):
                    inside += 1
                    columns, characters = _line_sizes(buffer, line, at)
                    sizes[COLUMNS, min(columns, LONGEST_WRAPPED + 1)] += 1
                    sizes[CHARACTERS, min(characters, LONGEST_WRAPPED + 1)] += 1
        line = at + 1
    if inside < MIN_WRAPPED_LINES or breaks * 2 < lines or inside * 4 < breaks:
        return 0, COLUMNS
    for measure in range(COLUMNS, CHARACTERS + 1):
        width, seen = 0, sizes[measure, 0]
        while seen * 10 < inside * 9:
            width += 1
            seen += sizes[measure, width]
        if width << measure >= SHORTEST_SPACELESS and width <= LONGEST_WRAPPED:
            full, longer = _full_and_longer(buffer, begin, end, first, width, measure)
            if full * 10 >= inside * 8 and longer * 10 <= inside:
                return width, measure
    return 0, COLUMNS


@numba.njit(cache=True, nogil=True)
def _full_and_longer(
    buffer: Bytes, begin: int, end: int, first: int, width: int, measure: int
) -> tuple[int, int]:
    """Number of full lines that end in a letter, and of lines much longer than the width."""
    full, longer, line = 0, 0, begin
    while line < end:
        at = _next_newline(buffer, line, end, LF if first == LF else FF)
        longer += _size(buffer, line, at, measure) > width + 4
        is_inside = at < end and buffer[at] >= first and _ends_in_letter(buffer, at)
        if is_inside and break_kind(buffer, at, buffer, at + 1) != AT_SPACE:
            full += _is_full(buffer, line, at, end, width, measure, True)
        line = at + 1
    return full, longer


@numba.njit(cache=True, nogil=True)
def _ends_in_letter(buffer: Bytes, end: int) -> bool:
    """True if the character before `end` is a letter or mark of a script without spaces."""
    start = _last_character(buffer, end)
    return bool(_traits_at(buffer, start)[0] >> PULL_AFTER & 3 == PULL_OF_LETTER)


@numba.njit(cache=True, nogil=True)
def _wrapped_width(buffer: Bytes, begin: int, end: int, measure: int, histogram: Offsets) -> int:
    """The width of a hard-wrapped text without blank lines; 0 if the text is not hard-wrapped."""
    histogram[:] = 0
    lines, line = 0, begin
    while line < end:
        at, limit = line, line + (LONGEST_WRAPPED if measure == BYTES else MOST_BYTES)
        while at < end and at <= limit and buffer[U(at)] != LF:
            at += 1
        size = _size(buffer, line, at, measure)
        if size > LONGEST_WRAPPED:
            return 0
        if at < end:
            histogram[size] += 1
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
            full += _is_full(buffer, line, at, end, width, measure, False)
            line = at + 1
    return width if full * 10 >= wrapped * 7 else 0


@numba.njit(cache=True, nogil=True)
def _mark_full_lines(
    buffer: Bytes, begin: int, end: int, first: int, width: int, measure: int, tight: bool
) -> None:
    """Replace the newline after each full line by a VT."""
    last = LF if first == LF else FF
    line = begin
    for at in range(begin, end):
        if LF <= buffer[at] <= last:
            if buffer[at] >= first and _is_full(buffer, line, at, end, width, measure, tight):
                buffer[at] = VT
            line = at + 1


@numba.njit(cache=True, nogil=True)
def _is_full(
    buffer: Bytes, line: int, newline: int, end: int, width: int, measure: int, tight: bool
) -> bool:
    """True if a line is not short, and the next line's first word would exceed the width."""
    size = _size(buffer, line, newline, measure)
    if size < (width >> 1 if tight else SHORTEST_WRAPPED):
        return False
    kind = break_kind(buffer, newline, buffer, newline + 1)
    if tight and kind != AT_SPACE and size + (width // 6 if kind == NARROW else 4) >= width:
        return True
    stop = newline + 1
    while stop < end and buffer[stop] > SPACE:
        traits, length = _traits_at(buffer, stop)
        stop += length
        if traits >> PULL_BEFORE & 3 >= PULL_OF_LETTER and (tight or not traits & NARROW_FLAG):
            break
    word = _size(buffer, newline + 1, stop, measure)
    return size + (kind == AT_SPACE) + word > width


@numba.njit(cache=True, nogil=True)
def resolve_marks(buffer: Bytes, begin: int, end: int, joins: int) -> tuple[int, bool]:
    """Turn each VT and FF into a newline, or join the lines at a VT; returns the new end.

    A VT stays after the hyphen of a word that may be torn; also returns whether a word may be.
    """
    at, write, torn = begin, begin, False
    while at < end:
        if at + WORD <= end and not _has_newline(word_at(buffer, at)):
            copy_word(buffer, at, buffer, write)
            at += WORD
            write += WORD
            continue
        for _ in range(min(WORD, end - at)):
            byte = np.int64(buffer[U(at)])
            at += 1
            if byte == VT and joins != APART:
                if buffer[U(write - 1)] == SPACE:
                    continue
                if is_torn(buffer, write, buffer[U(at)]):
                    torn = True
                elif _touch(buffer, write, at, joins):
                    continue
                else:
                    byte = SPACE
            elif byte in (VT, FF):
                torn |= is_torn(buffer, write, buffer[U(at)])
                byte = LF
                write -= buffer[U(write - 1)] == SPACE
            buffer[U(write)] = byte
            write += 1
    return write, torn


@numba.njit(cache=True, nogil=True)
def _touch(buffer: Bytes, write: int, at: int, joins: int) -> bool:
    """True if no space belongs between the line that ends at `write` and the one at `at`."""
    hyphen = hyphen_before(buffer, write)
    if hyphen > 0:
        return bool(buffer[write - 1 - hyphen] != SPACE)
    kind = break_kind(buffer, write, buffer, at)
    return kind == WIDE or (kind == NARROW and joins == TIGHT)


@numba.njit(cache=True, nogil=True)
def copy_word(array: Bytes, at: int, to: Bytes, write: int) -> None:
    """Copy WORD bytes."""
    for k in range(U(WORD)):
        to[U(write) + k] = array[U(at) + k]


@numba.njit(cache=True, nogil=True)
def _has_newline(word: np.uint64) -> bool:
    """True if any of eight bytes is below 16: an LF, VT or FF in clean text."""
    return bool((word - (EVERY_ONE << U(4))) & ~word & EVERY_HIGH_BIT != U(0))
