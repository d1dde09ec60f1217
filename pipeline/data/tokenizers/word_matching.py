"""Ids of words by the rules of WordPiece and unigram, as `tokenizers` applies them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from pipeline.data.tokenizers.word_table import Numbers, WordTable
from pipeline.kernels.bits import Bytes, U, mix
from pipeline.kernels.characters import decode_character

LONGEST = 8
"""Most bytes that a normalized character may have here."""
_LAST_WHITE = 32  # in clean text a newline or a space
REFERENCE = 255


class Trie(NamedTuple):
    """A trie of byte strings: (node, byte) -> node; the root is 0."""

    keys: Numbers
    """[slots] (node << 8 | byte) + 1; 0 is an empty slot."""
    children: npt.NDArray[np.int32]
    ends: npt.NDArray[np.int32]
    """[nodes] id of the string that ends there, or -1."""


class Matcher(NamedTuple):
    """The tables of a vocabulary for matching words."""

    unigram: bool
    first: Trie
    """Tokens that start a word; in unigram all tokens."""
    rest: Trie
    """Tokens that continue a word."""
    scores: npt.NDArray[np.float64]
    unk: int
    unk_score: float
    longest: int
    """Most characters of a word; a longer one is unknown in WordPiece."""
    mark: Bytes
    """Prefix of every word; empty in WordPiece."""
    becomes: Bytes
    """[0x110000, LONGEST] normalized form of a character inside a word, in UTF-8."""
    lengths: Bytes
    """[0x110000] bytes of that form; REFERENCE: words with the character go to `tokenizers`."""
    pairs: npt.NDArray[np.bool_]
    """[128, 128] ASCII pairs that normalize differently together; also for `tokenizers`."""


def build_trie(strings: Sequence[bytes], ids: Numbers) -> Trie:
    """The trie of `strings`, each with its id."""
    lengths = np.array([len(string) for string in strings], np.int64)
    total = int(lengths.sum())
    # a node per byte at most, so at least half of the slots stay empty
    slots = 1 << int(2 * total + 2).bit_length()
    trie = Trie(
        np.zeros(slots, np.int64), np.zeros(slots, np.int32), np.full(total + 1, -1, np.int32)
    )
    text = np.frombuffer(b"".join(strings), np.uint8)
    _fill_trie(text, np.cumsum(lengths), np.asarray(ids, np.int64), trie)
    return trie


def match_words(first: int, table: WordTable, matcher: Matcher) -> Numbers:
    """Set ids of words number `first` and later. Returns those that `tokenizers` must encode."""
    left: Numbers = _match_all(first, table, matcher)
    return left


def find_tokens(buffer: Bytes, inside: Numbers, matcher: Matcher) -> Numbers:
    """For sentences that start inside a word: the token of the word at which they start.

    inside: [n, 4] as in `FoundWords`. Returns [n]; -1: `tokenizers` must decide.
    """
    found: Numbers = _find_tokens(buffer, inside, matcher)
    return found


@numba.njit(cache=True, nogil=True, inline="always")
def step(trie, node, byte):  # type: ignore[no-untyped-def]
    """The child of `node` by `byte`, 0 if there is none."""
    key = np.int64(node) << 8 | np.int64(byte)
    mask = U(len(trie.keys) - 1)
    slot = mix(U(key)) & mask
    while trie.keys[slot] != 0:
        if trie.keys[slot] == key + 1:
            return trie.children[slot]
        slot = (slot + U(1)) & mask
    return np.int32(0)


@numba.njit(cache=True, nogil=True)
def _fill_trie(text, ends, ids, trie):  # type: ignore[no-untyped-def]
    """Insert strings into an empty trie; text: uint8 of all, ends and ids: [strings]."""
    mask = U(len(trie.keys) - 1)
    nodes = 1
    begin = 0
    for index in range(len(ids)):
        node = np.int32(0)
        for place in range(begin, ends[index]):
            child = step(trie, node, text[place])
            if child == 0:
                key = np.int64(node) << 8 | np.int64(text[place])
                slot = mix(U(key)) & mask
                while trie.keys[slot] != 0:
                    slot = (slot + U(1)) & mask
                trie.keys[slot] = key + 1
                trie.children[slot] = nodes
                child = np.int32(nodes)
                nodes += 1
            node = child
        begin = ends[index]
        trie.ends[node] = ids[index]


@numba.njit(cache=True, nogil=True)
def _match_all(first, table, matcher):  # type: ignore[no-untyped-def]
    """Set ids of words number `first` and later; returns int64 [n], the words not matched."""
    left = np.empty(table.used[0] - first, np.int64)
    count = 0
    room = 0
    for word in range(first, table.used[0]):
        room = max(
            room, len(matcher.mark) + (table.starts[word + 1] - table.starts[word]) * LONGEST
        )
    # once, with room for the longest new word
    spelling, origin = np.empty(room, np.uint8), np.empty(room, np.int64)
    starts = np.empty(room + 1, np.int64)
    for word in range(first, table.used[0]):
        text = table.text[table.starts[word] : table.starts[word + 1]]
        used = _normalize(text, matcher, spelling, origin)
        if used < 0:
            left[count] = word
            count += 1
            continue
        table.id_starts[word] = table.used[2]
        ids = table.ids[table.used[2] :]  # matched in place: with_room has made room
        found = _encode(spelling[:used], matcher, ids, starts)
        table.counts[word] = found
        starts[found] = used
        table.unknown[word] = _unknown(text, origin, ids[:found], starts, matcher.unk)
        table.used[2] += found
    return left[:count]


@numba.njit(cache=True, nogil=True)
def _unknown(word, origin, ids, starts, unk):  # type: ignore[no-untyped-def]
    """Characters of a word that unknown ids stand for, each counted once.

    word: uint8 [bytes]; origin: as `_normalize` fills it; ids: [tokens]; starts: int64 [tokens + 1]
    positions in the normalized word.
    """
    characters = done = 0
    for token in range(len(ids)):
        if ids[token] != unk:
            continue
        place = max(done, origin[starts[token]])
        last = origin[starts[token + 1] - 1]  # of the last character's bytes, the first
        while place < len(word) and (place <= last or word[place] & 0xC0 == 0x80):
            characters += word[place] & 0xC0 != 0x80
            place += 1
        done = max(done, place)
    return characters


@numba.njit(cache=True, nogil=True, inline="always")  # a call would count matcher references
def _encode(spelling, matcher, ids, starts):  # type: ignore[no-untyped-def]
    """Write ids of a normalized word, uint8 [bytes], and the start of each. Returns how many."""
    if len(spelling) == len(matcher.mark):
        return 0
    if matcher.unigram:
        return _viterbi(spelling, matcher, ids, starts)
    return _longest_match(spelling, matcher, ids, starts)


@numba.njit(cache=True, nogil=True)
def _find_tokens(buffer, inside, matcher):  # type: ignore[no-untyped-def]
    """See `find_tokens`; buffer: uint8, inside: int64 [n, 4], returns int64 [n]."""
    found = np.full(len(inside), -1, np.int64)
    last, count = -1, -1
    places = np.empty(0, np.int64)
    for row in range(len(inside)):
        start, begin, end = inside[row, 1], inside[row, 2], inside[row, 3]
        if begin != last:
            last = begin
            room = len(matcher.mark) + (end - begin) * LONGEST
            spelling, origin = np.empty(room, np.uint8), np.empty(room, np.int64)
            ids, starts = np.empty(room, np.int32), np.empty(room, np.int64)
            word = buffer[begin:end]
            # white space inside a word: only a foreign pre-tokenizer allows it, ask `tokenizers`
            odd = word.min() <= _LAST_WHITE
            count = -1 if odd else _normalize(word, matcher, spelling, origin)
            if count >= 0:
                count = _encode(spelling[:count], matcher, ids, starts)
                places = origin[starts[:count]]
        if count >= 0:
            found[row] = np.searchsorted(places, start - begin)
    return found


@numba.njit(cache=True, nogil=True)
def _normalize(word, matcher, out, origin):  # type: ignore[no-untyped-def]
    """Write the prefix and the normalized word to out, uint8, and the origin of each byte.

    word: uint8 [bytes]; origin: int64, positions in `word`. Returns the bytes written; -1 if
    `tokenizers` must encode the word.
    """
    used = len(matcher.mark)
    out[:used] = matcher.mark
    origin[:used] = 0
    place = 0
    while place < len(word):
        code, length = np.int64(word[place]), 1
        if code >= 0x80:
            code, length = decode_character(word, place)
        elif place and word[place - 1] < 0x80 and matcher.pairs[word[place - 1], code]:
            return -1
        if matcher.lengths[code] == REFERENCE:
            return -1
        for index in range(matcher.lengths[code]):
            out[used] = matcher.becomes[code, index]
            origin[used] = place
            used += 1
        place += length
    return used


@numba.njit(cache=True, nogil=True)
def _longest_match(text, matcher, out, starts):  # type: ignore[no-untyped-def]
    """Write ids of a word by WordPiece's rule, and the start of each. Returns how many."""
    out[0], starts[0] = matcher.unk, 0
    characters = 0
    for byte in text:
        characters += byte & 0xC0 != 0x80
    if characters > matcher.longest:
        return 1
    count = 0
    place = 0
    while place < len(text):
        trie = matcher.first if place == 0 else matcher.rest
        node = np.int32(0)
        best = -1
        end = place
        for index in range(place, len(text)):
            node = step(trie, node, text[index])
            if node == 0:
                break
            if trie.ends[node] >= 0:
                best = trie.ends[node]
                end = index + 1
        # one part without a token makes the whole word unknown, as in BERT's tokenization.py
        if best < 0:
            out[0] = matcher.unk
            return 1
        out[count], starts[count] = best, place
        count += 1
        place = end
    return count


@numba.njit(cache=True, nogil=True)
def _viterbi(text, matcher, out, starts):  # type: ignore[no-untyped-def]
    """Write ids of the most likely pieces of a word, and the start of each. Returns how many.

    As encode_optimized of `tokenizers`: adjacent characters without a piece are one unknown token.
    """
    size = len(text)
    score = np.zeros(size + 1)
    back = np.full(size + 1, -1, np.int64)
    piece = np.empty(size + 1, np.int64)
    place = 0
    while place < size:
        length = 1
        while place + length < size and text[place + length] & 0xC0 == 0x80:
            length += 1
        single = False
        node = np.int32(0)
        for end in range(place + 1, size + 1):
            node = step(matcher.first, node, text[end - 1])
            if node == 0:
                break
            index = matcher.first.ends[node]
            if index >= 0:
                total = matcher.scores[index] + score[place]
                # strictly: of two equal paths the one found first stays, as in `tokenizers`
                if back[end] < 0 or total > score[end]:
                    score[end], back[end], piece[end] = total, place, index
                single = single or end - place == length
        if not single:
            end = place + length
            total = matcher.unk_score + score[place]
            if back[end] < 0 or total > score[end]:
                score[end], back[end], piece[end] = total, place, matcher.unk
        place += length
    count = 0
    place = size
    while place > 0:
        if piece[place] != matcher.unk or count == 0 or out[count - 1] != matcher.unk:
            out[count] = piece[place]
            count += 1
        place = back[place]
        starts[count - 1] = place
    for index in range(count // 2):
        other = count - 1 - index
        out[index], out[other] = out[other], out[index]
        starts[index], starts[other] = starts[other], starts[index]
    return count
