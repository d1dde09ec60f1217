"""The processes that this one can see, and the unfinished files of those that are gone.

An unfinished file or folder has the name `.NAME.SCOPE-PROCESS.RANDOM.tmp`, which tells whether it
is in use, even where locks exclude no process (Lustre mounted with localflock).
"""

from __future__ import annotations

import functools
import os
import re
import secrets
import uuid
from pathlib import Path

import xxhash

STALE_SECONDS = 24 * 3600.0
"""Age at which a file of a process that cannot be seen, such as one on another node, counts as
abandoned: no work takes so long without a write."""
_TEMPORARY = re.compile(r"\.(.+)\.([0-9a-f]{8})-(\d{1,9})\.[0-9a-f]{8}\.tmp", re.DOTALL)


def process_scope() -> str:
    """Machine, boot and container: the scope in which process IDs are unique.

    Where that is unknown, a text that equals no other.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        # IDs start again after a boot, and in each container.
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return uuid.uuid4().hex


def is_running(process: int) -> bool:
    """True if a process of this scope runs, or another one that has its ID by now."""
    try:
        os.kill(process, 0)  # signal 0 only tests
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        return True
    return True


def temporary_ending() -> str:
    """An ending of a name that nothing else has, from which `is_abandoned` knows this process."""
    return f".{_scope()}-{os.getpid()}.{secrets.token_hex(4)}.tmp"


def name_when_whole(temporary: Path) -> str:
    """The final name of what is at a temporary path; "" if the path is not temporary."""
    found = _TEMPORARY.fullmatch(temporary.name)
    return found[1] if found else ""


def is_abandoned(temporary: Path, idle_seconds: float) -> bool:
    """True if the process that wrote to a temporary path is gone; idle: since its last write."""
    found = _TEMPORARY.fullmatch(temporary.name)
    if found and found[2] == _scope():
        return not is_running(int(found[3]))
    return idle_seconds > STALE_SECONDS


@functools.cache
def _scope() -> str:
    return xxhash.xxh3_64_hexdigest(process_scope().encode())[:8]
