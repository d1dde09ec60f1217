"""Ids by `tokenizers`: slow, and what every other engine is measured by."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from pipeline.data.bits import Bytes
from pipeline.data.masking import Ids
from pipeline.data.sequences import Tokens
from pipeline.data.tokenizer_json import BYTE_BPE
from pipeline.data.vocabulary import Vocabulary

_WHITE = (32, 10)  # what white space cleaned text has


class EngineMismatch(Exception):
    """A fast engine and `tokenizers` gave different ids for a document."""


def id_type(vocabulary: Vocabulary) -> type[np.uint16] | type[np.uint32]:
    """uint16 up to 65,536 ids, else uint32."""
    return np.uint16 if vocabulary.size <= 65_536 else np.uint32


@dataclass(slots=True)
class Reference:
    """`tokenizers` for one vocabulary."""

    vocabulary: Vocabulary
    tokenizer: Tokenizer = field(init=False)

    def __post_init__(self) -> None:
        self.tokenizer = Tokenizer.from_str(self.vocabulary.text_json())

    def encode(
        self, buffer: Bytes, offsets: npt.NDArray[np.int64], sentences: npt.NDArray[np.int64]
    ) -> Tokens:
        """Ids of documents; see `tokens.Encoder.encode`."""
        ids: list[Ids] = [np.empty(0, id_type(self.vocabulary))]
        starts = [np.empty(0, np.int64)]
        token_offsets = [0]
        bounds = np.searchsorted(sentences, offsets)
        for index, (first, last) in enumerate(itertools.pairwise(bounds.tolist())):
            begin = offsets[index]
            document = buffer[begin : offsets[index + 1] - 1]
            found, places = self.encode_document(document)
            # the first token that begins at a sentence's start, or behind it
            tokens = np.unique(np.searchsorted(places, sentences[first:last] - begin))
            starts.append(tokens[tokens < len(found)] + token_offsets[-1])
            ids.append(found)
            token_offsets.append(token_offsets[-1] + len(found))
        return Tokens(np.concatenate(ids), np.array(token_offsets), np.concatenate(starts))

    def encode_document(self, document: Bytes) -> tuple[Ids, npt.NDArray[np.int64]]:
        """Ids of a text in UTF-8, and where each begins in it, white space left out, ascending."""
        encoding = self.tokenizer.encode(document.tobytes().decode(), add_special_tokens=False)
        ids = np.array(encoding.ids, id_type(self.vocabulary))
        if self.vocabulary.kind == BYTE_BPE:  # the offsets of characters are too coarse
            lengths = self.vocabulary.byte_lengths[ids].astype(np.int64)
            return ids, np.cumsum(lengths) - lengths
        heads = np.append(np.flatnonzero((document & 0xC0) != 0x80), len(document))
        starts = heads[[start for start, _ in encoding.offsets]] if len(ids) else ids
        padded = np.append(document, 0)
        while (white := np.isin(padded[starts], _WHITE)).any():
            starts = starts + white
        return ids, np.maximum.accumulate(starts.astype(np.int64))
