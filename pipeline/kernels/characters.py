"""Characters of UTF-8 in compiled code."""

from __future__ import annotations

import numba
import numpy as np

from pipeline.kernels.bits import U


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
