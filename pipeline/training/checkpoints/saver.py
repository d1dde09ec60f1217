"""The state of a run -> its checkpoint, while training goes on.

    main threads    agree on an empty .step-00000100.tmp/, copy their fragments and train on
    writers         one thread a rank writes and syncs that rank's files, its index last
    rank 0's        waits for all ranks' files and publishes them (publishing.py)
    main threads    agree on how it went, before the next checkpoint or at the end

The threads speak to each other through files alone: no collective leaves the main thread, where it
would mix with those of the steps. What cannot be written is told and left out, and the loop goes
on; `latest` and what it names are as they were.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.errors import CheckpointError, PipelineError
from pipeline.training.checkpoints.fragment_files import PARAMETER_BYTES, write_fragments
from pipeline.training.checkpoints.publish import (
    make_room,
    named,
    note_failure,
    publish,
    remove_leftovers,
    temporary_directory,
    wait_for_ranks,
)
from pipeline.training.checkpoints.read import CHECKPOINTS, Ranks, State, agree
from pipeline.training.checkpoints.snapshot import Snapshot
from pipeline.training.optimizer.optimizer import FragmentState

SLOW_BYTES_PER_SECOND = 50e6
"""Of one rank's writing, until it has been measured."""
VISIBLE_SECONDS = 120.0
"""After which a file that another rank has written is not waited for: no file server is as slow."""
CLOSE_SECONDS = 20.0
"""How long a run that ends by an error waits for the checkpoint under way."""


@dataclass(slots=True)
class _Attempt:
    """One checkpoint on its way to the disk."""

    state: State
    temporary: Path
    loud: bool
    """Whether a failure is told at once, as nobody waits for the end."""
    written: threading.Event = field(default_factory=threading.Event)
    """This rank's files are on disk, or cannot be."""
    given_up: threading.Event = field(default_factory=threading.Event)
    """Some rank's files will not come."""
    mistake: str = ""
    """Why this rank cannot write."""
    failure: str = ""
    """Why rank 0 cannot publish."""
    told: bool = False
    error: BaseException | None = None
    """What no one foresaw; the main thread raises it."""
    thread: threading.Thread | None = None


class Saver:
    """Saves the checkpoints of a run, one at a time; one object a rank, used by its main thread."""

    def __init__(
        self,
        run_directory: Path,
        ranks: Ranks,
        *,
        keep: int,
        keep_every: int,
        saved_step: int = -1,
        parameters: int = 0,
        before_publishing: Callable[[], None] = lambda: None,
        tell: Callable[[str], None] = print,
    ) -> None:
        """keep, keep_every: see `config.run.Checkpoint`; saved_step: that is there already.

        parameters: of the model, from which the time for the first checkpoint is estimated.
        before_publishing, tell: on rank 0, from its writer's thread.
        """
        self.checkpoints = run_directory / CHECKPOINTS
        self.ranks = ranks
        self.keep = keep
        self.keep_every = keep_every
        self.saved_step = saved_step
        """Of the newest checkpoint known to be published, -1 when there is none."""
        self._estimate = parameters * PARAMETER_BYTES / ranks.world_size / SLOW_BYTES_PER_SECOND
        self._measured = 0.0
        self.before_publishing = before_publishing
        self.tell = tell
        self._snapshot = Snapshot()
        self._attempt: _Attempt | None = None

    def begin(self, fragments: Iterable[FragmentState], state: State) -> None:
        """Copy a checkpoint and begin to write it, once the one before is done. Collective.

        fragments: this rank's; over all ranks every element once (`divide` them at stage 0).
        """
        self.finish()
        self._start(fragments, state, copies=True)

    def save(self, fragments: Iterable[FragmentState], state: State) -> None:
        """Write a checkpoint straight from the fragments and wait for it. Collective.

        CheckpointError, on all ranks, when it was not published.
        """
        self.finish()
        self._start(fragments, state, copies=False)
        mistake = self.finish()
        if mistake:
            raise CheckpointError(_not_saved(state.step, mistake))

    def finish(self) -> str:
        """Wait until nothing is being written. Collective; what went wrong, "" if nothing did."""
        attempt, self._attempt = self._attempt, None
        if attempt is None:
            return ""
        attempt.written.wait()
        mistakes = self.ranks.gather(attempt.mistake)
        failed = [rank for rank, mistake in enumerate(mistakes) if mistake]
        if attempt.thread:
            attempt.thread.join(0 if failed else VISIBLE_SECONDS)
            attempt.given_up.set()
            attempt.thread.join()
        if attempt.error:
            raise attempt.error
        failure = self.ranks.gather(attempt.failure)[0]
        if not failure:
            self.saved_step = attempt.state.step
            return ""
        mistake = named(failed, mistakes[failed[0]]) if failed else failure
        self._tell_failure(attempt, mistake)
        return mistake

    @property
    def writing(self) -> bool:
        """Whether this rank's thread is at work."""
        thread = self._attempt and self._attempt.thread
        return bool(thread and thread.is_alive())

    @property
    def seconds(self) -> float:
        """What the slowest checkpoint took, or an estimate for a slow disk before the first."""
        return self._measured or self._estimate

    def close(self) -> None:
        """Give the checkpoint under way a last chance. Not collective: others may be gone."""
        if self._attempt and self._attempt.thread:
            self._attempt.thread.join(CLOSE_SECONDS)

    def _start(self, fragments: Iterable[FragmentState], state: State, *, copies: bool) -> None:
        assert state.world_size == self.ranks.world_size
        temporary = temporary_directory(self.checkpoints, state.step)
        attempt = self._attempt = _Attempt(state, temporary, loud=copies)

        def prepare() -> None:
            if self.ranks.rank == 0:
                make_room(temporary, state)

        try:
            agree(self.ranks, prepare)
        except CheckpointError as error:
            attempt.failure = str(error)
            attempt.written.set()
            self._tell_failure(attempt, attempt.failure)
            return
        parts = self._snapshot.take(fragments) if copies else list(fragments)
        attempt.thread = threading.Thread(
            target=self._work, args=(attempt, parts), name="checkpoint", daemon=True
        )
        attempt.thread.start()

    def _work(self, attempt: _Attempt, parts: list[FragmentState]) -> None:
        """What a writer's thread does."""
        began = time.monotonic()
        try:
            self._write(attempt, parts)
            attempt.written.set()
            if self.ranks.rank == 0:
                self._publish(attempt)
        except BaseException as error:
            attempt.error = error
        finally:
            self._measured = max(self._measured, time.monotonic() - began)
            attempt.written.set()

    def _write(self, attempt: _Attempt, parts: list[FragmentState]) -> None:
        try:
            self._snapshot.wait()
            write_fragments(attempt.temporary, self.ranks.rank, parts)
        except (OSError, PipelineError) as error:
            attempt.mistake = str(error)
            note_failure(attempt.temporary, self.ranks.rank, attempt.mistake)

    def _publish(self, attempt: _Attempt) -> None:
        world_size = self.ranks.world_size
        try:
            wait_for_ranks(attempt.temporary, world_size, attempt.mistake, attempt.given_up)
            self.before_publishing()
            warnings = publish(
                attempt.temporary, attempt.state, keep=self.keep, keep_every=self.keep_every
            )
        except (OSError, PipelineError) as error:
            attempt.failure = str(error)
            self._tell_failure(attempt, attempt.failure)
            with suppress(OSError, PipelineError):  # the first failure is the one to tell
                remove_leftovers(self.checkpoints.parent)
        else:
            for warning in warnings:
                self.tell(f"warning: {warning}")

    def _tell_failure(self, attempt: _Attempt, mistake: str) -> None:
        if attempt.loud and not attempt.told and self.ranks.rank == 0:
            attempt.told = True
            self.tell(f"warning: {_not_saved(attempt.state.step, mistake)}; training goes on")


def _not_saved(step: int, mistake: str) -> str:
    return f"step {step} was not saved: {mistake}; older checkpoints are as they were"
