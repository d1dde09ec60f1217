"""Cleaned documents -> token ids, by the fastest engine that gives the ids of `tokenizers`.

Documents that the fast engine is unsure of are encoded by `tokenizers`, and those with added tokens
part by part (see `added_parts`). One document in 2,000 is encoded by both engines; a difference
raises `EngineMismatch`, and the caller encodes that task again with `tokenizers` only. The ids of
these documents must also cover all of their text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from pipeline.base.errors import DataError
from pipeline.data.text.cleaning import clean
from pipeline.data.text.sentences import sentence_starts
from pipeline.data.tokenizers.added_parts import AddedParts
from pipeline.data.tokenizers.added_tokens import Scan
from pipeline.data.tokenizers.definitions import BYTE_BPE
from pipeline.data.tokenizers.gigatoken_engine import GigatokenEngine, gigatoken_version
from pipeline.data.tokenizers.reference_engine import EngineMismatch, Reference
from pipeline.data.tokenizers.token_ids import Tokens, Unknown, join_tokens
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.data.tokenizers.word_engine import WORDS_VERSION, WordEngine
from pipeline.kernels.bits import Bytes

FAST, TOKENIZERS = "fast", "tokenizers"
"""Engines, as fingerprints of shards name them."""
CHECKED_SHARE = 2000
"""One document in this many is encoded by both engines and checked for coverage."""
_PROBE = (
    "Hello world! It's 3.14, isn't it?  two  spaces\n\nparagraph\ttab",
    "naïve café — “quoted” … €5 <mask> </s> [MASK]",
    "Ελληνικά Русский עברית العربية हिन्दी ไทย 日本語 한국어 中文。",
    "emoji 👩‍🔬🏳️‍🌈 math ∑∞ ①②③ ½ ² modifiers e\u0301 ʰ zero\u200dwidth",
    "=" * 300 + " " * 40 + "\n" * 7 + "'ll 've 're 'LL x'x ''s",
)


class Engine(Protocol):
    """A fast encoder of documents without added tokens."""

    added: Scan | None
    """Finds the documents in which an added token may match; None if there are no such tokens."""

    def encode(
        self, buffer: Bytes, offsets: npt.NDArray[np.int64], sentences: npt.NDArray[np.int64]
    ) -> tuple[Tokens, Unknown, npt.NDArray[np.bool_]]:
        """Encode as `TextEncoder.encode` does, as if there were no added tokens; also returns which
        documents `tokenizers` has to encode."""


def _fast_engine(vocabulary: Vocabulary, reference: Reference) -> Engine:
    """The fast engine of a vocabulary. Raises DataError if it refuses the vocabulary."""
    if vocabulary.kind != BYTE_BPE:
        return WordEngine(vocabulary, reference)
    try:
        return GigatokenEngine(vocabulary)
    except RuntimeError as error:
        reason, *_ = str(error).splitlines() or [""]
        raise DataError(
            f"{fast_engine(vocabulary.kind)} cannot read this vocabulary ({reason})"
        ) from error


def choose_engine(vocabulary: Vocabulary) -> str:
    """FAST, or TOKENIZERS with a printed reason where the fast engine cannot give the same ids."""
    if not vocabulary.has_fast_engine:
        reason = "the tokenizer splits words with its own regular expression"
    else:
        try:
            TextEncoder.create(vocabulary)
        except DataError as error:
            reason = str(error)
        else:
            return FAST
    print(f"{reason}, so `tokenizers` makes the ids, which is slow", flush=True)
    return TOKENIZERS


@dataclass(slots=True)
class TextEncoder:
    """Both engines for one vocabulary; reuse it, because a fast engine caches words."""

    vocabulary: Vocabulary
    reference: Reference
    fast: Engine | None
    """Fast engine; None: everything is encoded by `tokenizers`."""
    parts: AddedParts | None = field(init=False)
    """Encoder of documents with added tokens; None: text has no such tokens."""

    def __post_init__(self) -> None:
        tokens = self.vocabulary.text_tokens
        self.parts = AddedParts(self.reference) if tokens else None

    @classmethod
    def create(cls, vocabulary: Vocabulary, *, fast: bool = True) -> TextEncoder:
        """Create the engines. Raises DataError if they differ, or lose text, on a probe text."""
        encoder = cls(vocabulary, Reference(vocabulary), None)
        if fast and vocabulary.has_fast_engine:
            encoder.fast = _fast_engine(vocabulary, encoder.reference)
        # cleaned like any document: engines may differ on text that never reaches them
        probe = clean(list(_PROBE))
        sentences = sentence_starts(probe.buffer, probe.offsets)
        checked = np.ones(len(_PROBE), np.bool_)
        try:
            encoder.encode(probe.buffer, probe.offsets, sentences, checked)
        except EngineMismatch as error:
            raise DataError(
                f"{fast_engine(vocabulary.kind)} gives wrong ids for this vocabulary ({error})"
            ) from error
        return encoder

    def encode(
        self,
        buffer: Bytes,
        offsets: npt.NDArray[np.int64],
        sentences: npt.NDArray[np.int64],
        checked: npt.NDArray[np.bool_],
    ) -> tuple[Tokens, Unknown]:
        """Ids of non-empty documents with the first token of each sentence, and what is unknown.

        buffer, offsets: documents, each followed by one NUL byte (see `clean`); sentences: sorted
        positions in `buffer`; a start inside a token moves to the next token, and is dropped if its
        document has none; checked: [documents] those to encode by both engines and to check for
        coverage. A document whose text the tokenizer removes entirely has no tokens. Raises
        EngineMismatch if the engines differ, and DataError if text would be lost.
        """
        tokens, unknown = self._encode(buffer, offsets, sentences, checked)
        for index in np.flatnonzero(checked).tolist():
            document = buffer[offsets[index] : offsets[index + 1] - 1]
            begin, end = tokens.document_offsets[index : index + 2]
            self.reference.check_coverage(document, tokens.ids[begin:end])
        return tokens, unknown

    def _encode(
        self,
        buffer: Bytes,
        offsets: npt.NDArray[np.int64],
        sentences: npt.NDArray[np.int64],
        checked: npt.NDArray[np.bool_],
    ) -> tuple[Tokens, Unknown]:
        if self.fast is None:
            return self.reference.encode(buffer, offsets, sentences)
        tokens, unknown, unsure = self.fast.encode(buffer, offsets, sentences)
        others: dict[int, Tokens] = {}
        if self.parts is not None and self.fast.added is not None:
            # an engine that is unsure of a document would be unsure of its parts as well
            chosen = np.flatnonzero(self.fast.added(buffer, offsets) & ~unsure).tolist()
            texts = [_document(buffer, offsets, sentences, index) for index in chosen]
            for index, made in zip(chosen, self.parts.encode(texts, self.fast.encode)):
                unsure[index] = made is None
                if made is not None:
                    others[index], unknown[index] = made
        # those that are unsure are encoded by the reference below
        for index in np.flatnonzero(checked & ~unsure).tolist():
            expected, _ = self._by_reference(buffer, offsets, sentences, index)
            found = others.get(index) or _documents(tokens, index, index + 1)
            if not all(map(np.array_equal, _columns(expected), _columns(found))):
                raise EngineMismatch(
                    f"document {index} of the batch: {_excerpt(buffer, offsets, index)}"
                )
        for index in np.flatnonzero(unsure).tolist():
            others[index], unknown[index : index + 1] = self._by_reference(
                buffer, offsets, sentences, index
            )
        if not others:
            return tokens, unknown
        pieces, done = [], 0
        # the documents between two replaced ones are kept in one slice
        for index in sorted(others):
            pieces += [_documents(tokens, done, index), others[index]]
            done = index + 1
        return join_tokens([*pieces, _documents(tokens, done, len(unsure))]), unknown

    def _by_reference(
        self,
        buffer: Bytes,
        offsets: npt.NDArray[np.int64],
        sentences: npt.NDArray[np.int64],
        index: int,
    ) -> tuple[Tokens, Unknown]:
        bounds = offsets[index : index + 2]
        first, last = np.searchsorted(sentences, bounds)
        return self.reference.encode(buffer, bounds, sentences[first:last])


def fast_engine(kind: str) -> str:
    """Name and version of a kind's fast engine, for the fingerprint."""
    return f"gigatoken {gigatoken_version()}" if kind == BYTE_BPE else f"words {WORDS_VERSION}"


def _documents(tokens: Tokens, first: int, last: int) -> Tokens:
    """The documents [first, last) of `tokens`."""
    offsets = tokens.document_offsets[first : last + 1]
    begin, end = offsets[0], offsets[-1]
    left, right = np.searchsorted(tokens.sentence_starts, (begin, end))
    starts = tokens.sentence_starts[left:right] - begin
    return Tokens(tokens.ids[begin:end], offsets - begin, starts)


def _document(
    buffer: Bytes,
    offsets: npt.NDArray[np.int64],
    sentences: npt.NDArray[np.int64],
    index: int,
) -> tuple[Bytes, npt.NDArray[np.int64]]:
    """A document's text, and the positions of sentences in it."""
    start, stop = offsets[index : index + 2]
    first, last = np.searchsorted(sentences, (start, stop))
    return buffer[start : stop - 1], sentences[first:last] - start


def _columns(tokens: Tokens) -> tuple[npt.NDArray[np.int64], ...]:
    return tokens.ids, tokens.document_offsets, tokens.sentence_starts


def _excerpt(buffer: Bytes, offsets: npt.NDArray[np.int64], index: int) -> str:
    text = buffer[offsets[index] : offsets[index + 1] - 1][:60].tobytes()
    return repr(text.decode(errors="replace"))
