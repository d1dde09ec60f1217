"""Check that a directory's file system renames atomically, which checkpoints rely on.

File systems over object stores copy and delete instead, so that a reader, or a crash, finds half of
a file. Those on which a rename fails are detected by a trial, the others by their mount type.
"""

from __future__ import annotations

import shutil
import uuid
from contextlib import suppress
from pathlib import Path

from pipeline.base.errors import CheckpointError

COPYING = (
    "s3fs", "goofys", "mount-s3", "mountpoint-s3", "gcsfuse", "blobfuse", "blobfuse2", "rclone",
    "riofs", "ossfs", "cosfs",
)  # fmt: skip
"""File systems over object stores, by the type or source in the kernel's list of mounts."""


def check_renames(directory: Path, mounts: Path = Path("/proc/self/mountinfo")) -> None:
    """Raises CheckpointError if renames in `directory` are not atomic."""
    kind = copying_kind(directory.resolve(), mounts)
    if kind:
        raise CheckpointError(
            f"{directory} is on {kind}, which copies files instead of renaming them: a crash would "
            "leave half a file; name an --output on a disk or a cluster's file system"
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
    """The file system that a directory is mounted on if it is one of COPYING, else ""."""
    try:
        lines = [line.split() for line in mounts.read_text().splitlines()]
    except OSError:
        return ""
    found = ""
    for fields in lines:  # later mounts hide earlier ones
        place = Path(fields[4].encode().decode("unicode_escape"))  # blanks are \040
        if directory.is_relative_to(place):
            kind, source = fields[fields.index("-") + 1 :][:2]  # after fields that may be absent
            names = {kind.removeprefix("fuse."), source.split("#")[0].rpartition("/")[2]}
            found = next(iter(names & set(COPYING)), "")
    return found


def _try(probe: Path) -> None:
    """Rename files and a directory, onto free and onto existing names."""
    probe.mkdir()
    old, new = probe / "old", probe / "new"
    old.write_bytes(b"old")
    new.write_bytes(b"new")
    with old.open("rb") as reader:
        new.replace(old)
        if reader.read() != b"old":
            raise OSError("an open file changes when it is replaced")
    if old.read_bytes() != b"new" or new.exists():
        raise OSError("a renamed file keeps its old name")
    (probe / "directory").mkdir()
    # A file inside has to come along.
    (probe / "directory" / "file").write_bytes(b"")
    (probe / "directory").rename(probe / "named")
    if [path.name for path in (probe / "named").iterdir()] != ["file"]:
        raise OSError("a renamed directory lost its files")
