"""Which processes this one can see: those whose IDs mean the same to it."""

from __future__ import annotations

import os
import uuid
from pathlib import Path


def process_scope() -> str:
    """Machine, boot and container: the scope in which process IDs are unique.

    Where that is unknown, a text that equals no other.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return uuid.uuid4().hex


def is_running(process: int) -> bool:
    """Whether a process of this scope runs, or another one that has its ID by now."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        return True
    return True
