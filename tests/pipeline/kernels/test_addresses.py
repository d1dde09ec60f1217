"""Reads at an address equal numpy's, aligned or not."""

import numba
import numpy as np
import numpy.typing as npt
from numba import carray

from pipeline.kernels import addresses


@numba.njit
def read(address: int) -> tuple[int, int, int, int, int, int]:
    addresses.fetch(address + 64)
    return (
        addresses.load_int8(address), addresses.load_uint8(address),
        addresses.load_uint16(address), addresses.load_int32(address),
        addresses.load_uint32(address), addresses.load_uint64(address),
    )  # fmt: skip


@numba.njit
def total(address: int, count: int) -> tuple[int, int]:
    small = carray(addresses.uint16_pointer(address), count)
    large = carray(addresses.uint32_pointer(address), count // 2)
    return small.sum(), large.sum()


def test_loads_equal_numpys() -> None:
    content = np.random.default_rng(0).integers(0, 256, 64).astype(np.uint8)
    content[3] = 255  # a negative int8
    for start in range(17):
        types = (np.int8, np.uint8, np.uint16, np.int32, np.uint32, np.uint64)
        expected = [int(np.frombuffer(content, kind, 1, start)[0]) for kind in types]
        assert list(read(content.ctypes.data + start)) == expected


def test_an_address_becomes_an_array() -> None:
    content = np.arange(100, dtype=np.uint16)
    wide = content.view(np.uint32)
    assert total(content.ctypes.data, 100) == (content.sum(), wide.sum(dtype=np.uint64))


@numba.njit
def put(array: npt.NDArray[np.uint16], start: int, stop: int) -> int:
    addresses.fetch(0)  # which is not mapped
    addresses.fetch(1)
    found = addresses.part(array, start, stop)
    found[0] = 7
    return len(found)


def test_a_prefetch_is_harmless_and_a_part_of_an_array_is_its_items() -> None:
    flat, square = np.arange(100, dtype=np.uint16), np.zeros((10, 10), np.uint16)
    assert put(flat, 10, 20) == 10 and flat[10] == 7 and (flat != np.arange(100)).sum() == 1
    assert put(square, 20, 30) == 10 and square[2, 0] == 7
