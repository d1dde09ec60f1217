"""Document texts to one buffer of clean UTF-8.

The result is in Unicode form NFC, with single spaces between words, a single newline between
paragraphs, no leading or trailing white space, and no control or invisible formatting characters:

* CR LF, CR, VT, FF, NEL, U+2028 and U+2029 end a line like LF; runs of newlines become one.
* Tab, no-break space and every other Unicode space become a space; runs become one, and spaces at
  either end of a line are removed.
* Removed: other C0 and C1 controls, DEL, and what `characters.py` lists as invisible.
* Hard-wrapped lines are joined. A document with blank lines is hard-wrapped if at least 5 of its
  lines have another line right below, and 70 % of these have 40 to 100 columns. Then a line of 40
  or more columns is joined to the line right below it; shorter lines, such as headings and most
  verse, are not. U+3000 at the start of a line separates paragraphs as a blank line does.
  A document without blank lines is hard-wrapped if all its lines (20 or more) have at most 100
  columns, 70 % have 40 to 100, and 70 % of these are full: with the next line's first word they
  would exceed the width, which is the length that 90 % of them do not exceed. Then full lines are
  joined.
  A document of a script without spaces is hard-wrapped, with and without blank lines, if 80 % of
  the lines that end in a letter (5 or more) are about as wide as the widest, 24 to 100 columns.
  Then full lines are joined, without a space between characters of such scripts.
* Words split at the end of a line become whole, see `torn_words.py`; a soft hyphen there
  always joins. Other hyphens that have no space before them stay, and no space follows.

Cleaning is idempotent. It removes every NUL byte, so a NUL can end each document.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt

from pipeline.data.text.torn_words import whole_words
from pipeline.data.text.wrapped_lines import (
    LF,
    LINE,
    SOFT,
    SPACE,
    WORD,
    Lines,
    end_line,
    join_lines,
    new_lines,
)
from pipeline.kernels.addresses import part
from pipeline.kernels.bits import (
    EVERY_HIGH_BIT,
    EVERY_ONE,
    Bytes,
    Offsets,
    U,
    equal_bytes,
    put_word,
    word_at,
)
from pipeline.kernels.characters import INVISIBLE, SPACES

CLEANING_VERSION = 2
"""Part of every shard's fingerprint: increase it when the same text is cleaned differently."""

TAB, CR = 9, 13

# The kind of character that a byte starts. SPECIAL may start a space or a removed character.
# UNSURE is plain, but the document needs a check for NFC.
PLAIN, WHITE, NEWLINE, REMOVED, SPECIAL, UNSURE = 0, 1, 2, 3, 4, 5
# White space since the last byte written.
NONE, ONE_SPACE, ONE_NEWLINE, BLANK_LINE, NOTHING_YET = 0, 1, 2, 3, 4

# First bytes of characters, as ranges. Of U+00C0-02FF, U+0400-047F and U+4000-9FFF no character
# changes under NFC by itself or composes with the one before it.
PLAIN_LEADS = ((0xC3, 0xCB), (0xD0, 0xD1), (0xE4, 0xE9))
# U+0080-00BF, U+0340-037F, U+0600-063F, U+1000-3FFF, U+F000-FFFF
SPECIAL_LEADS = ((0xC2, 0xC2), (0xCD, 0xCD), (0xD8, 0xD8), (0xE1, 0xE3), (0xEF, 0xEF))

LONGEST_MARKS = 1000  # combining marks in a row that `unicodedata` is given in any order

EVERY_SPACE = U(0x2020202020202020)


@dataclass(frozen=True, slots=True)
class CleanText:
    """Cleaned documents in one buffer, each followed by one NUL byte."""

    buffer: Bytes
    """UTF-8."""
    offsets: Offsets
    """n + 1 positions: document i is `buffer[offsets[i] : offsets[i + 1] - 1]`."""
    raw_bytes: Offsets
    """[n] bytes of each document before it was cleaned."""

    def texts(self) -> list[str]:
        """The documents as strings."""
        return [self.document(index) for index in range(len(self.raw_bytes))]

    def document(self, index: int) -> str:
        """One of the documents."""
        start, stop = self.offsets[index : index + 2]
        return self.buffer[start : stop - 1].tobytes().decode()


def clean(texts: list[str]) -> CleanText:
    """Clean documents; one of white space alone gets length zero. Never fails.

    A lone surrogate, which UTF-8 cannot encode, becomes "?".
    """
    cleaned, unsure = _clean_all([text.encode(errors="replace") for text in texts])
    buffer, offsets = cleaned.buffer, cleaned.offsets
    changed = {}
    for index in np.flatnonzero(unsure).tolist():
        document = buffer[offsets[index] : offsets[index + 1] - 1].tobytes()
        settled = _settle(document)
        if settled is not document:
            changed[index] = settled
    return replace_documents(cleaned, changed) if changed else cleaned


def _settle(document: bytes) -> bytes:
    """Put one cleaned document in NFC with whole words, and clean it until nothing changes."""
    while True:
        text = with_sorted_marks(document.decode())
        settled = whole_words(unicodedata.normalize("NFC", text))
        if settled == text:
            return document
        document = _clean_all([settled.encode()])[0].buffer[:-1].tobytes()


def with_sorted_marks(text: str) -> str:
    """The text with each run of more than LONGEST_MARKS combining marks in canonical order.

    NFC of both is the same. `unicodedata` sorts a run that is not sorted in quadratic time.
    """
    parts, kept_to = [], 0
    # A long run covers one of these positions.
    for at in range(LONGEST_MARKS, len(text), LONGEST_MARKS):
        if at < kept_to or not _is_mark(text[at]):
            continue
        start, stop = at, at + 1
        while start > kept_to and _is_mark(text[start - 1]):
            start -= 1
        while stop < len(text) and _is_mark(text[stop]):
            stop += 1
        if stop - start > LONGEST_MARKS:
            marks = "".join(unicodedata.normalize("NFD", mark) for mark in text[start:stop])
            parts += [text[kept_to:start], *sorted(marks, key=unicodedata.combining)]
            kept_to = stop
    return "".join([*parts, text[kept_to:]]) if parts else text


def _is_mark(character: str) -> bool:
    """True if a character only combines with others; some that are said to start do not."""
    return unicodedata.combining(unicodedata.normalize("NFD", character)[0]) != 0


def replace_documents(cleaned: CleanText, changed: dict[int, bytes]) -> CleanText:
    """Replace the documents in `changed`, by index."""
    start, stop = cleaned.offsets[:-1].tolist(), (cleaned.offsets[1:] - 1).tolist()
    documents = [
        changed[i] if i in changed else cleaned.buffer[start[i] : stop[i]].tobytes()
        for i in range(len(start))
    ]
    offsets = np.zeros(len(documents) + 1, np.int64)
    np.cumsum([len(document) + 1 for document in documents], out=offsets[1:])
    joined = np.frombuffer(bytearray(b"\0".join([*documents, b""])), np.uint8)
    return CleanText(joined, offsets, cleaned.raw_bytes)


def _clean_all(encoded: list[bytes]) -> tuple[CleanText, npt.NDArray[np.bool_]]:
    """Run the kernel on UTF-8; also returns which documents need a check for NFC."""
    source_offsets = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)), out=source_offsets[1:])
    source = np.frombuffer(b"".join(encoded), np.uint8)
    buffer = np.empty(source.size + len(encoded), np.uint8)  # no rule lengthens a text
    offsets = np.zeros(len(encoded) + 1, np.int64)
    unsure = np.zeros(len(encoded), np.bool_)
    lines = new_lines(max(map(len, encoded), default=0))
    size = _clean_documents(source, source_offsets, buffer, offsets, unsure, lines)
    return CleanText(buffer[:size], offsets, np.diff(source_offsets)), unsure


def _byte_kinds() -> Bytes:
    """Kind of each byte that can start a character; continuation bytes are plain."""
    kinds = np.full(256, PLAIN, np.uint8)
    kinds[:SPACE] = REMOVED
    kinds[127] = REMOVED
    kinds[[TAB, SPACE]] = WHITE
    kinds[LF : CR + 1] = NEWLINE
    kinds[0xC0:] = UNSURE
    for leads, kind in ((PLAIN_LEADS, PLAIN), (SPECIAL_LEADS, SPECIAL)):
        for first, last in leads:
            kinds[first : last + 1] = kind
    return kinds


def _character_kinds() -> Bytes:
    """Kind of each code point below 65,536 that a SPECIAL byte starts."""
    kinds = np.full(1 << 16, UNSURE, np.uint8)
    kinds[0xA0:0xC0] = kinds[0x2000:0x2040] = PLAIN
    kinds[0x80:0xA0] = REMOVED
    kinds[list(SPACES)] = WHITE
    kinds[[0x85, 0x2028, 0x2029]] = NEWLINE
    for ranges in INVISIBLE.values():
        for first, last in ranges:
            kinds[first : last + 1] = REMOVED
    return kinds


BYTE_KINDS = _byte_kinds()
_CHARACTER_KINDS = _character_kinds()


@numba.njit(cache=True, nogil=True)
def _clean_documents(
    source: Bytes,
    source_offsets: Offsets,
    buffer: Bytes,
    offsets: Offsets,
    unsure: npt.NDArray[np.bool_],
    lines: Lines,
) -> int:
    """Write every document and its NUL; fills `offsets` and `unsure`, returns bytes written."""
    # Parts of an array have no references to count, by locked instructions, at every call.
    source, buffer = part(source, 0, source.size), part(buffer, 0, buffer.size)
    lines = Lines(
        part(lines.ends, 0, lines.ends.size),
        part(lines.breaks, 0, lines.breaks.size),
        part(lines.columns, 0, lines.columns.size),
        part(lines.characters, 0, lines.characters.size),
        part(lines.full, 0, lines.full.size),
        part(lines.counts, 0, lines.counts.size),
    )
    end = 0
    for i in range(offsets.size - 1):
        begin = end
        end, unsure[i] = _clean_document(
            source, source_offsets[i], source_offsets[i + 1], buffer, begin, lines
        )
        end, torn = join_lines(buffer, begin, end, lines)
        unsure[i] |= torn
        end += 1
        offsets[i + 1] = end
    return end


@numba.njit(cache=True, nogil=True, forceinline=True)
def _clean_document(
    source: Bytes, start: int, stop: int, buffer: Bytes, begin: int, lines: Lines
) -> tuple[int, bool]:
    """Clean one document to `buffer[begin:end]` and list its lines, except for the last.

    Returns end, whether it has characters that NFC may change.
    """
    lines.counts[:] = 0
    lines.counts[LINE], lines.counts[SOFT] = begin, -1
    read, write = start, begin
    pending, unsure, bits = NOTHING_YET, False, U(0)
    while read < stop:
        if pending == NONE and read + WORD < stop:
            word = word_at(source, read)
            simple = _simple_bytes(word, unsure)
            if simple > 0:
                put_word(buffer, write, word)  # excess bytes are overwritten
                bits |= word
                read += simple
                write += simple
                # A space at the end stays if a plain byte follows it. `&` makes it one branch that
                # is nearly always predicted; whether a space is at the end cannot be.
                if (source[U(read - 1)] == SPACE) & (BYTE_KINDS[source[U(read)]] != PLAIN):
                    write -= 1
                    pending = ONE_SPACE
                if simple == WORD:
                    continue
        byte = source[U(read)]
        kind = BYTE_KINDS[byte]
        width = 1
        if kind == SPECIAL:
            kind, width = _special(source, read)
        if kind == UNSURE:
            unsure = True
            kind = PLAIN
        if kind == PLAIN:
            if pending != NONE:
                if pending == ONE_SPACE:
                    buffer[U(write)] = SPACE
                    write += 1
                elif pending != NOTHING_YET:
                    is_blank, wide = pending == BLANK_LINE, bits & EVERY_HIGH_BIT != U(0)
                    write = end_line(source, read, buffer, write, is_blank, wide, lines)
                    bits = U(0)
                pending = NONE
            buffer[U(write)] = byte
            bits |= U(byte)
            write += 1
        elif kind == WHITE:
            if pending == NONE:
                pending = ONE_SPACE
        elif kind == NEWLINE:
            if byte == CR and read + 1 < stop and source[read + 1] == LF:
                width = 2
            if pending <= ONE_SPACE:
                pending = ONE_NEWLINE
            elif pending == ONE_NEWLINE:
                pending = BLANK_LINE
        elif byte == 0xC2 and pending == NONE and source[read + 1] == 0xAD:
            lines.counts[SOFT] = write
        read += width
    return write, unsure


@numba.njit(cache=True, nogil=True, forceinline=True)
def _simple_bytes(word: np.uint64, unsure: bool) -> int:
    """Number of leading bytes of a word that are copied as they are.

    These are printable ASCII without two spaces in a row, and bytes of plain characters; if the
    document is unsure already, also of unsure ones.
    """
    # Flags control characters (borrow) and 127 (carry). A borrow or carry only changes bytes above
    # a flagged one, and only the lowest flag counts.
    odd = ((word - EVERY_SPACE) | (word + EVERY_ONE)) & ~word & EVERY_HIGH_BIT
    space = equal_bytes(word, EVERY_SPACE)
    odd |= space & (space << U(8))
    leads = word & (word << U(1)) & EVERY_HIGH_BIT  # bytes that start characters beyond ASCII
    if leads != U(0):
        low = word & ~EVERY_HIGH_BIT
        if unsure:
            odd |= leads & _in_ranges(low, SPECIAL_LEADS)
        else:
            odd |= leads & ~_in_ranges(low, PLAIN_LEADS)
    if odd == U(0):
        return WORD
    lowest_odd = odd & (~odd + U(1))  # 2 ** (8 k + 7): the product's top byte is k
    simple: int = np.int64(((lowest_odd >> U(7)) * U(0x0001020304050607)) >> U(56))
    return simple


@numba.njit(cache=True, nogil=True, forceinline=True)
def _in_ranges(low: np.uint64, ranges: tuple[tuple[int, int], ...]) -> np.uint64:
    """High bit of each byte in one of the ranges, all above 127; low: bytes without high bits."""
    flags: np.uint64 = U(0)
    for first, last in ranges:
        flags |= (low + EVERY_ONE * U(0x100 - first)) & ~(low + EVERY_ONE * U(0xFF - last))
    return flags


@numba.njit(cache=True, nogil=True, forceinline=True)
def _special(source: Bytes, at: int) -> tuple[int, int]:
    """Kind and width in bytes of the character at a SPECIAL lead byte; 1 if it is kept."""
    if source[U(at)] == 0xD8 and source[U(at + 1)] != 0x9C:  # most Arabic letters
        return UNSURE, 1
    lead, code, width = source[U(at)], np.int64(source[U(at + 1)]) & 63, 2
    if lead < 0xE0:
        code |= np.int64(lead & 31) << 6
    else:
        code, width = np.int64(lead & 15) << 12 | code << 6 | source[U(at + 2)] & 63, 3
    kind = np.int64(_CHARACTER_KINDS[U(code)])
    return kind, width if WHITE <= kind <= REMOVED else 1
