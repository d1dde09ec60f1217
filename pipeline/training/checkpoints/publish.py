"""All ranks' files in .step-00000100.tmp/ -> a published checkpoint; old ones are removed.

Only rank 0 publishes:

1. Wait until each rank has written its index, which is its last file, or why it could not write.
2. Check that every element of each parameter is there once.
3. Merge the indices and write state.json.
4. Rename the directory.
5. Update `latest`.
6. Remove the checkpoints that are not kept.

A crash between any two of these leaves the old checkpoints, or the new one as well, never half of
one.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from pipeline.base.errors import CheckpointError, PipelineError
from pipeline.base.files import write_whole
from pipeline.base.publish import publish_folder
from pipeline.cluster.ranks import format_rank_error
from pipeline.training.checkpoints.fragment_files import (
    check_file,
    file_names,
    in_order,
    index_name,
    read_index,
    seal,
    write_merged,
    write_synced,
)
from pipeline.training.checkpoints.read import (
    CHECKPOINTS,
    FORMAT,
    LATEST,
    STATE,
    State,
    saved_steps,
    step_name,
)

POLL_SECONDS = 0.1
"""Seconds between two checks for the other ranks' files; a check lists the directory once."""


def temporary_directory(checkpoints: Path, step: int) -> Path:
    """The directory for a step's files until the checkpoint is published."""
    return checkpoints / f".{step_name(step)}.tmp"


def make_room(temporary: Path, state: State) -> None:
    """Make the empty directory. Raises CheckpointError if the disk has too little free space."""
    if temporary.exists():
        # Left by an attempt at this step that failed or was killed.
        shutil.rmtree(temporary)
    temporary.mkdir(parents=True)
    disk = os.statvfs(temporary)
    # f_bavail: f_bfree includes blocks that only root may use.
    needed, free = state.tensor_bytes, disk.f_bavail * disk.f_frsize
    if free < needed:
        temporary.rmdir()
        raise CheckpointError(
            f"a checkpoint takes {needed / 1e6:,.1f} MB, {temporary.parent} has "
            f"{free / 1e6:,.1f} MB free"
        )


def note_failure(temporary: Path, rank: int, mistake: str) -> None:
    """Report to rank 0 that this rank cannot write. Its own files are removed first: that frees
    space for the note."""
    with suppress(OSError, PipelineError):  # then rank 0 learns of it in `Saver.finish`
        for name in file_names(rank):
            (temporary / name).unlink(missing_ok=True)
        write_whole(temporary / _note_name(rank), mistake.encode())


def wait_for_ranks(
    temporary: Path, world_size: int, mistake: str, given_up: threading.Event
) -> None:
    """Return when every rank's files are there. Raises CheckpointError if a rank cannot write.

    mistake: rank 0's own. In both cases no rank is still writing, unless `given_up` ended the
    wait: then a rank may be.
    """
    # 1. A rank may be slow, or may have failed.
    while True:
        # Read before the listing, which then shows all files written so far.
        last = given_up.is_set()
        # One listing: network file systems may cache look-ups of single names.
        present = {path.name for path in temporary.iterdir()}
        failed = [rank for rank in range(1, world_size) if _note_name(rank) in present]
        missing = [
            rank for rank in range(1, world_size)
            if rank not in failed and index_name(rank) not in present
        ]  # fmt: skip
        if not missing or last:
            break
        given_up.wait(POLL_SECONDS)
    notes = [
        (temporary / _note_name(rank)).read_text() if rank in failed else ""
        for rank in range(1, world_size)
    ]
    if message := format_rank_error([mistake, *notes]):
        raise CheckpointError(message)
    if missing:
        raise CheckpointError(
            f"rank 0 does not see the files of ranks {', '.join(map(str, missing))}; name an "
            "--output that all nodes share"
        )


def publish(temporary: Path, state: State) -> list[str]:
    """Complete and rename the directory; returns warnings about what cannot be removed."""
    _complete(temporary, state)  # 2. and 3.
    checkpoints, name = temporary.parent, step_name(state.step)
    final, replaced = checkpoints / name, checkpoints / f".{name}.replaced"
    publish_folder(temporary, final, replaced)  # 4. by one rename, or two for a step saved before
    write_whole(checkpoints / LATEST, f"{name}\n".encode())  # 5. names what is there
    return _remove([replaced]) if replaced.exists() else []


def remove_superseded(
    checkpoints: Path, step: int, *, keep: int, keep_every: int, kept: Collection[int]
) -> list[str]:
    """Remove checkpoints before `step` (6.); returns warnings.

    With that of `step`, `keep` newest ones remain, and all of keep_every and `kept`.
    """
    # Only now: until `latest` names the new one, a resume needs them.
    older = {other: path for other, path in saved_steps(checkpoints).items() if other < step}
    beyond = list(older)[: max(0, len(older) + 1 - keep)]
    forever = {other for other in older if keep_every and other % keep_every == 0} | {*kept}
    return _remove([older[other] for other in beyond if other not in forever])


def remove_newer(checkpoints: Path, step: int) -> list[str]:
    """Remove the checkpoints of steps after `step`, which are undone; returns warnings."""
    return _remove([path for other, path in saved_steps(checkpoints).items() if other > step])


def remove_leftovers(run_directory: Path) -> None:
    """Clean up after a crashed save. Only for rank 0 of the job that holds the run directory."""
    checkpoints = run_directory / CHECKPOINTS
    try:
        for replaced in checkpoints.glob(".step-*.replaced"):
            original = checkpoints / replaced.name.removeprefix(".").removesuffix(".replaced")
            if original.exists():
                shutil.rmtree(replaced)
            else:
                # Killed between the two renames: the older checkpoint gets its name back.
                replaced.rename(original)
        for path in checkpoints.glob(".step-*.tmp"):
            shutil.rmtree(path)
        for path in checkpoints.glob(f".{LATEST}.*.tmp"):
            path.unlink()
    except OSError as error:
        raise CheckpointError(f"cannot clean up {checkpoints}: {error}") from error


def _complete(temporary: Path, state: State) -> None:
    """Check that the ranks' files hold every element once, then write index.json and state.json."""
    indexes = [read_index(temporary, rank) for rank in range(state.world_size)]
    for file in (file for index in indexes for file in index.files):
        # Sizes only: hashes would read back all that has just been written.
        check_file(temporary, file, content=False)
    in_order((tensor for index in indexes for tensor in index.tensors), state.shapes)
    merged = write_merged(temporary, indexes)
    for rank in range(state.world_size):
        (temporary / index_name(rank)).unlink()
    record = {"format": FORMAT, **asdict(state), "index": asdict(merged)}
    # Last: a directory without state.json is not a checkpoint.
    write_synced(temporary / STATE, [seal(record)])


def _remove(paths: list[Path]) -> list[str]:
    warnings = []
    for path in paths:
        hidden = path.with_name(f".{path.name.removeprefix('.')}.tmp")
        try:
            path.rename(hidden)  # so that no reader sees half of one
            shutil.rmtree(hidden)
        except OSError as error:
            warnings.append(f"cannot remove the old checkpoint {path}: {error.strerror}")
    return warnings


def _note_name(rank: int) -> str:
    return f"failed-{rank:05d}"
