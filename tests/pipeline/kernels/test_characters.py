"""Tests of characters."""

import numba
import numpy as np

from pipeline.kernels.characters import decode_character


@numba.njit
def decode_at(buffer, place):  # type: ignore[no-untyped-def]
    return decode_character(buffer, place)


def test_characters_of_every_length() -> None:
    for code in (0x80, 0x7FF, 0x800, 0xFFFD, 0x10000, 0x10FFFF):
        encoded = chr(code).encode()
        buffer = np.frombuffer(b"a" + encoded + b"\0", np.uint8)
        assert decode_at(buffer, 1) == (code, len(encoded))
