"""Handles SIGBUS: after a mapped file is truncated or a disk fails, the process ends with one line.

The kernel raises SIGBUS in the middle of compiled code, where no Python handler runs. So the
handler is compiled too, and calls only write and _exit, which are safe there. Checking each file's
size before each read would be cheap on a local disk, but too much load on a file server that
thousands of ranks share.
"""

from __future__ import annotations

import ctypes
import signal
from typing import Any

import numba

from pipeline.base.errors import EXIT_USER_ERROR

MESSAGE = (
    b"error: a mapped data file was truncated, or its disk failed, while it was read; run the same "
    b"command again: it checks every file's size and names the bad file, or skips it with "
    b"data.damaged=skip\n"
)
_KEPT: list[Any] = []
"""Keeps what the handler refers to alive until the process ends."""


def announce_bus_errors() -> None:
    """On a bus error in this process, print MESSAGE and exit with code 2."""
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
