"""A keyed bijection of [0, count): a shuffle that computes any entry by itself, in about 30 ns.

A Feistel network (Luby and Rackoff 1988) on the cells of a nearly square rectangle, with cycle
walking over the few cells beyond `count` (Black and Rogaway 2002). Not for cryptography.
"""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

from pipeline.kernels.bits import GOLDEN, mix

IntArray = npt.NDArray[np.int64]

MAX_COUNT = 1 << 62  # so that sides are at most 2^31, as `_draw` needs
ROUNDS = 8
"""Half-rounds; with 8, images of one and of two indices pass a chi-square test at any count."""

_MULTIPLY_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLY_2 = np.uint64(0x94D049BB133111EB)
_32 = np.uint64(32)


@numba.njit(cache=True, nogil=True)
def round_keys(
    keys: npt.NDArray[np.uint64], seed: int, use: int, stream: int, number: int, part: int
) -> None:
    """Fill `keys` [ROUNDS] for the bijection that the five numbers identify."""
    key = mix(np.uint64(seed) + GOLDEN)
    for word in (use, stream, number, part):
        key = mix(key + np.uint64(word) * GOLDEN + _MULTIPLY_1)
    for index in range(keys.size):
        keys[index] = mix(key + np.uint64(index + 1) * GOLDEN)


@numba.njit(cache=True, nogil=True)
def sides(count: int) -> tuple[int, int]:
    """Sides of the smallest nearly square rectangle with at least `count` cells."""
    tall = np.int64(np.sqrt(np.float64(count)))
    # A float's root is inexact for counts above 2^53.
    while tall * tall < count:
        tall += 1
    while tall > 1 and (tall - 1) * (tall - 1) >= count:
        tall -= 1
    return tall, (count + tall - 1) // tall


@numba.njit(cache=True, nogil=True, inline="always")
def _draw(value: int, key: np.uint64, bound: int) -> int:
    """A keyed hash of `value` in [0, bound), bound <= 2^31."""
    bits = (np.uint64(value) + key) * _MULTIPLY_1
    bits = (bits ^ (bits >> _32)) * _MULTIPLY_2
    # A product's high half is in range, like a remainder, but without a slow division.
    drawn: int = np.int64(((bits >> _32) * np.uint64(bound)) >> _32)
    return drawn


@numba.njit(cache=True, nogil=True)
def image(index: int, count: int, tall: int, wide: int, keys: npt.NDArray[np.uint64]) -> int:
    """The image of `index` under a keyed bijection of [0, count); keys: [ROUNDS].

    A Feistel network on the cells of a `tall` x `wide` rectangle: each half is shifted by a hash of
    the other. Fewer than `tall` cells are beyond `count`; the walk continues from such a cell.
    """
    while True:
        row = index // wide
        column = index - row * wide
        for pair in range(0, keys.size, 2):
            row += _draw(column, keys[pair], tall)
            row -= tall if row >= tall else 0  # the sum is below 2 * tall
            column += _draw(row, keys[pair + 1], wide)
            column -= wide if column >= wide else 0
        index = row * wide + column
        if index < count:
            return index


@numba.njit(cache=True, nogil=True)
def bijection(indices: IntArray, count: int, seed: int, number: int = 1) -> IntArray:
    """The images [n] of `indices` [n] in [0, count), count <= 2^62; key: seed and number."""
    images = np.empty_like(indices)
    keys = np.empty(ROUNDS, np.uint64)
    round_keys(keys, seed, 0, 0, number, 0)
    tall, wide = sides(count)
    for item in range(indices.size):
        images[item] = image(indices[item], count, tall, wide, keys)
    return images
