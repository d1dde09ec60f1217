"""Tokens of one vocabulary -> their pieces in another, for the rows of new tokens.

A token stands for bytes of text, at the start of a word or inside one. Each vocabulary writes that
in its own way (`Ġthe`, `▁the`, `the`; `##ing`), so tokens can be taken to pieces across kinds.
"""

from __future__ import annotations

from collections.abc import Mapping

from tokenizers import Tokenizer

from pipeline.data.tokenizers.definitions import (
    BYTE_BPE,
    BYTES,
    CONTINUATION,
    LETTERS,
    UNIGRAM,
    WORD_MARK,
    WORDPIECE,
)
from pipeline.data.tokenizers.vocabulary import Vocabulary


def pieces_of_tokens(
    ours: Vocabulary, tokens: Mapping[int, str], theirs: Vocabulary
) -> dict[int, list[int]]:
    """Ids of tokens of one vocabulary -> ids of their pieces in another, in order.

    tokens: id -> token. A token without any piece, such as a letter that the other vocabulary does
    not know, is skipped.
    """
    split = Tokenizer.from_str(theirs.tokenizer_json)
    ids = split.get_vocab()
    found = {}
    for index, token in tokens.items():
        text, starts = _text(ours.kind, token)
        pieces = [each for each in _pieces(theirs, split, ids, text, starts) if each != theirs.unk]
        if pieces:
            found[index] = pieces
    return found


def _text(kind: str, token: str) -> tuple[bytes, bool]:
    """The bytes that a token stands for, and whether they start a word."""
    if kind == WORDPIECE:
        return token.removeprefix(CONTINUATION).encode(), not token.startswith(CONTINUATION)
    if kind == UNIGRAM:
        return token.removeprefix(WORD_MARK).encode(), token.startswith(WORD_MARK)
    if any(letter not in BYTES for letter in token):  # an added token
        return token.encode(), True
    text = bytes(BYTES[letter] for letter in token)
    return text.removeprefix(b" "), text.startswith(b" ")


def _pieces(
    theirs: Vocabulary, split: Tokenizer, ids: Mapping[str, int], text: bytes, starts: bool
) -> list[int]:
    """Ids of the pieces of a text, the unknown id among them."""
    if theirs.kind == BYTE_BPE:
        # The model without its pre-tokenizer, which would mark the start of a word by itself.
        written = "".join(LETTERS[byte] for byte in (b" " + text if starts else text))
        return [piece.id for piece in split.model.tokenize(written)]
    # A token of bytes may end within a letter.
    words = text.decode(errors="ignore")
    if split.normalizer is not None:
        words = split.normalizer.normalize_str(words)
    # A normalizer may add the mark, which is added below only where a word starts.
    words = words.strip(f" {WORD_MARK}")
    if not words:
        return []
    if theirs.kind == UNIGRAM:
        return [piece.id for piece in split.model.tokenize(WORD_MARK + words if starts else words)]
    return _longest_pieces(ids, words, "" if starts else CONTINUATION)


def _longest_pieces(ids: Mapping[str, int], word: str, mark: str) -> list[int]:
    """WordPiece's pieces of a word, each the longest that fits; mark: the first piece's.

    `tokenizers` has no way to split the inside of a word. Letters without a piece are skipped.
    """
    found, begin = [], 0
    while begin < len(word):
        ends = range(len(word), begin, -1)
        end = next((end for end in ends if mark + word[begin:end] in ids), 0)
        if end:
            found.append(ids[mark + word[begin:end]])
        begin, mark = end or begin + 1, CONTINUATION
    return found
