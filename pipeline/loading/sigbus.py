"""A mapped file that got shorter, or whose disk failed -> one line, and the end of the process.

The kernel answers a read beyond a mapped file's new end with SIGBUS, in the midst of compiled code:
no Python handler ever runs. So the handler is compiled too and does the two things that are safe
there, write and _exit. To look at each file's size before each read would be cheap on a local disk,
but too much for a file server that thousands of ranks ask.
"""

from __future__ import annotations

import ctypes
import signal
from typing import Any

import numba

from pipeline.errors import EXIT_USER_ERROR

MESSAGE = (
    b"error: a mapped file of the data got shorter, or its disk failed, while it was read; run the "
    b"same command again: it looks at every file's size and names it, or goes on without it with "
    b"data.damaged=skip\n"
)
_KEPT: list[Any] = []
"""What the handler refers to, for as long as the process lives."""


def announce_bus_errors() -> None:
    """From now on a bus error in this process is MESSAGE and exit code 2."""
    if _KEPT:
        return
    libc = ctypes.CDLL(None)
    text = ctypes.create_string_buffer(MESSAGE)
    address, size, code = ctypes.addressof(text), len(MESSAGE), EXIT_USER_ERROR
    write, leave, install = libc.write, libc._exit, libc.signal
    write.argtypes, write.restype = [ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t], ctypes.c_long
    leave.argtypes, leave.restype = [ctypes.c_int], None
    install.argtypes, install.restype = [ctypes.c_int, ctypes.c_size_t], ctypes.c_size_t

    @numba.cfunc("void(int32)")
    def handler(number: int) -> None:
        write(2, address, size)
        leave(code)

    _KEPT.extend([text, handler])
    install(signal.SIGBUS, handler.address)
