"""Ids by `tokenizers`: slow, and the reference for the fast engines."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np
import numpy.typing as npt
from tokenizers import Encoding, Tokenizer

from pipeline.base.errors import DataError
from pipeline.data.tokenizers.definitions import BYTE_BPE
from pipeline.data.tokenizers.token_ids import Ids, Tokens, Unknown
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.kernels.bits import Bytes

WHITE = (32, 10)  # the white space of cleaned text


class EngineMismatch(Exception):
    """A fast engine and `tokenizers` gave different ids for a document."""


def id_type(vocabulary: Vocabulary) -> type[np.uint16] | type[np.uint32]:
    """uint16 up to 65,536 ids, else uint32."""
    return np.uint16 if vocabulary.size <= 65_536 else np.uint32


def count_unknown(encoding: Encoding, unk: int) -> tuple[int, int]:
    """Tokens with the id `unk`, and the characters that they stand for, each counted once."""
    ids = encoding.ids
    tokens = ids.count(unk)
    characters = done = 0
    if tokens:
        for token, (start, stop) in zip(ids, encoding.offsets, strict=True):
            if token == unk:
                characters += max(0, stop - max(start, done))  # tokens can share a character
                done = max(done, stop)
    return tokens, characters


@dataclass(slots=True)
class Reference:
    """`tokenizers` for one vocabulary."""

    vocabulary: Vocabulary
    tokenizer: Tokenizer = field(init=False)
    plain: Tokenizer = field(init=False)
    """`tokenizer` without added tokens: for text between them."""
    normalized: Tokenizer = field(init=False)
    """`plain` without normalizer: for normalized text, with offsets into that text."""
    added: npt.NDArray[np.bool_] = field(init=False)
    """[vocabulary] the added tokens that are text."""

    def __post_init__(self) -> None:
        text_json = self.vocabulary.text_json()
        self.tokenizer = Tokenizer.from_str(text_json)
        content = json.loads(text_json) | {"added_tokens": []}
        self.plain = Tokenizer.from_str(json.dumps(content, ensure_ascii=False))
        content["normalizer"] = None
        self.normalized = Tokenizer.from_str(json.dumps(content, ensure_ascii=False))
        self.added = np.zeros(self.vocabulary.size, np.bool_)
        self.added[[token["id"] for token in self.vocabulary.text_tokens]] = True

    def encode(
        self, buffer: Bytes, offsets: npt.NDArray[np.int64], sentences: npt.NDArray[np.int64]
    ) -> tuple[Tokens, Unknown]:
        """Ids of documents, see `TextEncoder.encode`."""
        # gives the result its type where no document has a token
        ids: list[Ids] = [np.empty(0, id_type(self.vocabulary))]
        starts = [np.empty(0, np.int64)]
        token_offsets = [0]
        unknown = np.zeros((len(offsets) - 1, 2), np.int64)
        bounds = np.searchsorted(sentences, offsets)
        for index, (first, last) in enumerate(itertools.pairwise(bounds.tolist())):
            begin = offsets[index]
            document = buffer[begin : offsets[index + 1] - 1]
            encoding = self.tokenizer.encode(document.tobytes().decode(), add_special_tokens=False)
            found, places = self._located(document, encoding)
            # the first token that starts at a sentence's start or after it
            heads = np.unique(np.searchsorted(places, sentences[first:last] - begin))
            starts.append(heads[heads < len(found)] + token_offsets[-1])
            ids.append(found)
            token_offsets.append(token_offsets[-1] + len(found))
            unknown[index] = count_unknown(encoding, self.vocabulary.unk)
        tokens = Tokens(np.concatenate(ids), np.array(token_offsets), np.concatenate(starts))
        return tokens, unknown

    def check_coverage(self, document: Bytes, ids: Ids) -> None:
        """Raise DataError unless `ids` cover a text from its first character to its last.

        document: UTF-8. Text that normalization removes needs no token, and in WordPiece and
        unigram neither does the white space between words.
        """
        if not self.added[ids].any():
            return self._check_stretch(document, ids)
        text = document.tobytes().decode()
        encoding = self.tokenizer.encode(text, add_special_tokens=False)
        if encoding.ids != ids.tolist():
            self._refuse(document, f"{len(ids):,} of {len(encoding.ids):,} tokens")
        begin = first = 0
        for place in [*np.flatnonzero(self.added[ids]).tolist(), len(ids)]:
            start, stop = [*encoding.offsets, (len(text), len(text))][place]
            stretch = np.frombuffer(text[begin:start].encode(), np.uint8)
            # other ids: the token began inside a character, such as a ligature
            plain = self.plain.encode(text[begin:start], add_special_tokens=False)
            if plain.ids == ids[first:place].tolist():
                self._check_stretch(stretch, ids[first:place])
            begin, first = stop, place + 1
        return None

    def _check_stretch(self, document: Bytes, ids: Ids) -> None:
        """Check coverage of text without added tokens, see `check_coverage`."""
        if self.vocabulary.kind == BYTE_BPE:
            covered = int(self.vocabulary.byte_lengths[ids].sum(dtype=np.int64))
            if covered != len(document):
                self._refuse(document, f"{covered:,} of {len(document):,} bytes")
            return
        normalizer = self.tokenizer.normalizer
        text = document.tobytes().decode()
        text = text if normalizer is None else str(normalizer.normalize_str(text))
        encoding = self.normalized.encode(text, add_special_tokens=False)
        if encoding.ids != ids.tolist():
            self._refuse(document, f"{len(ids):,} of {len(encoding.ids):,} tokens")
        place = 0
        for start, stop in [*encoding.offsets, (len(text), len(text))]:
            if text[place:start].strip():
                self._refuse(document, f"the tokens skip {text[place:start].strip()[:40]!r}")
            place = max(place, stop)

    def _refuse(self, document: Bytes, found: str) -> NoReturn:
        excerpt = document[:60].tobytes().decode(errors="replace")
        raise DataError(
            f"tokenizer {self.vocabulary.sha256[:16]} loses text: {found} of the document that "
            f"starts with {excerpt!r}; use a tokenizer whose tokens cover the whole text"
        )

    def encode_document(self, document: Bytes) -> tuple[Ids, npt.NDArray[np.int64]]:
        """Ids of a UTF-8 text between added tokens, and where each starts, after white space."""
        encoding = self.plain.encode(document.tobytes().decode(), add_special_tokens=False)
        return self._located(document, encoding)

    def _located(self, document: Bytes, encoding: Encoding) -> tuple[Ids, npt.NDArray[np.int64]]:
        """Ids and places of an encoding, see `encode_document`."""
        ids = np.array(encoding.ids, id_type(self.vocabulary))
        heads = np.append(np.flatnonzero((document & 0xC0) != 0x80), len(document))
        bounds = heads[np.array(encoding.offsets, np.int64).reshape(-1, 2)]
        starts, stripped = bounds[:, 0], np.True_
        if self.vocabulary.kind == BYTE_BPE:  # the offsets of characters are too coarse
            stripped = self.added[ids]
            lengths = self.vocabulary.byte_lengths[ids].astype(np.int64)
            lengths[stripped] = (bounds[:, 1] - bounds[:, 0])[stripped]
            starts = np.cumsum(lengths) - lengths
        padded = np.append(document, 0)  # a token may start at the end
        while (white := np.isin(padded[starts], WHITE) & stripped).any():
            starts = starts + white
        # ascending, as callers bisect: tokens of one character may point back to its start
        return ids, np.maximum.accumulate(starts)
