"""64-bit words, compared with Python bit by bit."""

import numba
import numpy as np
import pytest

from pipeline.kernels import bits
from pipeline.kernels.bits import add_range, all_in, any_in, set_range, word_at


@numba.njit
def counted(word: np.uint64) -> tuple[np.uint64, np.uint64, np.uint64]:
    return bits.popcount(word), bits.trailing_zeros(word), bits.mix(word)


def unpacked(bitmap: np.ndarray) -> list[int]:
    return [int(word) >> bit & 1 for word in bitmap for bit in range(64)]


def test_words_are_counted_mixed_and_compared() -> None:
    """mix is splitmix64: the first two outputs of the reference implementation for seed 0."""
    for word in (1, 2, 0b1011000, 1 << 63, (1 << 64) - 1):
        low = (word & -word).bit_length() - 1
        assert tuple(map(int, counted(np.uint64(word))))[:2] == (word.bit_count(), low)
    golden = int(bits.GOLDEN)
    assert int(counted(np.uint64(golden))[2]) == 0xE220A8397B1DCDAF
    assert int(counted(np.uint64(2 * golden % 2**64))[2]) == 0x6E789E6AA1B965F4
    text = np.frombuffer(b"ab a  bc.", np.uint8)
    assert int(word_at(text, 1)) == int.from_bytes(b"b a  bc.", "little")
    spaces = bits.equal_bytes(word_at(text, 0), bits.EVERY_ONE * np.uint64(ord(" ")))
    assert [int(spaces) >> 8 * byte + 7 & 1 for byte in range(8)] == [0, 0, 1, 0, 1, 1, 0, 0]
    for characters in ("", "a", "naïve 中文 👩‍🔬 ລາວ" * 9):
        found = bits.count_characters(np.frombuffer(characters.encode(), np.uint8))
        assert found == len(characters)


@pytest.mark.parametrize(
    ("start", "stop"), [(0, 1), (5, 9), (0, 64), (63, 65), (60, 124), (3, 130), (64, 192)]
)
def test_ranges_of_a_bitmap(start: int, stop: int) -> None:
    rng = np.random.default_rng(start + stop)
    for filled in (0, 1, 2):
        bitmap = np.zeros(4, np.uint64)
        if filled:
            bitmap[:3] = rng.integers(0, 2**64, 3, np.uint64)
        if filled == 2:
            set_range(bitmap, start, stop)
        before = unpacked(bitmap)
        assert any_in(bitmap, start, stop) == any(before[start:stop])
        assert all_in(bitmap, start, stop) == all(before[start:stop])
        for most in (0, 2, stop - start):
            added, expected = bitmap.copy(), list(before)
            clear = [place for place in range(start, stop) if not before[place]][:most]
            for place in clear:
                expected[place] = 1
            assert add_range(added, start, stop, most) == len(clear)
            assert unpacked(added) == expected
        set_range(bitmap, start, stop)
        assert unpacked(bitmap) == before[:start] + [1] * (stop - start) + before[stop:]
    for end in (start, stop - 1):
        alone = np.zeros(4, np.uint64)
        set_range(alone, end, end + 1)
        assert any_in(alone, start, stop) and not all_in(~alone, start, stop)


def test_bytes_are_moved_to_where_they_overlap() -> None:
    text = np.arange(100, dtype=np.uint8)
    for size in range(40):
        for distance in (0, 1, 5, 8, 30):
            moved, start = text.copy(), 30
            end = start + size
            assert bits.move_bytes(moved, start, end, start - distance) == end - distance
            expected = text.copy()
            expected[start - distance : end - distance] = text[start:end]
            assert moved.tolist() == expected.tolist(), (size, distance)
