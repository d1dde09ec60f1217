"""Documents in which an added token may match: `tokenizers` encodes them, whatever the token's
flags, and a fast engine all others.

1. Each token's content is normalized, and what is white is removed: its pattern.
2. A document may contain a token if its text, normalized and without white space, contains the
   pattern. Byte-level BPE does not change text, so its bytes are compared as they are.
3. In other kinds the normal form of a character was learned when it was first seen. A character
   that depends on its neighbours matches anything after the start of a pattern.
4. If the normalizer does not treat characters one by one, each document is normalized to look.

A document that is found in vain only costs time.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Callable

import numba
import numpy as np
import numpy.typing as npt

from pipeline.data.tokenizers.reference_engine import Reference
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.data.tokenizers.word_matching import REFERENCE, Matcher, Trie, build_trie, step
from pipeline.kernels.bits import Bytes, U
from pipeline.kernels.characters import decode_character

Scan = Callable[[Bytes, npt.NDArray[np.int64]], npt.NDArray[np.bool_]]
"""Documents, as in `CleanText` -> [documents] those in which an added token may match."""
_WHITE = 32
"""The last byte of ASCII's white space."""


def scan_bytes(vocabulary: Vocabulary) -> Scan | None:
    """The scan of byte-level BPE; None if the vocabulary has no added tokens in text."""
    contents = [token["content"] for token in vocabulary.text_tokens]
    if not contents:
        return None
    # documents are in NFC, and a token's content need not be: either form may match
    patterns = {form.encode() for text in contents for form in (text, _nfc(text))}
    trie = _trie(patterns)
    starts = np.isin(np.arange(256), [pattern[0] for pattern in patterns])

    def scan(buffer: Bytes, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        found = np.zeros(len(offsets) - 1, np.bool_)
        _find_bytes(buffer, offsets, starts, trie, found)
        return found

    return scan


def scan_words(reference: Reference, matcher: Matcher, *, plain: bool) -> Scan | None:
    """The scan of WordPiece and unigram; None if the vocabulary has no added tokens in text.

    plain: whether the normalizer treats characters one by one, except for compositions.
    """
    contents = [token["content"] for token in reference.vocabulary.text_tokens]
    if not contents:
        return None
    patterns = {_without_white(_normalize(reference, text).encode()) for text in contents}
    # `` becomes a quote: such pairs, and what they become, do not follow from single characters
    pairs = [chr(left) + chr(right) for left, right in np.argwhere(matcher.pairs).tolist()]
    paired = set("".join(pairs + [_normalize(reference, pair) for pair in pairs]))
    # a token of white space has an empty pattern, which is in every document
    if not plain or b"" in patterns or any(paired & set(pattern.decode()) for pattern in patterns):
        return _by_normalizing(reference)
    trie = _trie(patterns)
    firsts = [pattern[0] for pattern in patterns]
    starts = np.arange(256) >= 0xC0  # any other character
    starts[:128] = np.isin(matcher.becomes[:128, 0], firsts) & (matcher.lengths[:128] > 0)
    foreign = max(firsts) >= 0x80

    def scan(buffer: Bytes, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        found = np.zeros(len(offsets) - 1, np.bool_)
        _find_forms(buffer, offsets, starts, foreign, trie, matcher.becomes, matcher.lengths, found)
        return found

    return scan


def _by_normalizing(reference: Reference) -> Scan:
    """A scan that normalizes every document, at a tenth of the speed."""
    tokens = reference.vocabulary.text_tokens
    # `tokenizers` looks for these in normalized text, and for all others in the text as it is
    normal = {_normalize(reference, token["content"]) for token in tokens if token["normalized"]}
    literal = {token["content"] for token in tokens if not token["normalized"]}

    def scan(buffer: Bytes, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        found = []
        for start, stop in itertools.pairwise(offsets.tolist()):
            text = buffer[start : stop - 1].tobytes().decode()
            form = _normalize(reference, text) if normal else ""
            found.append(any(s in text for s in literal) or any(s in form for s in normal))
        return np.array(found, np.bool_)

    return scan


def _normalize(reference: Reference, text: str) -> str:
    normalizer = reference.tokenizer.normalizer
    return text if normalizer is None else str(normalizer.normalize_str(text))


def _nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _without_white(text: bytes) -> bytes:
    return bytes(byte for byte in text if byte > _WHITE)


def _trie(patterns: set[bytes]) -> Trie:
    return build_trie(sorted(patterns), np.arange(len(patterns)))


@numba.njit(cache=True, nogil=True)
def _find_bytes(buffer, offsets, starts, trie, found):  # type: ignore[no-untyped-def]
    """Set found, bool [documents], where the bytes of a pattern are.

    buffer: uint8; offsets: [documents + 1]; starts: bool [256], first bytes of patterns.
    """
    for document in range(len(found)):
        stop = offsets[document + 1] - 1
        for begin in range(offsets[document], stop):
            if not starts[buffer[U(begin)]]:
                continue
            node = np.int32(0)
            for place in range(begin, stop):
                node = step(trie, node, buffer[U(place)])
                if node == 0 or trie.ends[node] >= 0:
                    break
            if node != 0 and trie.ends[node] >= 0:
                found[document] = True
                break


@numba.njit(cache=True, nogil=True)
def _find_forms(buffer, offsets, starts, foreign, trie, becomes, lengths, found):  # type: ignore[no-untyped-def]
    """Set found, bool [documents], where the normal forms of characters may make a pattern.

    starts: bool [256], first bytes of characters to look at; foreign: a pattern begins beyond
    ASCII; becomes, lengths: as in `Matcher`; the rest as in `_find_bytes`.
    """
    for document in range(len(found)):
        stop = offsets[document + 1] - 1
        for begin in range(offsets[document], stop):
            if not starts[buffer[U(begin)]]:
                continue
            code = np.int64(buffer[U(begin)])
            if code >= 0x80:
                code, _ = decode_character(buffer, begin)
            if lengths[code] == REFERENCE:
                found[document] = found[document] or foreign
                continue
            for skipped in range(lengths[code]):
                if _matches(buffer, begin, stop, skipped, trie, becomes, lengths):
                    found[document] = True
            if found[document]:
                break


@numba.njit(cache=True, nogil=True)
def _matches(buffer, place, stop, skipped, trie, becomes, lengths):  # type: ignore[no-untyped-def]
    """True if a pattern may begin with byte `skipped` of the form of the character at `place`."""
    node = np.int32(0)
    while place < stop:
        code, length = np.int64(buffer[U(place)]), 1
        if code >= 0x80:
            code, length = decode_character(buffer, place)
        if lengths[code] == REFERENCE:
            return True
        for index in range(skipped, lengths[code]):
            if becomes[code, index] > _WHITE:
                node = step(trie, node, becomes[code, index])
                if node == 0:
                    return False
                if trie.ends[node] >= 0:
                    return True
        skipped = 0
        place += length
    return False
