"""A table of words seen: text is split into words, words get numbers, and numbers have ids.

A word of up to 8 bytes is its own tag (text has no NUL). The tag of a longer word is a hash whose
top byte is 0xFF, which never occurs in UTF-8; its bytes are compared too.
"""

from __future__ import annotations

import string
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from pipeline.data.tokenizers.token_ids import Ids, Unknown
from pipeline.kernels.bits import (
    EVERY_BIT,
    EVERY_HIGH_BIT,
    EVERY_ONE,
    GOLDEN,
    Bytes,
    U,
    mix,
    trailing_zeros,
    word_at,
)
from pipeline.kernels.characters import decode_character

UNSEEN, SPACE, PART, APART, UNSURE = range(5)
"""Kinds of characters: not seen yet, separates words, part of a word, a word, none of these."""
_SLOTS = 1 << 20
_MOST_TAGGED = _SLOTS * 7 // 10  # later words are not looked up again
_LETTERS = np.frombuffer(string.ascii_letters.encode(), np.uint8)
TO_ENCODE = -1
"""Count of a word that has no ids yet."""

Numbers = npt.NDArray[np.int64]


class WordTable(NamedTuple):
    """Words seen, with their ids; arrays have spare room at the end."""

    tags: npt.NDArray[np.uint64]
    numbers: npt.NDArray[np.int32]
    """[slots] number of the word with the tag, -1: empty slot."""
    used: Numbers
    """[3] used words, bytes and ids."""
    starts: Numbers
    """[words + 1] positions in `text`."""
    text: Bytes
    id_starts: Numbers
    counts: npt.NDArray[np.int32]
    """[words] number of ids, or TO_ENCODE."""
    unknown: npt.NDArray[np.int32]
    """[words] characters that unknown tokens stand for."""
    ids: npt.NDArray[np.int32]

    @classmethod
    def empty(cls) -> WordTable:
        numbers, none = np.full(_SLOTS, -1, np.int32), np.empty(0, np.int32)
        starts, text = np.zeros(1, np.int64), np.empty(0, np.uint8)
        used = np.zeros(3, np.int64)
        return cls(
            np.zeros(_SLOTS, np.uint64), numbers, used, starts, text, starts.copy(), none, none,
            none,
        )  # fmt: skip

    @property
    def words(self) -> int:
        return int(self.used[0])

    @property
    def bytes(self) -> int:
        return int(self.used[1])

    def with_room(self, size: int) -> WordTable:
        """The table with room for `size` bytes of new words; untouched pages cost no memory."""
        words, written, ids = self.used.tolist()
        if len(self.counts) >= words + size and len(self.text) >= written + size + 8:
            return self._replace(ids=_grown(self.ids, ids, size * 6))
        return self._replace(
            starts=_grown(self.starts, words + 1, size),
            text=_grown(self.text, written, size + 8),
            id_starts=_grown(self.id_starts, words, size),
            counts=_grown(self.counts, words, size),
            unknown=_grown(self.unknown, words, size),
            ids=_grown(self.ids, ids, size * 6),
        )

    def spelling(self, word: int) -> Bytes:
        """The bytes of a word."""
        return self.text[self.starts[word] : self.starts[word + 1]]

    def give(self, word: int, ids: Ids, unknown: int) -> None:
        """Set the ids of a word, and the characters that unknown ones stand for."""
        end = int(self.used[2]) + len(ids)
        assert end <= len(self.ids)
        self.ids[self.used[2] : end] = ids
        self.id_starts[word], self.counts[word] = self.used[2], len(ids)
        self.unknown[word] = unknown
        self.used[2] = end


class FoundWords(NamedTuple):
    """The words of a batch."""

    words: npt.NDArray[np.int32]
    """[words] numbers in the table, in text order."""
    document_offsets: Numbers
    """[documents + 1] positions in `words`."""
    sentence_words: Numbers
    """[sentences] index in `words` of the word where each starts; -1 if no word follows."""
    inside: Numbers
    """[n, 4] sentences that start inside a word: number, position, start and end of the word."""
    unsure: npt.NDArray[np.bool_]
    """[documents] those that `tokenizers` has to encode."""


def _grown(array: npt.NDArray[Any], used: int, more: int) -> npt.NDArray[Any]:
    if len(array) >= used + more:
        return array
    longer = np.empty(used + 2 * more, array.dtype)
    longer[:used] = array[:used]
    return longer


def find_unseen(buffer: Bytes, offsets: Numbers, kinds: Bytes) -> Numbers:
    """Distinct characters in `buffer` whose kind is UNSEEN, from the first 4,096 occurrences."""
    found: Numbers = _unseen(buffer, offsets[0], offsets[-1], kinds)
    return np.unique(found)


def look_up_words(
    buffer: Bytes, offsets: Numbers, sentences: Numbers, kinds: Bytes, table: WordTable
) -> FoundWords:
    """Split documents into words and look up their numbers; new words are added to `table`."""
    size = int(offsets[-1] - offsets[0])
    padded = np.append(buffer, np.zeros(8, np.uint8))  # word_at reads eight bytes anywhere
    words = np.empty(size, np.int32)
    document_offsets = np.zeros(len(offsets), np.int64)
    sentence_words = np.full(len(sentences), -1, np.int64)
    inside = np.empty((len(sentences), 4), np.int64)
    unsure = np.zeros(len(offsets) - 1, np.bool_)
    used, within = _find_words(
        padded, offsets, sentences, kinds, bool((kinds[_LETTERS] == PART).all()), table, words,
        document_offsets, sentence_words, inside, unsure,
    )  # fmt: skip
    return FoundWords(words[:used], document_offsets, sentence_words, inside[:within], unsure)


def write_ids(
    found: FoundWords,
    table: WordTable,
    inside: Numbers,
    unk: int,
    kind: type[np.unsignedinteger[Any]],
) -> tuple[Ids, Numbers, Numbers, Unknown]:
    """Ids of type `kind`, [documents + 1] offsets into them, sentence starts, and what is unknown.

    inside: [n] for each of `found.inside`, the token of the word at which it starts; unk: the
    unknown id. A document with a word without ids becomes unsure, since white space next to it
    may be lost.
    """
    size = int(table.counts[found.words].sum())
    ids = np.empty(size, kind)
    offsets = np.zeros(len(found.document_offsets), np.int64)
    starts = np.empty(len(found.sentence_words), np.int64)
    shifts = np.zeros(len(found.sentence_words), np.int64)
    shifts[found.inside[:, 0]] = inside
    unknown = np.zeros((len(offsets) - 1, 2), np.int64)
    used = _write_ids(found, table, shifts, unk, ids, offsets, starts, unknown)
    return ids, offsets, starts[:used], unknown


@numba.njit(cache=True, nogil=True)
def _unseen(buffer, place, end, kinds):  # type: ignore[no-untyped-def]
    """Code points of buffer[place:end] whose kind, uint8 [0x110000], is UNSEEN; at most 4,096."""
    found = np.empty(4096, np.int64)
    count = 0
    while place < end and count < len(found):
        if place + 8 <= end and word_at(buffer, place) & EVERY_HIGH_BIT == U(0):
            place += 8
        elif buffer[place] < 0x80:
            place += 1
        else:
            code, length = decode_character(buffer, place)
            if kinds[code] == UNSEEN and (count == 0 or found[count - 1] != code):
                found[count] = code
                count += 1
            place += length
    return found[:count]


@numba.njit(cache=True, nogil=True)
def _after_letters(buffer, place):  # type: ignore[no-untyped-def]
    """Position of the first byte from `place` on that is not an ASCII letter.

    Reads eight bytes at a time: a branch for each byte would be mispredicted at the end of a word.
    """
    while True:
        found = word_at(buffer, place)
        low = (found | EVERY_ONE << U(5)) & ~EVERY_HIGH_BIT  # lower case
        from_a = low + EVERY_ONE * U(0x80 - 97)
        after_z = low + EVERY_ONE * U(0x80 - 123)
        others = (~from_a | after_z | found) & EVERY_HIGH_BIT
        if others != U(0):
            return place + np.int64(trailing_zeros(others) >> U(3))
        place += 8


@numba.njit(cache=True, nogil=True)
def _same(text, place, buffer, begin, size):  # type: ignore[no-untyped-def]
    """True if `size` bytes at text[place] and buffer[begin] are equal."""
    index = 0
    while index < size and text[U(place + index)] == buffer[U(begin + index)]:
        index += 1
    return index == size


@numba.njit(cache=True, nogil=True, inline="always")
def _tag(buffer, begin, size):  # type: ignore[no-untyped-def]
    """A tag of buffer[begin : begin + size]; unique up to 8 bytes, nearly unique beyond."""
    tag = word_at(buffer, begin)
    if size <= 8:
        return tag & (EVERY_BIT >> U(64 - 8 * size))
    tag ^= U(size) * GOLDEN
    place = begin + 8
    while place + 8 < begin + size:
        tag = mix(tag ^ word_at(buffer, place))
        place += 8
    # the last eight bytes, which may overlap those before
    return mix(tag ^ word_at(buffer, begin + size - 8)) | U(0xFF) << U(56)


@numba.njit(cache=True, nogil=True)
def _add(buffer, begin, size, table):  # type: ignore[no-untyped-def]
    """Add the word buffer[begin : begin + size] to the table. Returns its number."""
    number = table.used[0]
    start = table.starts[number]
    table.text[start : start + size] = buffer[begin : begin + size]
    table.starts[number + 1] = start + size
    table.counts[number] = TO_ENCODE
    table.used[0] += 1
    table.used[1] += size
    return number


@numba.njit(cache=True, nogil=True)
def _find_words(  # type: ignore[no-untyped-def]
    buffer,
    offsets,
    sentences,
    kinds,
    by_letters,
    table,
    words,
    document_offsets,
    sentence_words,
    inside,
    unsure,
):
    """See `look_up_words`; fills the arrays of `FoundWords`. Returns the rows of words, inside."""
    # local variables: passing the whole table to a function per word takes five times as long
    tags, numbers, starts, text = table.tags, table.numbers, table.starts, table.text
    count = 0
    within = 0
    sentence = 0
    next_sentence = sentences[0] if len(sentences) else offsets[-1]  # beyond all words
    for document in range(len(offsets) - 1):
        place = offsets[document]
        stop = offsets[document + 1] - 1
        while place < stop:
            begin = place
            kind = kinds[buffer[U(place)]]
            length = 1
            if by_letters:
                place = _after_letters(buffer, place)
            while place < stop:
                byte = buffer[U(place)]
                length = 1
                if byte < 0x80:
                    kind = kinds[byte]
                else:
                    code, length = decode_character(buffer, place)
                    kind = kinds[U(code)]
                if kind != PART:
                    break
                place += length
            if place == begin:
                place += length
                if kind == UNSURE:
                    unsure[document] = True
                if kind != APART:
                    continue
            while next_sentence < place:
                sentence_words[sentence] = count
                if next_sentence > begin:
                    row = inside[within]
                    row[0], row[1], row[2], row[3] = sentence, next_sentence, begin, place
                    within += 1
                sentence += 1
                next_sentence = sentences[sentence] if sentence < len(sentences) else offsets[-1]
            size = place - begin
            tag = _tag(buffer, begin, size)
            slot = mix(tag) & U(_SLOTS - 1)
            number = numbers[slot]
            while number >= 0:
                if tags[slot] == tag:
                    if size <= 8:  # the tag is the word itself
                        break
                    start = starts[number]
                    long = starts[number + 1] - start
                    if long == size and _same(text, start, buffer, begin, size):
                        break
                slot = (slot + U(1)) & U(_SLOTS - 1)
                number = numbers[slot]
            if number < 0:
                number = _add(buffer, begin, size, table)
                if number < _MOST_TAGGED:
                    tags[slot] = tag
                    numbers[slot] = number
            words[count] = number
            count += 1
        while next_sentence <= stop:  # no word follows
            sentence += 1
            next_sentence = sentences[sentence] if sentence < len(sentences) else offsets[-1]
        document_offsets[document + 1] = count
    return count, within


@numba.njit(cache=True, nogil=True)
def _write_ids(found, table, shifts, unk, ids, offsets, starts, unknown):  # type: ignore[no-untyped-def]
    """See `write_ids`; shifts: [sentences] tokens into a word. Returns the sentence starts."""
    words, wanted = found.words, found.sentence_words  # local variables, as in _find_words
    counts, id_starts, word_ids = table.counts, table.id_starts, table.ids
    write = 0
    marks = 0
    sentence = 0
    for document in range(len(offsets) - 1):
        first = marks
        for index in range(found.document_offsets[document], found.document_offsets[document + 1]):
            while sentence < len(wanted) and wanted[sentence] <= index:
                if wanted[sentence] == index:
                    start = write + shifts[sentence]
                    if marks == first or starts[marks - 1] < start:
                        starts[marks] = start
                        marks += 1
                sentence += 1
            word = U(words[U(index)])
            count = counts[word]
            place = id_starts[word]
            if count == 0:
                found.unsure[document] = True
            missing = 0
            for token in range(count):
                ids[U(write + token)] = word_ids[U(place + token)]
                missing += word_ids[U(place + token)] == unk
            if missing:
                unknown[document, 0] += missing
                unknown[document, 1] += table.unknown[word]
            write += count
        while marks > first and starts[marks - 1] >= write:
            marks -= 1  # no token follows
        offsets[document + 1] = write
    return marks
