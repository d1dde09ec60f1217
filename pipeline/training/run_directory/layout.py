"""RUN: which job may write into it, and the marks that batch scripts read.

ready          a job is running and handles signals
INTERRUPTED    the last job was asked to stop and lost nothing; the same command resumes it
general        rows of the general sample, in a run that starts from given weights
.slow-nodes    hosts that slowed the others down, one per line; exclude them from the next job

history.py describes history.tsv, and `tenfold status` shows what all of them say.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.base.errors import CheckpointError
from pipeline.base.files import remove_temporaries, write_whole
from pipeline.training.checkpoints.publish import remove_leftovers
from pipeline.training.checkpoints.read import CHECKPOINTS, saved_steps
from pipeline.training.run_directory.boards import TENSORBOARD, WANDB
from pipeline.training.run_directory.history import (
    BEGAN,
    ENDED,
    HISTORY,
    INTERRUPTION,
    note_error,
    note_event,
    own_log,
)
from pipeline.training.run_directory.lease import LEASE, hold, is_free
from pipeline.training.run_directory.metrics_log import CURVE, METRICS
from pipeline.training.run_directory.profile import PROFILE
from pipeline.training.run_directory.rename_check import check_renames
from pipeline.training.run_directory.run_json import RECORD
from pipeline.training.run_directory.run_status import PLAN

READY = "ready"
INTERRUPTED = "INTERRUPTED"
GENERAL = "general"
SLOW_NODES = ".slow-nodes"
OURS = {
    READY, INTERRUPTED, LEASE, HISTORY, CHECKPOINTS, RECORD, METRICS, TENSORBOARD, WANDB, CURVE,
    PROFILE, PLAN, GENERAL,
}  # fmt: skip


@contextmanager
def claim(run: Path) -> Iterator[None]:
    """Create and hold RUN inside, for one process of a job. Raises CheckpointError if it cannot.

    Cleans up after a crash. Call `mark_interrupted` inside.
    """
    try:
        run.mkdir(parents=True, exist_ok=True)
        others = sorted(
            path.name
            for path in run.iterdir()
            if path.name not in OURS and not path.name.startswith(".")
        )
    except OSError as error:
        raise CheckpointError(
            f"cannot write to {run}: {error.strerror}; name another --output"
        ) from error
    # A run may hold its user's own files.
    if others and not (run / RECORD).exists():
        raise CheckpointError(
            f"--output {run} holds other files ({', '.join(others[:3])}); name a new directory"
        )
    with hold(run):
        # Only with the lease: what a live job is writing looks like leftovers.
        check_renames(run)
        remove_leftovers(run)
        remove_temporaries(run)
        (run / READY).unlink(missing_ok=True)
        (run / SLOW_NODES).unlink(missing_ok=True)
        note_event(run, BEGAN, own_log())
        try:
            yield
        except BaseException as error:
            note_error(run, error)
            raise
        else:
            note_event(run, INTERRUPTION if (run / INTERRUPTED).exists() else ENDED)
        finally:
            (run / READY).unlink(missing_ok=True)


def has_checkpoints(run: Path) -> bool:
    """True if there are checkpoints, damaged or not."""
    return bool(saved_steps(run / CHECKPOINTS))


def mark_ready(run: Path) -> None:
    """Mark that this job handles signals, and remove the mark of an earlier interruption."""
    (run / INTERRUPTED).unlink(missing_ok=True)
    write_whole(run / READY, b"")  # last: it never stands next to an old INTERRUPTED


def mark_stopped_at_start(run: Path) -> None:
    """Mark that a job was stopped before it trained, unless another live job holds RUN."""
    if run.is_dir() and is_free(run):
        write_whole(run / INTERRUPTED, b"before training\n")
        note_event(run, INTERRUPTION, "before training")


def mark_interrupted(run: Path, step: int) -> None:
    """Mark that the run is saved and should be started again."""
    write_whole(run / INTERRUPTED, f"step {step}\n".encode())
