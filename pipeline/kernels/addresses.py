"""Memory access by address in numba kernels: load and store, array pointers, prefetch.

Kernels use them to read the Arrow buffers of thousands of record batches in place. The caller
checks the address and keeps the memory's owner alive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic


def _load(item: Any) -> Any:
    @intrinsic
    def load(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kind = context.get_value_type(item)
            # align=1: a word may start at any byte of a bitmap.
            return builder.load(builder.inttoptr(arguments[0], kind.as_pointer()), align=1)

        return item(types.int64), generate

    return load


def _store(item: Any) -> Any:
    @intrinsic
    def store(typing_context: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kind = context.get_value_type(item)
            where = builder.inttoptr(arguments[0], kind.as_pointer())
            builder.store(arguments[1], where, align=1)
            return context.get_dummy_value()

        return types.void(types.int64, item), generate

    return store


def _pointer(item: Any) -> Any:
    @intrinsic
    def pointer(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return types.CPointer(item)(types.int64), generate  # type: ignore[no-untyped-call]

    return pointer


def _prefetch() -> Any:
    @intrinsic
    def fetch(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            number, byte = ir.IntType(32), ir.IntType(8).as_pointer()
            kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
            prefetch = builder.module.declare_intrinsic("llvm.prefetch", (byte,), kind)
            # LLVM's arguments: read or write, locality from 0 to 3, and data or instructions.
            read, second_level, data = number(0), number(2), number(1)
            where = builder.inttoptr(arguments[0], byte)
            builder.call(prefetch, [where, read, second_level, data])
            return context.get_dummy_value()

        return types.void(types.int64), generate

    return fetch


def _part() -> Any:
    @intrinsic
    def part(typing_context: Any, array: Any, start: Any, stop: Any) -> Any:
        item = array.dtype
        line = types.Array(item, 1, "C")

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            whole = context.make_array(array)(context, builder, arguments[0])
            found = context.make_array(line)(context, builder)
            size = context.get_constant(
                types.intp, context.get_abi_sizeof(context.get_data_type(item))
            )
            count = builder.sub(arguments[2], arguments[1])
            start = builder.gep(whole.data, [arguments[1]])
            # No meminfo: numba counts references only of arrays that have one.
            context.populate_array(
                found, data=start, shape=[count], strides=[size], itemsize=size, meminfo=None
            )
            return found._getvalue()

        return line(array, types.intp, types.intp), generate

    return part


load_int8: Callable[[int], int] = _load(types.int8)
"""Load the item at an address, aligned or not; so do the five below, for their types."""
load_uint8: Callable[[int], int] = _load(types.uint8)
load_uint16: Callable[[int], int] = _load(types.uint16)
load_int32: Callable[[int], int] = _load(types.int32)
load_uint32: Callable[[int], int] = _load(types.uint32)
load_uint64: Callable[[int], Any] = _load(types.uint64)

store_uint64: Callable[[int, Any], None] = _store(types.uint64)
"""Store an item at an address, aligned or not."""

uint16_pointer: Callable[[int], Any] = _pointer(types.uint16)
"""Convert an address to a pointer for `numba.carray`; so does the one below."""
uint32_pointer: Callable[[int], Any] = _pointer(types.uint32)

fetch: Callable[[int], None] = _prefetch()
"""Prefetch the cache line at an address; harmless if nothing is mapped there."""

part: Callable[[Any, Any, Any], Any] = _part()
"""Items [start, stop) of a contiguous array of any shape, without a reference to its owner.

A slice would hold a reference, counted by locked instructions, dozens per row of a kernel.
"""


@numba.njit(cache=True, nogil=True)
def load_word(address: int, size: int) -> np.uint64:
    """The next 8 bytes, or `size` bytes if fewer remain, as a little-endian word."""
    word: np.uint64 = np.uint64(0)
    if size >= 8:
        word = load_uint64(address)
        return word
    # Eight bytes at once could reach beyond the buffer, and beyond its mapping.
    for byte in range(size):
        word |= np.uint64(load_uint8(address + byte)) << np.uint64(8 * byte)
    return word
