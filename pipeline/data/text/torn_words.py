"""Words split by a hyphen at the end of a line: which of them are one word.

A hyphen, as in "contem-" and "plate", is cut if the rest of the document has the joined word more
often than the hyphenated one. If it has neither of them, nor either half, the hyphen is cut in
documents with at least five other split words and more split words than compounds. (In 48 novels:
the two with split words lose 553 of 685 hyphens, two of them wrongly; the six with compounds there
lose 4 of 364, all written as one word elsewhere.)
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import partial

import numba

from pipeline.kernels.bits import Bytes

HYPHEN = 45

MOST_SEARCHED = 8  # split words that are looked for one by one, not in counts of all words

# A VT is the end of a joined line. Letters on both sides, and no other hyphen.
_TORN = re.compile(r"(?<![\w‐-])([^\W\d_]+)([‐-])([\v\n])([^\W\d_]+)(?!\w|[‐-][^\W\d_])")
_HYPHEN_AT_END = re.compile(r"[‐-][\v\n]")  # fast, because no other character can start it
_LETTER = re.compile(r"[^\W\d_]")
_TOKEN_END = re.compile(r"[\s‐-]|$")
_WORD = re.compile(r"(?<![^\W\d_])(?<![^\W\d_]-)[^\W\d_]+(?:-[^\W\d_]+)*")
_WHOLE, _COMPOUND, _FRAGMENTS = "whole", "compound", "fragments"


def whole_words(text: str) -> str:
    """Cut the hyphens of split words, and all VTs; where lines stay, the word is on the first."""
    torn = _torn_words(text)
    if not torn:
        return text.replace("\v", "")
    # Without the split words themselves, which are no evidence of how the text spells them.
    starts = [0, *(found.end() for found in torn)]
    stops = [*(found.start() for found in torn), len(text)]
    rest = " ".join(text[start:stop] for start, stop in zip(starts, stops, strict=True))
    rest = rest.lower().replace("‐", "-")
    count: Callable[[str], int] = partial(_count, rest)
    if len(torn) > MOST_SEARCHED:
        count = Counter(_WORD.findall(rest)).__getitem__
    torn = [found for found in torn if _one_case(found)]
    verdicts = [_verdict(found, count) for found in torn]
    tears = verdicts.count(_WHOLE) > max(verdicts.count(_COMPOUND), 4)
    parts, end = [], 0
    for found, verdict in zip(torn, verdicts, strict=True):
        if verdict == _WHOLE or (verdict == _FRAGMENTS and tears):
            parts.append(text[end : found.end(1)])
            end = found.start(4)
            if found[3] == "\n":
                token_end = _TOKEN_END.search(text, end)
                assert token_end is not None  # the text's end is one
                stop = token_end.start()
                parts += [text[end:stop], "\n"]
                end = stop
    return "".join([*parts, text[end:]]).replace("\v", "")


def _torn_words(text: str) -> list[re.Match[str]]:
    """Words with a hyphen at the end of a line."""
    torn, end = [], 0
    for hyphen in _HYPHEN_AT_END.finditer(text):
        start = hyphen.start()
        while start > end and _LETTER.match(text, start - 1):
            start -= 1
        found = _TORN.match(text, start)
        if found:
            torn.append(found)
            end = found.end()
    return torn


def _count(text: str, word: str) -> int:
    """How often a text has a word."""
    count, at = 0, text.find(word)
    while at >= 0:
        found = _WORD.match(text, at)
        count += found is not None and found[0] == word
        at = text.find(word, at + 1)
    return count


def _one_case(torn: re.Match[str]) -> bool:
    # A capital after the hyphen is that of a compound, as in Anglo-Saxon.
    return torn[4].islower() or (torn[1].isupper() and torn[4].isupper())


def _verdict(torn: re.Match[str], count: Callable[[str], int]) -> str:
    """Classify two halves by how the rest of the text spells them."""
    first, second = torn[1].lower(), torn[4].lower()
    whole, compound = count(first + second), count(f"{first}-{second}")
    if whole or compound:
        return _WHOLE if whole > compound else _COMPOUND
    return "" if count(first) or count(second) else _FRAGMENTS


@numba.njit(cache=True, nogil=True, forceinline=True)
def hyphen_before(buffer: Bytes, end: int) -> int:
    """Bytes of the hyphen before `end`, also U+2010; 0 if there is none."""
    if buffer[end - 1] == 0x90 and buffer[end - 2] == 0x80 and buffer[end - 3] == 0xE2:
        return 3
    return 1 if buffer[end - 1] == HYPHEN else 0


@numba.njit(cache=True, nogil=True, forceinline=True)
def is_torn(buffer: Bytes, end: int, after: int) -> bool:
    """True if the line before `end` may end inside a word: in a letter and a hyphen.

    after: the first byte of the text after it, a letter of the same case.
    """
    hyphen = hyphen_before(buffer, end)
    if hyphen == 0:
        return False
    before = buffer[end - 1 - hyphen]
    same_case = before >= 0x80 or after >= 97 or before < 97
    return is_letter(before) and is_letter(after) and same_case


@numba.njit(cache=True, nogil=True, forceinline=True)
def is_letter(byte: int) -> bool:
    """True if a byte is an ASCII letter or of another character."""
    return byte >= 0x80 or 97 <= byte | 32 <= 122
