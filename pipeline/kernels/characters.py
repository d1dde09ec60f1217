"""Characters of UTF-8 in compiled code, and those that cleaning takes for a space or removes."""

from __future__ import annotations

import numba
import numpy as np

from pipeline.kernels.bits import U

SPACES = (0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000)
"""Code points beyond ASCII that become a space."""
INVISIBLE = {
    "where a line may break": ((0xAD, 0xAD), (0x200B, 0x200B), (0x2060, 0x2060), (0xFEFF, 0xFEFF)),
    "directions, which letters have": (
        (0x061C, 0x061C),
        (0x200E, 0x200F),
        (0x202A, 0x202E),
        (0x2066, 0x2069),
    ),
    "no text: operators, annotations, embedded objects": ((0x2061, 0x2064), (0xFFF9, 0xFFFC)),
    "fillers and separators of characters": (
        (0x034F, 0x034F),
        (0x115F, 0x1160),
        (0x180E, 0x180E),
        (0x3164, 0x3164),
        (0xFFA0, 0xFFA0),
    ),
    "deprecated in Unicode": ((0x17B4, 0x17B5), (0x206A, 0x206F)),
}
"""First and last code points of invisible characters that are removed, by the reason.

ZWJ and ZWNJ stay: they are spelling in many scripts and join emoji. Variation selectors choose a
glyph or emoji, and tags spell flags, so they stay, too."""


@numba.njit(cache=True, nogil=True, inline="always")
def decode_character(buffer, place):  # type: ignore[no-untyped-def]
    """The non-ASCII character at `place` in buffer, uint8, and its length in bytes."""
    byte = np.int64(buffer[U(place)])
    code = np.int64(buffer[U(place + 1)] & 0x3F)
    # The first byte tells the length: 110xxxxx is 2 bytes, 1110xxxx 3, 11110xxx 4.
    if byte < 0xE0:
        return (byte & 0x1F) << 6 | code, 2
    code = code << 6 | np.int64(buffer[U(place + 2)] & 0x3F)
    if byte < 0xF0:
        return (byte & 0x0F) << 12 | code, 3
    return (byte & 0x07) << 18 | code << 6 | np.int64(buffer[U(place + 3)] & 0x3F), 4
