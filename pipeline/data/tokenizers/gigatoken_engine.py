"""Byte-level BPE by gigatoken, except for documents whose ids could differ from `tokenizers`.

All 1,112,032 code points were tried in five contexts each (gigatoken 0.10.0, tokenizers 0.23.3).
The engines differ on 4,657 of them, all new in Unicode 17, where one engine's tables are older.
Documents with one of those, with a code point that is unassigned in this Python's tables, or with
an added token are encoded by `tokenizers`.
"""

from __future__ import annotations

import ctypes
import json
import os
import unicodedata
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import gigatoken
import numba
import numpy as np
import numpy.typing as npt

from pipeline.data.tokenizers.added_tokens import Scan, scan_bytes
from pipeline.data.tokenizers.reference_engine import EngineMismatch, id_type
from pipeline.data.tokenizers.token_ids import Tokens, Unknown, token_positions
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.kernels.bits import EVERY_HIGH_BIT, Bytes, U, word_at

CACHE_BYTES = 64 << 20
"""Growth of this process that restarts gigatoken, whose cache of words is unbounded."""

# fmt: off
DIFFERING = (
    (0x88F, 0x88F), (0xC5C, 0xC5C), (0xCDC, 0xCDC), (0xA7CE, 0xA7CF), (0xA7D2, 0xA7D2),
    (0xA7D4, 0xA7D4), (0xA7F1, 0xA7F1), (0x10940, 0x10959), (0x10EC5, 0x10EC7), (0x11DB0, 0x11DDB),
    (0x11DE0, 0x11DE9), (0x16EA0, 0x16EB8), (0x16EBB, 0x16ED3), (0x16FF2, 0x16FF6),
    (0x187F8, 0x187FF), (0x18D09, 0x18D1E), (0x18D80, 0x18DF2), (0x1E6C0, 0x1E6DE),
    (0x1E6E0, 0x1E6E2), (0x1E6E4, 0x1E6E5), (0x1E6E7, 0x1E6ED), (0x1E6F0, 0x1E6F4),
    (0x1E6FE, 0x1E6FF), (0x2B73A, 0x2B73F), (0x2CEA2, 0x2CEAD), (0x323B0, 0x33479),
)
# fmt: on
"""Code points (first, last) to which the engines assign different character classes."""


@dataclass(slots=True)
class GigatokenEngine:
    """gigatoken for one vocabulary; reuse it, because its cache doubles its speed."""

    vocabulary: Vocabulary
    text_json: str = field(init=False)
    added: Scan | None = field(init=False)
    """Finds the documents in which an added token may match; None if there are no such tokens."""
    engine: gigatoken.Tokenizer | None = field(init=False)
    resident: int = field(init=False)
    """Memory of this process in bytes when `engine` was new."""

    def __post_init__(self) -> None:
        content = json.loads(self.vocabulary.text_json())
        # NFC, if anything: documents are in that form, up to characters that are left to others
        content |= {"normalizer": None, "added_tokens": []}
        self.text_json = json.dumps(content, ensure_ascii=False)
        self.added = scan_bytes(self.vocabulary)
        self.renew()

    def renew(self) -> None:
        """Start a new instance, with an empty cache."""
        self.engine = None  # frees the old cache before the new one is made
        return_memory()
        self.engine = gigatoken.Tokenizer.from_json(self.text_json)
        self.resident = _resident_bytes()

    def encode(
        self,
        buffer: Bytes,
        offsets: npt.NDArray[np.int64],
        sentences: npt.NDArray[np.int64],
    ) -> tuple[Tokens, Unknown, npt.NDArray[np.bool_]]:
        """Encode documents, see `document_encoder.Engine`."""
        if _resident_bytes() - self.resident > CACHE_BYTES:
            self.renew()
        assert self.engine is not None
        # the separator stands between documents, not after the last one
        text = buffer[offsets[0] : offsets[-1] - 1].tobytes()
        source = gigatoken.BytesSource(text, separator=b"\0")
        layout = self.engine.encode_batch(source, parallel=False).layout  # a worker has one core
        starts = np.asarray(layout.offsets.data, np.int64)
        if len(starts) != len(offsets):
            raise EngineMismatch(f"{len(starts) - 1} documents returned for {len(offsets) - 1}")
        dtype = id_type(self.vocabulary)
        ids = np.asarray(layout.content.data)[starts[0] : starts[-1]].astype(dtype)
        starts = starts - starts[0]
        lengths = self.vocabulary.byte_lengths
        places = token_positions(sentences, ids, lengths, offsets, starts)
        unknown = np.zeros((len(offsets) - 1, 2), np.int64)  # every byte has a token
        unsure = _has_unverified(buffer, offsets, _verified())
        return Tokens(ids, starts, places), unknown, unsure


def gigatoken_version() -> str:
    """Version for the fingerprint, since another version could give different ids."""
    from importlib.metadata import version

    return version("gigatoken")


def return_memory() -> None:
    """Return freed memory to the system; glibc otherwise keeps it, fragmented."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only glibc has it
    if trim is not None:
        trim(0)


def _resident_bytes() -> int:
    """Resident memory of this process in bytes; 0 if the system does not report it."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


@lru_cache(maxsize=1)
def _verified() -> npt.NDArray[np.bool_]:
    """[0x110000] code points on which the engines agree: assigned, and not in DIFFERING."""
    verified = np.array([unicodedata.category(chr(code)) != "Cn" for code in range(0x110000)])
    for first, last in DIFFERING:
        verified[first : last + 1] = False
    return verified


@numba.njit(cache=True, nogil=True)
def _has_unverified(buffer, offsets, verified):  # type: ignore[no-untyped-def]
    """[documents] True where a code point is not in `verified`, bool [0x110000].

    buffer: uint8, valid UTF-8; offsets: [documents + 1].
    """
    flags = np.zeros(len(offsets) - 1, np.bool_)
    for document in range(len(flags)):
        place = offsets[document]
        end = offsets[document + 1]
        while place < end:
            if place + 8 <= end and word_at(buffer, place) & EVERY_HIGH_BIT == U(0):  # all ASCII
                place += 8
                continue
            byte = np.int64(buffer[place])
            if byte < 0x80:
                place += 1
                continue
            if byte < 0xE0:
                code = (byte & 0x1F) << 6 | (buffer[place + 1] & 0x3F)
                place += 2
            elif byte < 0xF0:
                code = (
                    (byte & 0x0F) << 12
                    | (buffer[place + 1] & 0x3F) << 6
                    | (buffer[place + 2] & 0x3F)
                )
                place += 3
            else:
                code = (byte & 0x07) << 18 | (buffer[place + 1] & 0x3F) << 12
                code |= (buffer[place + 2] & 0x3F) << 6 | (buffer[place + 3] & 0x3F)
                place += 4
            if not verified[code]:
                flags[document] = True
                break
    return flags
