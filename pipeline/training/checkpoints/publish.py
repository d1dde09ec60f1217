"""All ranks' files in .step-00000100.tmp/ -> a checkpoint with a name; old ones go.

Rank 0 alone does this. It waits until each rank has left its index there, which is each rank's last
file, or a note of why it could not; finds every element of each parameter once; writes state.json,
renames the directory, then `latest`, then removes what is not to be kept. A crash between any two
of these leaves the checkpoints that were there, or the new one too, never half of one.
"""

from __future__ import annotations

import os
import shutil
import threading
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from pipeline.errors import CheckpointError, PipelineError
from pipeline.files import sync_directory, write_whole
from pipeline.training.checkpoints.fragment_files import (
    check_file,
    describe,
    file_names,
    in_order,
    index_name,
    read_index,
    seal,
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
"""Between two looks for the other ranks' files; one look is one listing of the directory."""


def temporary_directory(checkpoints: Path, step: int) -> Path:
    """Where the ranks write a step's files before they have a name."""
    return checkpoints / f".{step_name(step)}.tmp"


def make_room(temporary: Path, state: State) -> None:
    """Make the empty directory; CheckpointError when the disk has no space for what comes."""
    if temporary.exists():
        shutil.rmtree(temporary)
    temporary.mkdir(parents=True)
    disk = os.statvfs(temporary)
    needed, free = state.tensor_bytes, disk.f_bavail * disk.f_frsize
    if free < needed:
        temporary.rmdir()
        raise CheckpointError(
            f"it takes {needed / 1e6:,.1f} MB, {temporary.parent} has {free / 1e6:,.1f} MB free"
        )


def note_failure(temporary: Path, rank: int, mistake: str) -> None:
    """Tell rank 0 that this rank cannot write; its own files go first, which makes room."""
    with suppress(OSError, PipelineError):  # then rank 0 hears of it at the next checkpoint
        for name in file_names(rank):
            (temporary / name).unlink(missing_ok=True)
        write_whole(temporary / _note_name(rank), mistake.encode())


def wait_for_ranks(
    temporary: Path, world_size: int, mistake: str, given_up: threading.Event
) -> None:
    """Return when every rank's files are there; CheckpointError when one cannot write.

    mistake: of rank 0 itself. Either way all ranks have answered and write no more, unless
    `given_up` ended the waiting.
    """
    while True:
        last = given_up.is_set()  # before the look: what had come by then is not missed
        present = {path.name for path in temporary.iterdir()}
        failed = [rank for rank in range(1, world_size) if _note_name(rank) in present]
        missing = [
            rank for rank in range(1, world_size)
            if rank not in failed and index_name(rank) not in present
        ]  # fmt: skip
        if not missing or last:
            break
        given_up.wait(POLL_SECONDS)
    if mistake:
        raise CheckpointError(named([0, *failed], mistake))
    if failed:
        raise CheckpointError(named(failed, (temporary / _note_name(failed[0])).read_text()))
    if missing:
        raise CheckpointError(
            f"the files of ranks {', '.join(map(str, missing))} did not come to rank 0; name an "
            "--output that all nodes share"
        )


def named(ranks: list[int], mistake: str) -> str:
    """A mistake of the first of several ranks, with all their numbers."""
    first = f"rank {ranks[0]}: " if ranks[0] else ""
    others = f" (and ranks {', '.join(map(str, ranks[1:]))})" if ranks[1:] else ""
    return first + mistake + others


def publish(temporary: Path, state: State, *, keep: int, keep_every: int) -> list[str]:
    """Complete the directory, give it its name, remove old ones; what could not be removed."""
    _complete(temporary, state)
    checkpoints, name = temporary.parent, step_name(state.step)
    final, replaced = checkpoints / name, checkpoints / f".{name}.replaced"
    if final.exists():
        final.rename(replaced)
    temporary.rename(final)
    sync_directory(checkpoints)
    write_whole(checkpoints / LATEST, f"{name}\n".encode())
    superseded = _superseded(checkpoints, state.step, keep, keep_every)
    return _remove([replaced] * replaced.exists() + superseded)


def remove_newer(checkpoints: Path, step: int) -> list[str]:
    """Remove the checkpoints of steps after `step`, which are undone; what could not be removed."""
    return _remove([path for other, path in saved_steps(checkpoints).items() if other > step])


def remove_leftovers(run_directory: Path) -> None:
    """Undo what a crashed save left. Only for rank 0 of the job that holds the run directory."""
    checkpoints = run_directory / CHECKPOINTS
    try:
        for replaced in checkpoints.glob(".step-*.replaced"):
            original = checkpoints / replaced.name.removeprefix(".").removesuffix(".replaced")
            if original.exists():
                shutil.rmtree(replaced)
            else:
                replaced.rename(original)
        for path in checkpoints.glob(".step-*.tmp"):
            shutil.rmtree(path)
        for path in checkpoints.glob(f".{LATEST}.*.tmp"):
            path.unlink()
    except OSError as error:
        raise CheckpointError(f"cannot clean up {checkpoints}: {error}") from error


def _complete(temporary: Path, state: State) -> None:
    """Write state.json once every rank's files are found to be there and hold everything once."""
    indexes = [read_index(temporary, rank) for rank in range(state.world_size)]
    files = [file for index in indexes for file in index.files]
    for file in files:
        check_file(temporary, file, content=False)
    in_order((tensor for index in indexes for tensor in index.tensors), state.shapes)
    files += [describe(temporary / index_name(rank)) for rank in range(state.world_size)]
    record = {"format": FORMAT, **asdict(state), "files": [asdict(file) for file in files]}
    write_synced(temporary / STATE, [seal(record)])
    sync_directory(temporary)


def _remove(paths: list[Path]) -> list[str]:
    warnings = []
    for path in paths:
        hidden = path.with_name(f".{path.name.removeprefix('.')}.tmp")
        try:
            path.rename(hidden)  # so that no half of one is ever seen under its name
            shutil.rmtree(hidden)
        except OSError as error:
            warnings.append(f"cannot remove the old checkpoint {path}: {error.strerror}")
    return warnings


def _superseded(checkpoints: Path, step: int, keep: int, keep_every: int) -> list[Path]:
    """Older checkpoints than `step`'s that are neither among the newest nor kept for ever."""
    older = {other: path for other, path in saved_steps(checkpoints).items() if other < step}
    beyond = list(older)[: max(0, len(older) + 1 - keep)]
    return [older[other] for other in beyond if not keep_every or other % keep_every]


def _note_name(rank: int) -> str:
    return f"failed-{rank:05d}"
