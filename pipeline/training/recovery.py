"""What a run does about a loss spike, a damaged shard, or gradients that stay infinite.

After a spike (loss_watch.py) it does what PaLM's authors did by hand (Chowdhery et al. 2022, sec.
5.1, recalled):

1. Choose a checkpoint before the steps whose sequences are to be skipped.
2. Restore it, but not the counts of spikes and rollbacks.
3. Skip the sequences that were read around the spike, by their places in the order of samples: the
   same ones at any number of ranks and after any resume.
4. Save that, and only then remove the checkpoints of the undone steps (`Trainer._go_back`).

A damaged or missing shard is excluded on all ranks if `data.damaged=skip`. The order of samples
stays: a row of such a shard is read as a row of weight 0. A resume excludes the same shards, as
state.json names them. A file that is truncated while it is mapped ends the process with one line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from tqdm import tqdm

from pipeline.base.errors import DataError, DivergedError
from pipeline.cluster.ranks import Cluster, agreed, report_once
from pipeline.cluster.stop_request import StopRequest
from pipeline.config.run import Run
from pipeline.config.training_settings import SpikeSettings
from pipeline.loading.dataset import Dataset, ExcludedShards
from pipeline.loading.order import places_of
from pipeline.planning.phase_plan import all_damaged
from pipeline.training.checkpoints.data_position import (
    Readings,
    describe_skipped,
    reading_of,
    with_reading,
)
from pipeline.training.checkpoints.publish import remove_newer
from pipeline.training.checkpoints.read import State, open_from, saved_steps
from pipeline.training.checkpoints.saver import Saver
from pipeline.training.feed import Feed
from pipeline.training.loss_watch import LossWatch, Spike
from pipeline.training.optimizer.engine import ZeroEngine
from pipeline.training.run_progress import Progress, restore

MOST_SKIPPED = 10
"""Steps in a row without a finite gradient after which the run ends."""


class Rollback(Exception):
    """The run goes back to a checkpoint; raised on every rank at the same place."""

    def __init__(self, spike_step: int, directory: Path) -> None:
        """directory: the checkpoint's."""
        super().__init__(f"back to {directory}")
        self.spike_step = spike_step
        self.directory = directory


@dataclass(slots=True, kw_only=True)
class Recovery:
    """Decides how a run continues after a spike or a data error; all methods are collective."""

    run: Run
    cluster: Cluster
    engine: ZeroEngine
    feed: Feed
    saver: Saver
    stop: StopRequest
    losses: LossWatch

    def on_loss(self, spike: Spike | None, progress: Progress) -> Progress:
        """Report and count a spike. Raises Rollback if the run goes back to a checkpoint.

        Raises DivergedError if all rollbacks are used up.
        """
        if spike is None:
            return progress
        self._warn(str(spike))
        most = self.run.spikes.rollbacks
        if most > 0:
            self.saver.finish()
            # 1. After `finish`: the checkpoint that was being written may be the one.
            found = checkpoint_before(
                self.saver.checkpoints, spike.step, self.run.spikes.skip_before
            )
            # The first rank's choice: a file server may show the others another listing.
            directory = self.cluster.from_first(str(found or "").encode()).decode()
            if progress.rollbacks >= most:
                self._end_diverged(f"{spike}, and spikes.rollbacks={most} are used up", directory)
            if directory:
                raise Rollback(spike.step, Path(directory))
            self._warn("there is no checkpoint before it to go back to; training continues")
        return replace(progress, spikes=progress.spikes + 1)

    def go_back(self, rollback: Rollback, progress: Progress) -> Progress:
        """Restore the checkpoint of a rollback; returns its progress, with what to skip."""
        with self.cluster.agreed():
            # 2. Verified again, as it may have been damaged since it was written.
            checkpoint, _ = open_from(rollback.directory, self.cluster)
            restore(self.engine, checkpoint)
        state = checkpoint.state
        # 3. From the readings of now, which have what earlier rollbacks skipped.
        readings = skip_around(
            self.run.spikes, self.feed.read_in, rollback.spike_step, progress.readings, state
        )
        restored = replace(
            Progress.of(state),
            # With what was undone: a spike that comes back uses up the rollbacks.
            spikes=progress.spikes + 1,
            rollbacks=progress.rollbacks + 1,
            readings=readings,
            # Damage found since that checkpoint stays.
            excluded=progress.excluded,
        )
        self.losses.reset(state.recent_losses)
        self.engine.optimizer.telemetry.report()  # drops that of the undone steps
        self._warn(
            f"back to step {state.step:,}, rollback {restored.rollbacks} of "
            f"{self.run.spikes.rollbacks}; skipped so far: {restored.skipped_sequences:,} "
            f"sequences, at {', '.join(describe_skipped(readings))} of the order"
        )
        return restored

    def remove_undone(self, step: int) -> None:
        """Remove the checkpoints after `step`, once that step is saved with what it skips."""
        # 4. Not if the save failed: a resume would need the newer ones.
        if not self.saver.finish() and self.cluster.rank == 0:
            for warning in remove_newer(self.saver.checkpoints, step):
                self._warn(warning)

    def on_data_error(self, progress: Progress) -> Progress | None:
        """Exclude the shards that any rank found damaged, if `data.damaged=skip`.

        Returns None if that does not help: no rank has an error, or no training shard causes it.
        """
        # The same on all ranks, so none waits in the gather below.
        if self.run.data.damaged == "stop":
            return None
        mistake = self.stop.mistake
        damaged, is_mine = find_damaged(mistake, self.feed.datasets, self.cluster)
        if not damaged:
            return None
        if is_mine:
            print(f"warning: {mistake}", file=sys.stderr)
            self.stop.mistake = None  # handled: `train` raises what remains
        reads = [phase.train for phase in self.feed.phases]
        return exclude_shards(progress, self.feed.datasets, reads, damaged, self.cluster)

    def check_gradients(self, progress: Progress) -> None:
        """Raises DivergedError after MOST_SKIPPED steps in a row without a finite gradient."""
        if not progress.skipped_in_a_row:
            self.saver.sound_step = progress.step - 1  # whose weights gave this gradient
        elif progress.skipped_in_a_row >= MOST_SKIPPED:
            self.end_broken(progress)

    def end_broken(self, progress: Progress) -> None:
        """Raises DivergedError for a run whose last update was skipped or whose last held-out loss
        is not finite."""
        self.saver.finish()
        skipped = progress.skipped_in_a_row
        what = f"the held-out loss of step {progress.step:,} is not finite"
        if skipped:
            steps = f"{skipped} steps in a row, up to step" if skipped > 1 else "step"
            what = f"the gradient was not finite in {steps} {progress.step:,}"
        # Weights are good if they gave a finite gradient: those of the last update did not.
        saved = saved_steps(self.saver.checkpoints).items()
        good = [path for step, path in saved if step < progress.step - skipped]
        last = self.cluster.from_first(str(good[-1] if good else "").encode()).decode()
        self._end_diverged(what, last)

    def _end_diverged(self, what: str, last_good: str) -> None:
        """Raises DivergedError on all ranks; last_good: directory of a checkpoint, "" if none."""
        again = f"fork {last_good} with --from into" if last_good else "start again with"
        with report_once(self.cluster.rank):
            raise DivergedError(
                f"{what}; last good checkpoint: {last_good or 'none'}. Lower optimizer.peak_lr, or "
                f"look at the data, and {again} another --output"
            )

    def fields(self, progress: Progress) -> dict[str, float | str]:
        """Fields of metrics: spikes, rollbacks and what is skipped, if the run looks for these."""
        found: dict[str, float | str] = {}
        if self.losses.on:
            found = {
                "loss_spikes": progress.spikes,
                "rollbacks": progress.rollbacks,
                "skipped_sequences": progress.skipped_sequences,
            }
        if progress.excluded:
            found["left_out"] = ", ".join(file for _, file in progress.excluded)
        return found

    def _warn(self, message: str) -> None:
        if self.cluster.rank == 0:
            tqdm.write(f"warning: {message}", file=sys.stderr)


def checkpoint_before(checkpoints: Path, spike_step: int, skip_before: int) -> Path | None:
    """The newest checkpoint before all steps to skip, else the oldest one before the spike."""
    steps = {step: path for step, path in saved_steps(checkpoints).items() if step < spike_step}
    early = [step for step in steps if step < spike_step - skip_before]
    chosen = max(early) if early else min(steps, default=None)
    return None if chosen is None else steps[chosen]


def skip_around(
    settings: SpikeSettings,
    read_in: Callable[[int], tuple[int, int]],
    spike_step: int,
    now: Readings,
    state: State,
) -> Readings:
    """The readings of a checkpoint's state, with the sequences around a spike skipped.

    read_in: order and number of sequences of the step after a number of steps;
    now: the readings when the spike was found.
    """
    # What the checkpoint was trained on stays.
    first = max(state.step, spike_step - 1 - settings.skip_before)
    begins, ends = dict[int, int](), dict[int, int]()
    for step in range(state.step, spike_step + settings.skip_after):
        order, sequences = read_in(step)
        # A phase reads on where the one before it in its order ends.
        begin = ends.get(order, reading_of(state.readings, order).sequences)
        if step >= first:
            begins.setdefault(order, begin)
        ends[order] = begin + sequences
    found = state.readings
    # `now` also has orders in which an earlier rollback skipped.
    for order in {reading.order for reading in (*now, *state.readings)} | begins.keys():
        skipped = reading_of(now, order).skipped
        if order in begins:
            skipped = _add_range(skipped, begins[order], ends[order])
        found = with_reading(found, reading_of(found, order)._replace(skipped=skipped))
    return found


def _add_range(
    skipped: tuple[tuple[int, int], ...], begin: int, end: int
) -> tuple[tuple[int, int], ...]:
    """Add positions [begin, end) of what is not skipped; returns sorted, disjoint places."""
    # Positions count what is read, places everything; a skipped range may follow the last one.
    places = places_of(np.array([begin, end - 1]), skipped)
    ranges = sorted([*skipped, (int(places[0]), int(places[1]) + 1)])
    merged = ranges[:1]
    for begin, end in ranges[1:]:
        # Touching ranges merge, too: an order steps over each range by itself.
        if begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return tuple(merged)


def exclude_shards(
    progress: Progress,
    datasets: Sequence[Dataset],
    reads: Sequence[Sequence[Dataset]],
    damaged: ExcludedShards,
    cluster: Cluster,
) -> Progress:
    """Exclude damaged shards and those excluded before; the first rank warns of each. Collective.

    reads: what each phase reads of the datasets. Raises DataError on all ranks if a phase would
    have no shard left.
    """
    excluded = tuple(sorted({*progress.excluded, *damaged}))
    with report_once(cluster.rank), agreed(cluster, DataError):
        _exclude(datasets, reads, excluded)
    for index, file in excluded if cluster.rank == 0 else ():
        print(
            f"warning: from step {progress.step + 1:,} on the rows of shard {file} of "
            f"{datasets[index].directory} are skipped (data.damaged=skip)",
            file=sys.stderr,
        )
    return replace(progress, excluded=excluded)


def _exclude(
    datasets: Sequence[Dataset], reads: Sequence[Sequence[Dataset]], shards: ExcludedShards
) -> None:
    """Stop reading the rows of these shards. Raises DataError if a phase has none left."""
    for index, dataset in enumerate(datasets):
        dataset.exclude({file for owner, file in shards if owner == index})
    for own in reads:
        if all(dataset.is_excluded for dataset in own):
            raise all_damaged(own)


def find_damaged_at_start(datasets: Sequence[Dataset]) -> ExcludedShards:
    """The shards that were damaged when the datasets were opened; the same on all ranks."""
    found = ((index, file) for index, dataset in enumerate(datasets) for file in dataset.damaged)
    return tuple(sorted(found))


def find_damaged(
    mistake: DataError | None, datasets: Sequence[Dataset], cluster: Cluster
) -> tuple[ExcludedShards, bool]:
    """The shards that cause the mistakes of all ranks, and whether this rank's is one of these.

    Collective.
    """
    # A mistake may also be in validation data or a copy, which belongs to no training shard.
    file = mistake.file if mistake else None
    owned = [(index, dataset.shard_with(file)) for index, dataset in enumerate(datasets)]
    found = [(index, shard) for index, shard in owned if shard]
    texts = cluster.gather(json.dumps(found))
    of_all = {(index, shard) for text in texts for index, shard in json.loads(text)}
    return tuple(sorted(of_all)), bool(found)
