"""Counts what Python processes ask of the file system below a folder, with file_system_calls.c.

    calls = FileSystemCalls.below(folder, counter)
    subprocess.run([sys.executable, "-m", "pipeline.inspect", ...], env=calls.environment())
    print(calls.read())

A process that was started with that environment counts with `counted`.
"""

from __future__ import annotations

import os
import struct
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

SOURCE = Path(__file__).with_suffix(".c")
METADATA = (
    "open", "stat", "rename", "unlink", "mkdir", "link", "list", "fsync", "readlink",
)  # fmt: skip
KINDS = (*METADATA, "read", "bytes")
"""In the order of the counts; bytes: that were read."""
PAGE = 4096


@dataclass(frozen=True)
class FileSystemCalls:
    """The counts of all processes that share a file of counts."""

    folder: Path
    """Calls for paths below it count; as the processes spell it, so absolute."""
    counts: Path
    library: Path

    @classmethod
    def below(cls, folder: Path, counter: Path) -> FileSystemCalls:
        """Build the counter in a new folder `counter`, which must not be in `folder`."""
        counter.mkdir(parents=True)
        library, counts = counter / "file_system_calls.so", counter / "counts"
        command = ["gcc", "-O2", "-Wall", "-Werror", "-fPIC", "-shared", "-o", library, SOURCE]
        subprocess.run([*map(str, command), "-ldl"], check=True)
        counts.write_bytes(bytes(PAGE))
        return cls(folder, counts, library)

    def environment(
        self,
        *,
        meta_us: int = 0,
        read_us: int = 0,
        locks: Literal["", "none", "local"] = "",
    ) -> dict[str, str]:
        """For a process that is counted. meta_us, read_us: microseconds that each call for
        metadata, and each read, waits; locks: how flock behaves, see file_system_calls.c."""
        own = {
            "LD_PRELOAD": str(self.library), "CALLS_BELOW": str(self.folder),
            "CALLS_COUNTS": str(self.counts), "CALLS_META_US": str(meta_us),
            "CALLS_READ_US": str(read_us),
        }  # fmt: skip
        return os.environ | own | ({"CALLS_LOCKS": locks} if locks else {})

    def read(self) -> Counter[str]:
        """The calls so far, by kind."""
        return _read(self.counts)


def counted(function: Callable[[], object]) -> Counter[str]:
    """The calls of a function, by kind, in a process that was started to be counted."""
    counts = Path(os.environ["CALLS_COUNTS"])
    before = _read(counts)
    function()
    return _read(counts) - before


def metadata(calls: Counter[str]) -> int:
    """The number of calls that ask for metadata."""
    return sum(calls[kind] for kind in METADATA)


def _read(counts: Path) -> Counter[str]:
    size = len(KINDS) * struct.calcsize("L")
    found = struct.unpack(f"{len(KINDS)}L", counts.read_bytes()[:size])
    return Counter(dict(zip(KINDS, found, strict=True)))
