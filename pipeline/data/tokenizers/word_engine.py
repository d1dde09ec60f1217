"""Fast WordPiece and unigram ids: text is split into words, and a word's ids are looked up.

In both kinds the ids of a word do not depend on its neighbours, and words repeat:

1. Characters that were never seen are learned from `tokenizers`: how each is normalized, and
   whether it separates words, belongs to a word, or is a word.
2. One pass splits a batch into words and finds them in a persistent table.
3. New words are matched in compiled code if the normalizer treats each of their characters
   independently; `tokenizers` encodes the others, since its composition is not repeated here.
4. A second pass writes the ids.

A document with a character of no such kind, with a word that has no ids, or with an added token is
encoded by `tokenizers`.
"""

from __future__ import annotations

import itertools
import json
import unicodedata
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.data.tokenizers.added_tokens import Scan, scan_words
from pipeline.data.tokenizers.definitions import CONTINUATION, UNIGRAM, WORD_MARK, WORDPIECE
from pipeline.data.tokenizers.reference_engine import Reference, count_unknown, id_type
from pipeline.data.tokenizers.token_ids import Tokens, Unknown
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.data.tokenizers.word_matching import (
    LONGEST,
    REFERENCE,
    Matcher,
    build_trie,
    find_tokens,
    match_words,
)
from pipeline.data.tokenizers.word_table import (
    APART,
    PART,
    SPACE,
    UNSEEN,
    UNSURE,
    WordTable,
    find_unseen,
    look_up_words,
    write_ids,
)
from pipeline.kernels.bits import Bytes

WORDS_VERSION = 1
"""Part of the fingerprint of prepared data: increase it whenever any id can change."""
MOST_WORDS = 400_000
MOST_BYTES = 16 << 20
"""Words, and bytes of words, after which the table is emptied: they bound memory, up to one batch.
The content of the table never changes an id."""
_UNK_PENALTY = 10.0  # below the least likely piece; sentencepiece kUnkPenalty
_ASCII = 128
_NO_LIMIT = 2**63 - 1  # what compiled code can compare with; `tokenizers` has 64 bits
_PLAIN_STEPS = (
    "BertNormalizer", "Replace", "NFC", "NFD", "NFKC", "NFKD", "StripAccents", "Lowercase",
)  # fmt: skip


@dataclass(slots=True)
class WordEngine:
    """The words of one vocabulary; reuse it, because each word is encoded only once."""

    vocabulary: Vocabulary
    reference: Reference
    matcher: Matcher = field(init=False)
    kinds: Bytes = field(init=False)
    """[0x110000] the kind of each character, UNSEEN until it occurs."""
    table: WordTable = field(init=False)
    plain: bool = field(init=False)
    """True if the normalizer treats characters one by one, except for compositions."""
    added: Scan | None = field(init=False)
    """Finds the documents in which an added token may match; None if there are no such tokens."""

    def __post_init__(self) -> None:
        self.kinds = np.full(0x110000, UNSEEN, np.uint8)
        # from `tokenizers` itself, which reads other forms of a file, too, and may parse the last
        # bit of a number differently from Python
        content = json.loads(self.reference.tokenizer.to_str())
        self.matcher = _matcher(self.vocabulary, self.reference, content["model"])
        normalizer = content["normalizer"]
        steps = (normalizer or {}).get("normalizers", [normalizer])
        self.plain = all(step is None or step.get("type") in _PLAIN_STEPS for step in steps)
        self._learn(list(range(1, _ASCII)))  # find_unseen looks beyond ASCII only
        self.table = WordTable.empty()
        self.added = scan_words(self.reference, self.matcher, plain=self.plain)

    def encode(
        self, buffer: Bytes, offsets: npt.NDArray[np.int64], sentences: npt.NDArray[np.int64]
    ) -> tuple[Tokens, Unknown, npt.NDArray[np.bool_]]:
        """Encode documents, see `document_encoder.Engine`."""
        if self.table.words > MOST_WORDS or self.table.bytes > MOST_BYTES:
            self.table = WordTable.empty()
        # 1. in rounds, as find_unseen returns a bounded number of occurrences
        while len(unseen := find_unseen(buffer, offsets, self.kinds)):
            self._learn(unseen.tolist())
        known = self.table.words
        table = self.table.with_room(int(offsets[-1] - offsets[0]))
        found = look_up_words(buffer, offsets, sentences, self.kinds, table)  # 2. new ones lack ids
        self.table = table
        self._encode_new(known)  # 3. the words from this number on
        inside = self._sentences_inside(buffer, found.inside)
        # 4.
        ids, document_offsets, starts, unknown = write_ids(
            found, table, inside, self.vocabulary.unk, id_type(self.vocabulary)
        )
        return Tokens(ids, document_offsets, starts), unknown, found.unsure

    def _encode_new(self, known: int) -> None:
        """Set the ids of words number `known` and later."""
        left = match_words(known, self.table, self.matcher)
        for word in left.tolist():
            text = self.table.spelling(word).tobytes().decode()
            encoding = self.reference.plain.encode(text, add_special_tokens=False)
            _, characters = count_unknown(encoding, self.vocabulary.unk)
            self.table.give(word, np.array(encoding.ids, np.int32), characters)

    def _sentences_inside(
        self, buffer: Bytes, inside: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """For sentences that start inside a word: the token of the word at which they start.

        inside: [n, 4] sentence, its position, and start and end of its word.
        """
        tokens = find_tokens(buffer, inside, self.matcher)
        last, places = -1, np.empty(0, np.int64)
        for row in np.flatnonzero(tokens < 0).tolist():
            _, start, begin, end = inside[row].tolist()
            if begin != last:
                _, places = self.reference.encode_document(buffer[begin:end])
                last = begin
            tokens[row] = np.searchsorted(places, start - begin)
        return tokens

    def _learn(self, codes: list[int]) -> None:
        """Store the kind of characters, and the normalized form of context-free ones."""
        for code in codes:
            self.kinds[code] = self._kind(chr(code))
            # between two letters, as in a word: a normalizer may strip the ends of a text
            text = _normalize(self.reference, f"q{chr(code)}q")[1:-1]
            becomes = (text.strip() if self.kinds[code] == APART else text).encode()
            if len(becomes) <= LONGEST and self.plain and _is_alone(chr(code)):
                self.matcher.becomes[code, : len(becomes)] = np.frombuffer(becomes, np.uint8)
                self.matcher.lengths[code] = len(becomes)

    def _kind(self, character: str) -> int:
        """The kind of a character, tested inside a word and at both ends of one."""
        mark = WORD_MARK if self.vocabulary.kind == UNIGRAM else ""
        left, right = f"{mark}a", f"{mark}b"
        inside, before, after = (
            self._words(text) for text in (f"a{character}b", f"a {character}b", f"a{character} b")
        )
        if len(inside) == 1 and inside[0].startswith(left) and inside[0].endswith("b"):
            own = inside[0][len(left) : -1]
            apart = before == [left, f"{mark}{own}b"] and after == [left + own, right]
            return PART if apart else UNSURE
        if character == " ":  # single and never at an end, since the text is clean
            return SPACE if inside == [left, right] else UNSURE
        if not inside == before == after or (inside[0], inside[-1]) != (left, right):
            return UNSURE
        if len(inside) > 2:
            alone = len(inside) == 3 and self.vocabulary.kind == WORDPIECE
            return APART if alone else UNSURE
        at_ends = [self._words(text) for text in (f"{character}a", f"a{character}")]
        normalized = _normalize(self.reference, f"a{character}b")[1:-1]
        return SPACE if normalized.isspace() and at_ends == [[left], [left]] else UNSURE

    def _words(self, text: str) -> list[str]:
        pre_tokenizer = self.reference.tokenizer.pre_tokenizer
        assert pre_tokenizer is not None  # checked when the vocabulary was read
        normalized = _normalize(self.reference, text)
        return [word for word, _ in pre_tokenizer.pre_tokenize_str(normalized)]


def _normalize(reference: Reference, text: str) -> str:
    normalizer = reference.tokenizer.normalizer
    return text if normalizer is None else str(normalizer.normalize_str(text))


def _matcher(vocabulary: Vocabulary, reference: Reference, model: dict[str, Any]) -> Matcher:
    """The tables that compiled code needs to encode words as `tokenizers` does."""
    unigram = vocabulary.kind == UNIGRAM
    if unigram:
        pieces = [piece.encode() for piece, _ in model["vocab"]]
        scores = np.array([score for _, score in model["vocab"]])
        first = build_trie(pieces, np.arange(len(pieces)))
        rest = first
    else:
        scores = np.zeros(0)
        ids = model["vocab"]
        begin = [token for token in ids if not token.startswith(CONTINUATION)]
        inside = [token for token in ids if token.startswith(CONTINUATION)]
        first = build_trie([t.encode() for t in begin], np.array([ids[t] for t in begin]))
        bodies = [token.removeprefix(CONTINUATION).encode() for token in inside]
        rest = build_trie(bodies, np.array([ids[token] for token in inside]))
    return Matcher(
        unigram=unigram,
        first=first,
        rest=rest,
        scores=scores,
        unk=vocabulary.unk,
        unk_score=float(scores.min(initial=0.0)) - _UNK_PENALTY,
        longest=0 if unigram else min(model["max_input_chars_per_word"], _NO_LIMIT),
        mark=np.frombuffer(WORD_MARK.encode() if unigram else b"", np.uint8),
        becomes=np.zeros((0x110000, LONGEST), np.uint8),
        lengths=np.full(0x110000, REFERENCE, np.uint8),
        pairs=_dependent_pairs(reference),
    )


def _dependent_pairs(reference: Reference) -> npt.NDArray[np.bool_]:
    """[128, 128] ASCII pairs that normalize differently together, such as `` in unigram."""
    pairs = np.zeros((_ASCII, _ASCII), np.bool_)
    visible = [chr(code) for code in range(33, 127)]
    alone = {c: _normalize(reference, f"q{c}q")[1:-1] for c in visible}
    for left, right in itertools.product(visible, repeat=2):
        together = _normalize(reference, f"q{left}{right}q")[1:-1]
        pairs[ord(left), ord(right)] = together != alone[left] + alone[right]
    return pairs


def _is_alone(character: str) -> bool:
    """True if no normal form composes a character with the one before it, or reorders them."""
    first = unicodedata.normalize("NFKD", character)[0]
    known = unicodedata.category(character) != "Cn"
    return known and unicodedata.combining(first) == 0 and first not in _joining()


@lru_cache(maxsize=1)
def _joining() -> frozenset[str]:
    """Characters that are second in some canonical composition, with conjoining Hangul."""
    # beyond U+1FFFF there are ideographs, none of which is composed of two characters
    pairs = (unicodedata.decomposition(chr(code)).split() for code in range(0x20000))
    found = {chr(int(pair[1], 16)) for pair in pairs if len(pair) == 2 and pair[0][0] != "<"}
    return frozenset(found | set(map(chr, range(0x1160, 0x1200))))
