"""Whether a directory's file system renames in one step, which checkpoints rely on.

Object stores behind a file system copy and delete instead: a reader, or a crash, finds halves.
Those that say so by failing are found by trying, the others by the name they are mounted under.
"""

from __future__ import annotations

import shutil
import uuid
from contextlib import suppress
from pathlib import Path

from pipeline.errors import CheckpointError

COPYING = (
    "s3fs", "goofys", "mount-s3", "mountpoint-s3", "gcsfuse", "blobfuse", "blobfuse2", "rclone",
    "riofs", "ossfs", "cosfs",
)  # fmt: skip
"""File systems over object stores, by the type or the source that the kernel lists them with."""


def check_renames(directory: Path, mounts: Path = Path("/proc/self/mountinfo")) -> None:
    """CheckpointError when renames in `directory` are not what checkpoints need."""
    kind = copying_kind(directory.resolve(), mounts)
    if kind:
        raise CheckpointError(
            f"{directory} is on {kind}, which copies files where it should rename them: a crash "
            "would leave halves; name an --output on a disk or a cluster's file system"
        )
    probe = directory / f".{uuid.uuid4().hex}.tmp"
    try:
        _try(probe)
    except OSError as error:
        raise CheckpointError(
            f"{directory} is on a file system that cannot be used for checkpoints: renaming there "
            f"fails ({error.strerror or error}); name another --output"
        ) from error
    finally:
        with suppress(OSError):
            shutil.rmtree(probe)


def copying_kind(directory: Path, mounts: Path) -> str:
    """What a directory is mounted as, if that is one of COPYING; "" otherwise."""
    try:
        lines = [line.split() for line in mounts.read_text().splitlines()]
    except OSError:
        return ""
    found = ""
    for fields in lines:  # later mounts lie over earlier ones
        place = Path(fields[4].encode().decode("unicode_escape"))
        if directory.is_relative_to(place):
            kind, source = fields[fields.index("-") + 1 :][:2]
            names = {kind.removeprefix("fuse."), source.split("#")[0].rpartition("/")[2]}
            found = next(iter(names & set(COPYING)), "")
    return found


def _try(probe: Path) -> None:
    """Give files and a directory names that are free and names that are taken."""
    probe.mkdir()
    old, new = probe / "old", probe / "new"
    old.write_bytes(b"old")
    new.write_bytes(b"new")
    with old.open("rb") as reader:
        new.replace(old)
        if reader.read() != b"old":
            raise OSError("who reads a file sees what replaces it")
    if old.read_bytes() != b"new" or new.exists():
        raise OSError("a file has two names")
    (probe / "directory").mkdir()
    (probe / "directory" / "file").write_bytes(b"")
    (probe / "directory").rename(probe / "named")
    if [path.name for path in (probe / "named").iterdir()] != ["file"]:
        raise OSError("a renamed directory lost its files")
