"""The facts of /proc about other processes. Without /proc (not Linux) every process looks gone."""

from __future__ import annotations

from pathlib import Path


def read_start_time(process: int) -> str:
    """Start time of a process, in kernel ticks; "" if it is gone or a zombie.

    Process IDs are reused: ID and start time together identify a process.
    """
    _, fields = _stat(process)
    return "" if not fields or fields[0] in "ZX" else fields[19]  # field 22 of proc(5)


def parent(process: int) -> int:
    """The parent's process ID; 0 if it is outside this container, or the process is gone."""
    _, fields = _stat(process)
    return int(fields[1]) if fields else 0  # field 4 of proc(5)


def name(process: int) -> str:
    """The first 15 bytes of the program's name, which every user may read."""
    return _stat(process)[0]


def is_python(process: int) -> bool:
    """True if a process runs a Python interpreter; False for another user's process."""
    try:
        # The kernel resolves links: a venv's `python` shows as python3.x.
        return "python" in Path(f"/proc/{process}/exe").readlink().name
    except OSError:
        return False


def command(process: int) -> list[str]:
    """The command line of a process, in words."""
    return _read(process, "cmdline").split("\0")[:-1]  # the last word ends with a NUL, too


def environment(process: int) -> set[str]:
    """The NAME=VALUE pairs a process was started with; empty for another user's process."""
    return set(_read(process, "environ").split("\0")[:-1])


def _stat(process: int) -> tuple[str, list[str]]:
    # From the last bracket: the name itself may have blanks and brackets.
    start, _, rest = _read(process, "stat").rpartition(")")
    return start.partition("(")[2], rest.split()


def _read(process: int, file: str) -> str:
    try:
        return Path(f"/proc/{process}/{file}").read_bytes().decode(errors="replace")
    except OSError:
        return ""
