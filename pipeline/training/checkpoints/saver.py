"""The state of a run -> its checkpoint, while training continues.

    1. main threads    create an empty .step-00000100.tmp/, copy their fragments and train on
    2. writers         one thread per rank writes and syncs that rank's files, its index last
    3. rank 0's        waits for all ranks' files and publishes them (publish.py)
    4. main threads    share how it went, before the next checkpoint or at the end

The threads communicate only through files. Collectives stay in the main thread: in another one
they would mix with those of the steps. A checkpoint that cannot be written is reported and skipped,
and training continues; `latest` and the checkpoint that it names do not change.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.base.errors import CheckpointError, PipelineError
from pipeline.cluster.ranks import RankGroup, agreed, format_rank_error
from pipeline.costs.disk import PARAMETER_BYTES
from pipeline.training.checkpoints.fragment_files import write_fragments
from pipeline.training.checkpoints.publish import (
    make_room,
    note_failure,
    publish,
    remove_leftovers,
    remove_superseded,
    temporary_directory,
    wait_for_ranks,
)
from pipeline.training.checkpoints.read import CHECKPOINTS, State
from pipeline.training.checkpoints.snapshot import Snapshot
from pipeline.training.optimizer.optimizer import FragmentState

SLOW_BYTES_PER_SECOND = 50e6
"""Assumed for one rank's writing, until it has been measured."""
VISIBLE_SECONDS = 120.0
"""Time that rank 0 waits to see a file that another rank has written; no file server is slower."""
CLOSE_SECONDS = 20.0
"""Time that a run which ends by an error waits for the current checkpoint."""


@dataclass(slots=True)
class _Attempt:
    """One checkpoint that is being written."""

    state: State
    temporary: Path
    loud: bool
    """True to warn of a failure at once, because no caller waits for the result."""
    written: threading.Event = field(default_factory=threading.Event)
    """This rank's files are on disk, or cannot be."""
    given_up: threading.Event = field(default_factory=threading.Event)
    """Ends rank 0's wait for the files of the other ranks."""
    mistake: str = ""
    """Reason why this rank cannot write."""
    failure: str = ""
    """Reason why rank 0 cannot publish."""
    reported: bool = False
    """True if a warning about the failure has been printed."""
    error: BaseException | None = None
    """An unexpected error; the main thread raises it."""
    thread: threading.Thread | None = None


class Saver:
    """Saves the checkpoints of a run, one at a time; one object per rank, for its main thread."""

    def __init__(
        self,
        run_directory: Path,
        ranks: RankGroup,
        *,
        keep: int,
        keep_every: int,
        saved_step: int = -1,
        parameters: int = 0,
        before_publishing: Callable[[], None] = lambda: None,
        tell: Callable[[str], None] = print,
    ) -> None:
        """keep, keep_every: see `Run.checkpoint`; saved_step: step of an existing checkpoint.

        parameters: number of the model's, to estimate the time of the first checkpoint.
        before_publishing: called on rank 0, in its writer's thread; tell: on rank 0, in either
        thread.
        """
        self.checkpoints = run_directory / CHECKPOINTS
        self.ranks = ranks
        self.keep = keep
        self.keep_every = keep_every
        self.kept: frozenset[int] = frozenset()
        """Further steps that are saved, and never removed."""
        self.saved_step = saved_step
        """Step of the newest checkpoint known to be published, -1 if there is none."""
        self.sound_step = -1
        """The last step whose weights gave a finite gradient. Those of a newer checkpoint may be
        broken, so the one before it is not removed yet."""
        self._estimate = parameters * PARAMETER_BYTES / ranks.world_size / SLOW_BYTES_PER_SECOND
        self._measured = 0.0
        self.before_publishing = before_publishing
        self.tell = tell
        self._snapshot = Snapshot()
        self._attempt: _Attempt | None = None

    def begin(self, fragments: Iterable[FragmentState], state: State) -> None:
        """Copy a checkpoint and start to write it, once the previous one is done. Collective.

        fragments: this rank's; over all ranks every element once (`divide` them at stage 0).
        """
        self.finish()
        self._start(fragments, state, copies=True)

    def save(self, fragments: Iterable[FragmentState], state: State) -> None:
        """Write a checkpoint straight from the fragments and wait for it. Collective.

        Raises CheckpointError on all ranks if it was not published.
        """
        self.finish()
        self._start(fragments, state, copies=False)
        mistake = self.finish()
        if mistake:
            raise CheckpointError(_not_saved(state.step, mistake))

    def finish(self) -> str:
        """Wait for the current checkpoint. Returns what went wrong, "" if nothing. Collective."""
        # 4. Every rank learns how the attempt went.
        attempt, self._attempt = self._attempt, None
        if attempt is None:
            return ""
        attempt.written.wait()
        not_written = format_rank_error(self.ranks.gather(attempt.mistake))
        if attempt.thread:
            # A rank that cannot write never has an index: no use to wait for it.
            attempt.thread.join(0 if not_written else VISIBLE_SECONDS)
            attempt.given_up.set()
            # Rank 0's writer looks a last time and ends, so the next attempt finds no other thread.
            attempt.thread.join()
        if attempt.error:
            raise attempt.error  # a bug, not a full disk
        not_published = self.ranks.gather(attempt.failure)[0]  # only rank 0 publishes
        if not not_published:
            self.saved_step = attempt.state.step
            return ""
        mistake = not_written or not_published
        self._report_failure(attempt, mistake)
        return mistake

    @property
    def writing(self) -> bool:
        """True if this rank's thread is running."""
        thread = self._attempt and self._attempt.thread
        return bool(thread and thread.is_alive())

    @property
    def seconds(self) -> float:
        """Time of the slowest checkpoint so far; before the first, estimated for a slow disk."""
        return self._measured or self._estimate

    def close(self) -> None:
        """Wait briefly for the current checkpoint. Not collective: other ranks may have ended."""
        if self._attempt and self._attempt.thread:
            self._attempt.thread.join(CLOSE_SECONDS)

    def _start(self, fragments: Iterable[FragmentState], state: State, *, copies: bool) -> None:
        assert state.world_size == self.ranks.world_size
        temporary = temporary_directory(self.checkpoints, state.step)
        attempt = self._attempt = _Attempt(state, temporary, loud=copies)
        try:
            # 1. Agreed: no rank writes before the directory is there and empty.
            with agreed(self.ranks, CheckpointError):
                if self.ranks.rank == 0:
                    # What `_publish` left: before `step` all are sound, as it has an update.
                    self._remove_old(state.step, self.keep + 1)
                    make_room(temporary, state)
        except CheckpointError as error:
            attempt.failure = str(error)
            attempt.written.set()
            self._report_failure(attempt, attempt.failure)
            return
        # Without a copy, `save` blocks training, so that no weight changes while it is written.
        parts = self._snapshot.take(fragments) if copies else list(fragments)
        attempt.thread = threading.Thread(
            target=self._work, args=(attempt, parts), name="checkpoint", daemon=True
        )
        attempt.thread.start()

    def _work(self, attempt: _Attempt, parts: list[FragmentState]) -> None:
        """Write and, on rank 0, publish a checkpoint; runs in the writer's thread."""
        began = time.monotonic()
        try:
            # 2. This rank's files.
            self._write(attempt, parts)
            attempt.written.set()
            if self.ranks.rank == 0:
                # 3. Only when its own files are on the disk.
                self._publish(attempt)
        except BaseException as error:
            attempt.error = error
        finally:
            # Failed attempts count, too: `Deadline` reserves the time of the slowest.
            self._measured = max(self._measured, time.monotonic() - began)
            attempt.written.set()

    def _write(self, attempt: _Attempt, parts: list[FragmentState]) -> None:
        try:
            # Here and not in the main thread, which trains while the GPU copies.
            self._snapshot.wait()
            write_fragments(attempt.temporary, self.ranks.rank, parts)
        except (OSError, PipelineError) as error:
            attempt.mistake = str(error)
            note_failure(attempt.temporary, self.ranks.rank, attempt.mistake)

    def _publish(self, attempt: _Attempt) -> None:
        world_size = self.ranks.world_size
        try:
            wait_for_ranks(attempt.temporary, world_size, attempt.mistake, attempt.given_up)
            # Metrics first: a resume cuts the lines after its step, and cannot restore lost ones.
            self.before_publishing()
            for warning in publish(attempt.temporary, attempt.state):
                self.tell(f"warning: {warning}")
            is_sound = self.sound_step >= attempt.state.step
            self._remove_old(attempt.state.step, self.keep if is_sound else max(2, self.keep))
        except (OSError, PipelineError) as error:
            attempt.failure = str(error)
            self._report_failure(attempt, attempt.failure)
            with suppress(OSError, PipelineError):  # the first failure is the one to report
                remove_leftovers(self.checkpoints.parent)

    def _remove_old(self, step: int, keep: int) -> None:
        """Remove checkpoints so that `keep` newest ones remain with that of `step`."""
        for warning in remove_superseded(
            self.checkpoints, step, keep=keep, keep_every=self.keep_every, kept=self.kept
        ):
            self.tell(f"warning: {warning}")

    def _report_failure(self, attempt: _Attempt, mistake: str) -> None:
        if attempt.loud and not attempt.reported and self.ranks.rank == 0:
            attempt.reported = True
            self.tell(f"warning: {_not_saved(attempt.state.step, mistake)}; training continues")


def _not_saved(step: int, mistake: str) -> str:
    return f"step {step} was not saved: {mistake}; older checkpoints are unchanged"
