"""Cleaned documents -> token ids, at the speed of gigatoken with the ids of `tokenizers`.

All 1,112,032 code points were tried in five contexts each (gigatoken 0.10.0, tokenizers 0.23.3):
the engines differ on 4,657 of them, all new in Unicode 17, where one engine's tables are older. A
document with one of those, or with a code point that this Python's tables do not assign, goes to
`tokenizers`. On top of that, one document in 2,000 is encoded by both; a difference is an
`EngineMismatch`, and the caller redoes that split with `tokenizers` alone.
"""

from __future__ import annotations

import ctypes
import os
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import gigatoken
import numba
import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from pipeline.data.bits import EVERY_HIGH_BIT, U, word_at
from pipeline.data.masking import Ids
from pipeline.data.vocabulary import Vocabulary
from pipeline.errors import DataError

CHECKED_SHARE = 2000
"""One document in this many is encoded by both engines."""
CACHE_BYTES = 64 << 20
"""Growth of this process after which gigatoken begins anew: its cache of words has no bound."""
_PROBE = (
    "Hello world! It's 3.14, isn't it?  two  spaces\n\nparagraph\ttab",
    "naïve café — “quoted” … €5 <mask> </s> [MASK]",
    "Ελληνικά Русский עברית العربية हिन्दी ไทย 日本語 한국어 中文。",
    "emoji 👩‍🔬🏳️‍🌈 math ∑∞ ①②③ ½ ² modifiers e\u0301 ʰ zero\u200dwidth",
    "=" * 300 + " " * 40 + "\n" * 7 + "'ll 've 're 'LL x'x ''s",
)

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
"""Code points (first, last) whose letter, number or space class the two engines see differently."""


class EngineMismatch(Exception):
    """gigatoken and `tokenizers` gave different ids for a document."""


@dataclass(slots=True)
class Encoder:
    """Both engines for one vocabulary; keep it, because gigatoken's cache doubles its speed."""

    vocabulary: Vocabulary
    reference: Tokenizer
    fast: gigatoken.Tokenizer | None
    """None: everything is encoded by `tokenizers`."""
    resident: int = 0
    """Memory of this process in bytes when `fast` was new."""

    @classmethod
    def create(cls, vocabulary: Vocabulary, *, fast: bool = True) -> Encoder:
        """DataError when the engines differ on the start-up probe."""
        text_json = vocabulary.text_json()
        encoder = cls(vocabulary, Tokenizer.from_str(text_json), None)
        if fast:
            encoder.renew()
            probe = [text.encode() for text in _PROBE]
            offsets = np.cumsum([0] + [len(text) + 1 for text in probe])
            buffer = np.frombuffer(b"\0".join(probe) + b"\0", np.uint8)
            try:
                encoder.encode(buffer, offsets, np.ones(len(probe), np.bool_))
            except EngineMismatch as error:
                raise DataError(
                    f"gigatoken {gigatoken_version()} does not give this vocabulary's ids "
                    f"({error}); run with --engine tokenizers"
                ) from error
        return encoder

    def renew(self) -> None:
        """Begin a new gigatoken instance, with an empty cache."""
        self.fast = None  # frees the old cache before the new one is made
        return_memory()
        self.fast = gigatoken.Tokenizer.from_json(self.vocabulary.text_json())
        self.resident = _resident_bytes()

    @property
    def dtype(self) -> type[np.uint16] | type[np.uint32]:
        """uint16 up to 65,536 ids, else uint32."""
        return np.uint16 if self.vocabulary.size <= 65_536 else np.uint32

    def encode(
        self,
        buffer: npt.NDArray[np.uint8],
        offsets: npt.NDArray[np.int64],
        checked: npt.NDArray[np.bool_],
    ) -> tuple[Ids, npt.NDArray[np.int64]]:
        """Ids of non-empty documents and [documents + 1] offsets into them.

        buffer, offsets: documents, each followed by one NUL byte (see documents.clean);
        checked: [documents] those to encode by both engines. Raises EngineMismatch.
        """
        count = len(offsets) - 1
        if self.fast is None:
            return self._splice(buffer, offsets, np.arange(count))
        if _resident_bytes() - self.resident > CACHE_BYTES:
            self.renew()
        source = gigatoken.BytesSource(
            buffer[offsets[0] : offsets[-1] - 1].tobytes(), separator=b"\0"
        )
        layout = self.fast.encode_batch(source, parallel=False).layout
        starts = np.asarray(layout.offsets.data, np.int64)
        if len(starts) != count + 1:
            raise EngineMismatch(f"{count} documents came back as {len(starts) - 1}")
        ids = np.asarray(layout.content.data)[starts[0] : starts[-1]].astype(self.dtype)
        starts = starts - starts[0]
        for index in np.flatnonzero(checked):
            expected = self._reference_ids(buffer, offsets, int(index))
            if not np.array_equal(expected, ids[starts[index] : starts[index + 1]]):
                raise EngineMismatch(
                    f"document {index} of the batch: {_excerpt(buffer, offsets, int(index))}"
                )
        unverified = np.flatnonzero(_has_unverified(buffer, offsets, _verified()))
        if len(unverified):
            return self._splice(buffer, offsets, unverified, ids, starts)
        return ids, starts

    def _reference_ids(
        self, buffer: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], index: int
    ) -> Ids:
        text = buffer[offsets[index] : offsets[index + 1] - 1].tobytes().decode()
        return np.array(self.reference.encode(text, add_special_tokens=False).ids, self.dtype)

    def _splice(
        self,
        buffer: npt.NDArray[np.uint8],
        offsets: npt.NDArray[np.int64],
        replaced: npt.NDArray[np.int64],
        ids: Ids | None = None,
        starts: npt.NDArray[np.int64] | None = None,
    ) -> tuple[Ids, npt.NDArray[np.int64]]:
        """`ids` with the documents in `replaced` encoded by `tokenizers`."""
        pieces: list[Ids] = []
        redo = set(replaced.tolist())
        for index in range(len(offsets) - 1):
            if index in redo or ids is None or starts is None:
                pieces.append(self._reference_ids(buffer, offsets, index))
            else:
                pieces.append(ids[starts[index] : starts[index + 1]])
        joined = np.concatenate([np.empty(0, self.dtype), *pieces])
        return joined, np.cumsum([0] + [len(piece) for piece in pieces], dtype=np.int64)


def gigatoken_version() -> str:
    """For the fingerprint: another version could give other ids."""
    from importlib.metadata import version

    return version("gigatoken")


def return_memory() -> None:
    """Give freed memory back to the system, which glibc otherwise keeps in pieces."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _resident_bytes() -> int:
    """Memory of this process; 0 where the system does not say."""
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


def _excerpt(buffer: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], index: int) -> str:
    text = buffer[offsets[index] : offsets[index + 1] - 1][:60].tobytes()
    return repr(text.decode(errors="replace"))


@numba.njit(cache=True, nogil=True)
def _has_unverified(buffer, offsets, verified):  # type: ignore[no-untyped-def]
    """[documents] True where a code point is outside `verified`; buffer is valid UTF-8."""
    flags = np.zeros(len(offsets) - 1, np.bool_)
    for document in range(len(flags)):
        place = offsets[document]
        end = offsets[document + 1]
        while place < end:
            if place + 8 <= end and word_at(buffer, place) & EVERY_HIGH_BIT == U(0):
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
