"""Training of vocabularies of each kind; the same texts give the same bytes on every machine.

WordPiece and unigram vocabularies hold characters, and thousands of characters occur only once in a
corpus. Characters beyond COVERAGE of the text are dropped, as in SentencePiece: a word with one of
them becomes, or contains, the unknown token. Byte-level BPE needs no such choice.
"""

from __future__ import annotations

import itertools
import json
import signal
import threading
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from pipeline.data.tokenizers.definitions import (
    BYTE_BPE,
    CONTINUATION,
    SPECIALS,
    UNIGRAM,
    WORD_MARK,
    WORDPIECE,
    byte_bpe_json,
    unigram_json,
    unigram_normalizer,
    wordpiece_json,
)
from pipeline.data.tokenizers.unigram_trainer import train_pieces
from pipeline.data.tokenizers.vocabulary import Vocabulary, vocabulary

COVERAGE = 0.99995  # share of all characters; albert README, spm_train --character_coverage
_CHUNK = 1 << 21  # characters handled at a time

Texts = Callable[[], Iterator[str]]
"""Each call iterates over the same texts: they are read once or twice, and never held."""


def train_vocabulary(kind: str, texts: Texts, size: int, *, lower_case: bool) -> Vocabulary:
    """Train a vocabulary of at most `size` ids; fewer if the texts have too few distinct parts."""
    if kind == BYTE_BPE:
        return train_byte_bpe(texts(), size)
    trainer = {WORDPIECE: train_wordpiece, UNIGRAM: train_unigram}[kind]
    return trainer(texts, size, lower_case=lower_case)


def train_byte_bpe(texts: Iterator[str], size: int) -> Vocabulary:
    """Train byte-level BPE (Radford et al. 2019, sec. 2.2); ids 0-4 are special."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=list(SPECIALS[BYTE_BPE].values()),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),  # a hash set: no fixed order
        show_progress=False,
    )
    with _killed_by_interrupt():
        tokenizer.train_from_iterator(texts, trainer)
    content = json.loads(tokenizer.to_str())["model"]
    merges = [tuple(merge) for merge in content["merges"]]
    return vocabulary(byte_bpe_json(content["vocab"], merges), "just trained")


def train_wordpiece(texts: Texts, size: int, *, lower_case: bool) -> Vocabulary:
    """Train WordPiece by the merges of `tokenizers` (BERT's own trainer was never published).

    Continuing characters get their ids before training. Otherwise `tokenizers` numbers them in the
    order of a randomly keyed hash table, and these ids break ties between merges of equal count.
    """
    normalizer = normalizers.BertNormalizer(lowercase=lower_case)
    alone, inside = _frequent(texts, normalizer, size)
    specials = list(SPECIALS[WORDPIECE].values())
    tokenizer = Tokenizer(models.WordPiece(unk_token=SPECIALS[WORDPIECE]["unk"]))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=specials + [CONTINUATION + character for character in inside],
        initial_alphabet=alone,
        continuing_subword_prefix=CONTINUATION,
        show_progress=False,
    )
    with _killed_by_interrupt():
        tokenizer.train_from_iterator(_normalized(texts, normalizer, alone), trainer)
    ids = json.loads(tokenizer.to_str())["model"]["vocab"]
    return vocabulary(wordpiece_json(ids, lower_case=lower_case), "just trained")


def train_unigram(texts: Texts, size: int, *, lower_case: bool) -> Vocabulary:
    """Train unigram pieces (Kudo 2018) of words that start with `▁`; ids 0-4 are special."""
    normalizer = unigram_normalizer(lower_case)
    alone, _ = _frequent(texts, normalizer, size)
    counts: Counter[str] = Counter()
    for text in _normalized(texts, normalizer, alone):
        counts.update(text.split())
    specials = list(SPECIALS[UNIGRAM].values())
    marked = {WORD_MARK + word: count for word, count in counts.items()}
    pieces = train_pieces(marked, size - len(specials)) if marked else []
    named = [(token, 0.0) for token in specials]
    return vocabulary(unigram_json(named + pieces, lower_case=lower_case), "just trained")


def _frequent(
    texts: Texts, normalizer: normalizers.Normalizer, size: int
) -> tuple[list[str], list[str]]:
    """The characters that make up COVERAGE of the texts, and those that occur inside a word.

    At most a quarter of `size`; both sorted by code point.
    """
    apart = np.zeros(0x110000, np.bool_)
    totals, inside = np.zeros(0x110000, np.int64), np.zeros(0x110000, np.int64)
    for text in _chunks(texts, normalizer):
        # UTF-32 is a number per character, which numpy counts
        codes = np.frombuffer(text.encode("utf-32-le", "replace"), np.uint32)
        counts = np.bincount(codes, minlength=0x110000)
        new = np.flatnonzero((counts > 0) & (totals == 0))
        apart[new] = [_is_apart(chr(code)) for code in new.tolist()]
        totals += counts
        joined = ~apart[codes[1:]] & ~apart[codes[:-1]]
        inside += np.bincount(codes[1:][joined], minlength=0x110000)
    # white space separates words, so no piece holds it
    totals[[code for code in np.flatnonzero(totals).tolist() if chr(code).isspace()]] = 0
    order = np.argsort(-totals, kind="stable")[: max(1, size // 4)]  # ties by code point
    before = np.cumsum(totals[order]) - totals[order]
    kept = order[(before < COVERAGE * totals.sum()) & (totals[order] > 0)]
    alone = sorted(map(chr, kept.tolist()))
    return alone, [character for character in alone if inside[ord(character)]]


def _is_apart(character: str) -> bool:
    """True if BERT's pre-tokenizer ends a word at a character."""
    return (
        character.isspace()
        or unicodedata.category(character)[0] == "P"
        or (character.isascii() and not character.isalnum())
    )


def _normalized(
    texts: Texts, normalizer: normalizers.Normalizer, characters: list[str]
) -> Iterator[str]:
    """Normalized texts, with characters other than `characters` replaced by spaces."""
    known = {ord(character) for character in characters}
    for text in _chunks(texts, normalizer):
        rare = {ord(character): " " for character in set(text) if ord(character) not in known}
        yield text.translate(rare)


def _chunks(texts: Texts, normalizer: normalizers.Normalizer) -> Iterator[str]:
    """Normalized texts, many per string, joined by newlines."""
    held: list[str] = []
    size = 0
    for text in itertools.chain(texts(), (None,)):
        if text is not None:
            held.append(normalizer.normalize_str(text))
            size += len(text)
        if held and (text is None or size >= _CHUNK):
            yield "\n".join(held)
            held, size = [], 0


@contextmanager
def _killed_by_interrupt() -> Iterator[None]:
    """Let Ctrl-C end the process at once; `tokenizers` would only react after training."""
    if threading.current_thread() is not threading.main_thread():  # signal.signal would raise
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
