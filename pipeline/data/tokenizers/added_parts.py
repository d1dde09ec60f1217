"""Ids of documents with added tokens: the text between the tokens by a fast engine.

1. `tokenizers` itself finds the tokens, with a model that makes one token of all text between two.
2. Between them text is normalized and split into words without regard to its neighbours, so each
   part is encoded like a document. In WordPiece and unigram a part also ends where a sentence
   starts, since the engine's tokens have no positions.
3. The ids of all parts are joined.

A document is left to the reference if its parts do not cover it exactly (a token begins inside a
ligature, or the normalizer removes a character next to one), or if in WordPiece and unigram a
sentence starts inside a word, or white space at the end of a part would matter.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from pipeline.data.tokenizers.definitions import BYTE_BPE
from pipeline.data.tokenizers.reference_engine import WHITE, Reference, id_type
from pipeline.data.tokenizers.token_ids import Ids, Tokens, Unknown
from pipeline.kernels.bits import Bytes

Positions = npt.NDArray[np.int64]
Encode = Callable[[Bytes, Positions, Positions], tuple[Tokens, Unknown, npt.NDArray[np.bool_]]]
"""`encoder.Engine.encode`."""
_TEXT = -1
Part = tuple[int, int, int]
"""First byte, last byte + 1, and the added token's id or _TEXT."""


@dataclass(slots=True)
class AddedParts:
    """The parts of documents with added tokens, for one vocabulary."""

    reference: Reference
    finder: Tokenizer = field(init=False)
    """Finds added tokens; everything else is its token 0."""
    ids: list[int] = field(init=False)
    """The vocabulary's id of each token of `finder`."""
    cuts_anywhere: bool = field(init=False)
    """True if white space at the ends of a part makes no token."""

    def __post_init__(self) -> None:
        vocabulary = self.reference.vocabulary
        tokens = vocabulary.text_tokens
        content = json.loads(vocabulary.text_json())
        # from 1: id 0 stands for text
        content["added_tokens"] = [token | {"id": n} for n, token in enumerate(tokens, 1)]
        # text has no NUL, so all that lies between two added tokens is one unknown word
        content["model"] = {"type": "WordLevel", "vocab": {"\0": 0}, "unk_token": "\0"}
        content["pre_tokenizer"] = content["decoder"] = None
        if vocabulary.kind == BYTE_BPE:  # documents are in NFC
            content["normalizer"] = None
        self.finder = Tokenizer.from_str(json.dumps(content, ensure_ascii=False))
        self.ids = [_TEXT, *(token["id"] for token in tokens)]
        plain = self.reference.plain
        whole, ends, white = (plain.encode(s, add_special_tokens=False).ids for s in _ENDS)
        self.cuts_anywhere = vocabulary.kind == BYTE_BPE or (whole == ends and not white)

    def encode(
        self, documents: list[tuple[Bytes, Positions]], encode: Encode
    ) -> list[tuple[Tokens, npt.NDArray[np.int64]] | None]:
        """Each document's ids with its [2] unknown tokens and characters; None: by the reference.

        documents: UTF-8 and the positions of sentences in it; encode: of the fast engine.
        """
        # 1. find the tokens
        cut = [self._parts(document, sentences) for document, sentences in documents]
        texts = [
            document[start:stop]
            for (document, _), parts in zip(documents, cut)
            for start, stop, token in parts or []
            if token == _TEXT
        ]
        texts.append(np.full(1, ord("a"), np.uint8))  # no batch is empty
        pieces = [np.append(text, np.uint8(0)) for text in texts]
        offsets = np.cumsum([0] + [len(piece) for piece in pieces])
        nowhere = np.empty(0, np.int64)
        # 2. all texts between tokens in one call, as a call per part would cost more than its ids
        tokens, unknown, unsure = encode(np.concatenate(pieces), offsets, nowhere)
        bounds = itertools.pairwise(tokens.document_offsets.tolist())
        encoded = iter([tokens.ids[start:stop] for start, stop in bounds])
        found: list[tuple[Tokens, npt.NDArray[np.int64]] | None] = []
        first = 0
        for (document, sentences), parts in zip(documents, cut):
            last = first + sum(token == _TEXT for _, _, token in parts or [])
            own = list(itertools.islice(encoded, last - first))
            if parts is None or unsure[first:last].any():
                found.append(None)
            else:
                # 3. join
                joined = self._join(document, parts, own, sentences)
                found.append((joined, unknown[first:last].sum(axis=0)))
            first = last
        return found

    def _parts(self, document: Bytes, sentences: Positions) -> list[Part] | None:
        """The parts of a document in order; None if they do not cover it, or cannot be cut."""
        encoding = self.finder.encode(document.tobytes().decode(), add_special_tokens=False)
        # `tokenizers` counts characters; these are the bytes at which they start
        heads = np.append(np.flatnonzero((document & 0xC0) != 0x80), len(document))
        bounds = [[*pair] for pair in heads[np.array(encoding.offsets, np.int64)].tolist()]
        starts, stops = [start for start, _ in bounds], [stop for _, stop in bounds]
        if [0, *stops] != [*starts, len(document)] or not self.cuts_anywhere:
            return None
        parts = list(zip(starts, stops, (self.ids[token] for token in encoding.ids)))
        if self.reference.vocabulary.kind == BYTE_BPE:
            return parts
        return _cut_at_sentences(document, parts, sentences.tolist())

    def _join(
        self, document: Bytes, parts: list[Part], encoded: list[Ids], sentences: Positions
    ) -> Tokens:
        """The document of these parts; encoded: ids of those that are text."""
        dtype = id_type(self.reference.vocabulary)
        texts = iter(encoded)
        pieces, places = [], []
        for start, _, token in parts:
            if token != _TEXT:
                pieces.append(np.array([token], dtype))
                while document[start] in WHITE:  # stripped by the token
                    start += 1
                places.append(np.array([start]))
                continue
            ids = next(texts)
            pieces.append(ids)
            if self.reference.vocabulary.kind == BYTE_BPE:
                lengths = self.reference.vocabulary.byte_lengths[ids].astype(np.int64)
                places.append(start + np.cumsum(lengths) - lengths)
            else:  # a sentence starts at none of the tokens after a part's first
                places.append(np.full(len(ids), start))
        joined, where = np.concatenate(pieces), np.concatenate(places)
        heads = np.unique(np.searchsorted(where, sentences))
        return Tokens(joined, np.array([0, len(joined)]), heads[heads < len(joined)])


_ENDS = ("a", "\n a ", " \n")


def _cut_at_sentences(
    document: Bytes, parts: list[Part], sentences: list[int]
) -> list[Part] | None:
    """The parts, cut where sentences start; None if one starts inside a word."""
    cut = []
    for start, stop, token in parts:
        inside = [place for place in sentences if start < place < stop]
        if token != _TEXT:
            cut.append((start, stop, token))
            continue
        if any({*document[place - 1 : place + 1].tolist()}.isdisjoint(WHITE) for place in inside):
            return None
        bounds = itertools.pairwise([start, *inside, stop])
        cut += [(begin, end, _TEXT) for begin, end in bounds]
    return cut
