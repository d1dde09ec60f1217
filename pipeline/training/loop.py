"""The training loop: optimizer steps, and what is done once in a while between them.

Whatever is random in a micro-batch is drawn from (seed, step, rank, micro-batch), so a run that
goes on from a checkpoint needs no random state, and repeats on a CPU what it would have done, to
the bit; what a generator samples, from its sequences alone (`data.draws`). What the parts of a
step's loss are divided by travels while the step before it ends, and with it the question whether
any rank was asked to stop.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from model.objectives import LossPart, Sums
from pipeline.config.run import Run
from pipeline.errors import CheckpointError, DataError
from pipeline.loading.loader import NO_STEP, Step
from pipeline.loading.micro_batch import Counts
from pipeline.training import loss_parts
from pipeline.training.checkpoints.data_position import skipped_in_words
from pipeline.training.checkpoints.fragment_files import divide
from pipeline.training.checkpoints.publish import remove_newer
from pipeline.training.checkpoints.read import State, open_from
from pipeline.training.checkpoints.saver import Saver
from pipeline.training.cluster.engine import Engine
from pipeline.training.cluster.ranks import Cluster, StopRequest, spoken_once
from pipeline.training.cluster.watchdog import Watchdog
from pipeline.training.feed import Feed
from pipeline.training.leaving_out import found_by, without
from pipeline.training.model_inputs import model_inputs
from pipeline.training.optimizer.optimizer import FragmentState
from pipeline.training.planning.phases import phase_of
from pipeline.training.planning.schedule import learning_rate
from pipeline.training.progress import Progress, restore, state_of
from pipeline.training.rollback import Rollback, checkpoint_before, skipped_around
from pipeline.training.run_directory.metrics import Metrics, Pace, peak_flops
from pipeline.training.run_directory.profile import Trace
from pipeline.training.run_directory.run_json import Record
from pipeline.training.run_directory.stragglers import Stragglers
from pipeline.training.spikes import LossWatch, Spike
from pipeline.training.step_count import StepCount
from pipeline.training.validation.validator import Validator

MOST_SKIPPED = 10
"""Steps in a row without a finite gradient after which the run is given up."""


@dataclass(slots=True, kw_only=True)
class Trainer:
    """A run under way: what it is made of, and how far it is."""

    record: Record
    feed: Feed
    cluster: Cluster
    engine: Engine
    validator: Validator
    stop: StopRequest
    metrics: Metrics | None
    """On the first rank only."""
    progress: Progress
    losses: LossWatch
    stragglers: Stragglers
    saver: Saver
    watchdog: Watchdog
    trace: Trace
    tokens: int = 0
    """Of this rank, not in `progress` yet."""

    @property
    def run(self) -> Run:
        """The settings."""
        return self.record.run

    @property
    def parts(self) -> tuple[LossPart, ...]:
        """Of the loss."""
        return self.validator.parts

    def train(self, last_step: int) -> bool:
        """Step until `last_step`, or until asked to stop; True when something is left to do.

        Either way the run is saved at the end.
        """
        with self._bar(last_step) as bar:
            while True:
                known = StepCount(self.cluster.control)
                try:
                    interrupted = self._train(last_step, known, bar)
                    if self._leaves_out_more():
                        continue
                    if not interrupted and self.progress.step < last_step:
                        self._enter_phase()
                        continue
                    if self.saver.saved_step != self.progress.step:
                        self._save(self.saver.save)
                    break
                except Rollback as rollback:
                    known.drain()
                    self._go_back(rollback)
                    bar.n = self.progress.step
        unfinished = self.progress.step < last_step or self._owes_validation()
        with self.cluster.agreed():
            if self.stop.mistake and unfinished:
                raise self.stop.mistake
        return interrupted and unfinished

    def _train(self, last_step: int, known: StepCount, bar: tqdm) -> bool:
        """As `train`, but to the end of the phase, and a spike may end it by a Rollback.

        True when asked to stop.
        """
        pace, end = Pace(self.progress.tokens), min(last_step, self.feed.phase.end)
        steps = self.feed.loader.steps(
            self.feed.reading(self.progress).sequences, self.progress.step
        )
        coming = self._next(steps, self.progress.step < end)
        known.start(*self._told(coming))
        interrupted = self._owes_validation() and not self._validate()
        while True:
            counts, stopping, loss, micro_batches = known.result()
            self._heed(self.losses.receive(loss))
            interrupted = interrupted or stopping
            if interrupted or self.progress.step >= end:
                break
            with pace.waiting():
                step = self.feed.loader.stretched(coming, micro_batches)
                coming = self._next(steps, self.progress.step + 1 < end)
            sums = self._accumulate(step, counts, pace)
            self.losses.copy(loss_parts.loss_sum(self.parts, sums, counts))
            known.start(*self._told(coming))
            updated = self.engine.step(learning_rate(self.run, self.progress.step + 1))
            self.progress = self.progress.after(
                step, self.feed.phase.sequence_length, counts.predictions, updated
            )
            self.losses.made(self.progress.step, loss_parts.first_count(self.parts, counts))
            self._give_up_if_lost()
            pace.steps += 1
            bar.update()
            self.watchdog.beat()
            self.trace.step(self.progress.step)
            if self._due(self.run.logging.every) or self._due(self.run.validation.every):
                self._log(step, sums, counts, pace, bar)
            with pace.paused():
                if self._due(self.run.validation.every):
                    interrupted = not self._validate()
                if self._due(self.run.checkpoint.every) and self.progress.step < last_step:
                    self._save(self.saver.begin)
        self.feed.loader.close()
        self.saver.finish()
        return interrupted

    def _told(self, step: Step) -> tuple[Counts, bool, int, int]:
        """What this rank tells the others before a step, see `StepCount.start`."""
        return step.counts, self.stop.requested, self.losses.send(), step.accumulation

    def _enter_phase(self) -> None:
        """Read on in the phase of the step to come."""
        if not self.feed.enter(self.progress.step, self.progress.readings):
            return
        if self.cluster.device.type == "cuda":
            torch.compiler.reset()  # else the second length is compiled for lengths of any kind
        if self.cluster.rank == 0:
            tqdm.write(self.feed.phase.words)

    def _validate(self) -> bool:
        """Score the held-out sequences of the phase of the step just made, see `Validator`."""
        return self.validator.validate(
            self.progress.step, phase_of(self.feed.phases, self.progress.step - 1)
        )

    def _next(self, steps: Iterator[Step], needed: bool) -> Step:
        """The next step; an empty one when its data are damaged, for which all ranks stop, or when
        it is not needed."""
        try:
            return next(steps) if needed else NO_STEP
        except DataError as error:
            self.stop.mistake = error
            return NO_STEP

    def _leaves_out_more(self) -> bool:
        """Whether the run goes on without shards that a rank found damaged. Collective."""
        if self.run.data.damaged == "stop":
            return False
        datasets = self.feed.datasets
        new, mine = found_by(self.stop.mistake, datasets, self.cluster)
        if not new:
            return False
        if mine:
            print(f"warning: {self.stop.mistake}", file=sys.stderr)
            self.stop.mistake = None
        self.progress = without(self.progress, datasets, new, self.cluster)
        self._save(self.saver.begin)
        self.losses.go_back(self.losses.recent)
        return True

    def _accumulate(self, step: Step, counts: Counts, pace: Pace) -> Sums:
        """Forward and backward of this rank's micro-batches; their sums, without gradient."""
        sums: Sums = {}
        mask_id = self.feed.datasets[0].manifest.tokenizer["mask"]
        self.engine.accumulation = step.accumulation
        for batch in pace.timed(self.watchdog.through(step.batches)):
            torch.manual_seed(
                noise_seed(self.run.seed, self.progress.step, self.cluster.rank, batch.micro_batch)
            )
            inputs = model_inputs(batch, self.cluster.device, mask_id)
            with self.stragglers.clock.running():
                scored = self.engine(inputs)
            loss = loss_parts.loss_sum(self.parts, scored, counts)
            self.engine.backward(loss, loss_parts.first_count(self.parts, counts))
            loss_parts.add(sums, scored)
        self.tokens += step.counts.tokens
        return sums

    def _log(self, step: Step, sums: Sums, counts: Counts, pace: Pace, bar: tqdm) -> None:
        """Write a line of metrics about the step just made."""
        scored = loss_parts.part_metrics(self.parts, self._total(sums), counts)
        forward_seconds = self.cluster.each(self.stragglers.clock.take())
        phase, last = self.feed.phase, self.feed.last_sample(self.progress)
        epoch, dataset = int(last.pass_number[0]), phase.train[int(last.dataset[0])]
        speed = pace.report(self.progress.tokens)
        peak = peak_flops(self.cluster.device)
        if peak:
            seconds = speed["step_seconds"] * self.cluster.world_size
            flops = phase.plan.step_flops * step.sequences / phase.plan.sequences
            speed["model_flops_utilization"] = flops / seconds / peak
        line: dict[str, float | str] = {
            "step": self.progress.step,
            **scored,
            **({"sequence_length": phase.sequence_length} if len(self.feed.phases) > 1 else {}),
            "learning_rate": learning_rate(self.run, self.progress.step),
            "grad_norm": self.engine.gradient_norm,
            "sequences": self.progress.sequences,
            "tokens": self.progress.tokens,
            "predictions": self.progress.predictions,
            "epoch": epoch,
            "duplicate": (epoch - 1) % dataset.cycle,
            "skipped_updates": self.progress.skipped,
            **self._skipped_fields(),
            **self.engine.optimizer.telemetry.report(),
            **speed,
            **self.stragglers.report(forward_seconds),
        }
        with self.cluster.agreed():
            if self.metrics:
                self.metrics.write(line)
                if warning := self.stragglers.warning(forward_seconds):
                    tqdm.write(warning)
        bar.set_postfix_str(f"loss {scored['loss']:.3f}", refresh=False)

    def _save(self, save: Callable[[Iterable[FragmentState], State], None]) -> None:
        """Save this step, at once or in the background."""
        self._total({})
        fragments = self.engine.optimizer.fragments()
        if self.engine.stage == 0:
            fragments = divide(fragments, self.cluster.rank, self.cluster.world_size)
        state = state_of(self.progress, self.record, self.engine, self.losses.recent)
        with self.cluster.agreed():
            save(fragments, state)

    def _total(self, sums: Sums) -> Sums:
        """The sums over all ranks; on the way the tokens of all ranks enter `progress`, and the
        losses that are not judged yet are."""
        here = torch.tensor([self.tokens, *self.losses.owed()], dtype=torch.float64)
        total = self.cluster.total(torch.cat([here, loss_parts.pack(sums)]))
        tokens, *owed = map(int, total[: len(here)].tolist())
        self.progress = replace(self.progress, tokens=self.progress.tokens + tokens)
        self.tokens = 0
        self._heed(self.losses.settle(owed))
        return loss_parts.unpack(total[len(here) :], sums)

    def _due(self, every: int) -> bool:
        return self.progress.step % every == 0 or self.progress.step == self.run.steps

    def _owes_validation(self) -> bool:
        """Whether the step just made or restored should have been validated and was not."""
        if self.progress.step == 0 or not self._due(self.run.validation.every):
            return False
        return self.validator.is_owed(self.progress.step)

    def _heed(self, spike: Spike | None) -> None:
        """Tell of a spike; Rollback when there is a checkpoint to go back to and that is wanted."""
        if spike is None:
            return
        self.progress = replace(self.progress, spikes=self.progress.spikes + 1)
        self._warn(str(spike))
        settings = self.run.spikes
        if settings.rollbacks == 0:
            return
        self.saver.finish()
        found = checkpoint_before(self.saver.checkpoints, spike.step, settings.skip_before)
        directory = self.cluster.gather(str(found or ""))[0]
        if self.progress.rollbacks >= settings.rollbacks:
            with spoken_once(self.cluster.rank):
                raise CheckpointError(
                    f"{spike}, and spikes.rollbacks={settings.rollbacks} are used up; last good "
                    f"checkpoint: {directory or 'none'}. Lower optimizer.peak_lr, or look at the "
                    "data, and fork it with --from into another --output"
                )
        if directory:
            raise Rollback(spike.step, Path(directory))
        self._warn("there is no checkpoint before it to go back to; training goes on")

    def _go_back(self, rollback: Rollback) -> None:
        """To a checkpoint before a spike, to go on without what was read around it. Collective."""
        with self.cluster.agreed():
            checkpoint, _ = open_from(rollback.directory, self.cluster)
            restore(self.engine, checkpoint)
        state = checkpoint.state
        readings = skipped_around(
            self.run.spikes, self.feed.read_in, rollback.spike_step, self.progress.readings, state
        )
        self.progress = replace(
            Progress.of(state),
            spikes=self.progress.spikes,
            rollbacks=self.progress.rollbacks + 1,
            readings=readings,
            left_out=self.progress.left_out,
        )
        self._enter_phase()
        skipped = self.feed.reading(self.progress).skipped
        self.feed.loader.order = replace(self.feed.loader.order, skipped=skipped)
        self.losses.go_back(state.recent_losses)
        self.tokens = 0
        self.engine.optimizer.telemetry.report()  # of steps that are undone
        self._warn(
            f"back to step {state.step:,}, rollback {self.progress.rollbacks} of "
            f"{self.run.spikes.rollbacks}; skipped so far: {self.progress.skipped_sequences:,} "
            f"sequences, at {', '.join(skipped_in_words(readings))} of the order"
        )
        with self.cluster.agreed():
            if self.metrics:
                self.metrics.go_back(state.step)
        self._save(self.saver.begin)  # so that whoever goes on from it skips the same
        if not self.saver.finish() and self.cluster.rank == 0:
            for warning in remove_newer(self.saver.checkpoints, state.step):
                self._warn(warning)

    def _warn(self, message: str) -> None:
        if self.cluster.rank == 0:
            tqdm.write(f"warning: {message}", file=sys.stderr)

    def _skipped_fields(self) -> dict[str, float | str]:
        progress, fields = self.progress, dict[str, float | str]()
        if self.losses.on:
            fields = {
                "loss_spikes": progress.spikes,
                "rollbacks": progress.rollbacks,
                "skipped_sequences": progress.skipped_sequences,
            }
        if progress.left_out:
            fields["left_out"] = ", ".join(file for _, file in progress.left_out)
        return fields

    def _give_up_if_lost(self) -> None:
        if self.progress.skipped_in_a_row >= MOST_SKIPPED:
            self.saver.finish()
            good = f"step {self.saver.saved_step}" if self.saver.saved_step >= 0 else "none"
            with spoken_once(self.cluster.rank):
                raise CheckpointError(
                    f"the gradient was not finite in {MOST_SKIPPED} steps in a row, up to step "
                    f"{self.progress.step}; last checkpoint: {good}. Lower optimizer.peak_lr, and "
                    f"fork an earlier checkpoint of {self.saver.checkpoints.parent} with --from"
                )

    def _bar(self, last_step: int) -> tqdm:
        """A progress bar on the first rank's terminal, if it has one."""
        return tqdm(
            total=last_step,
            initial=self.progress.step,
            desc=self.run.name,
            unit="step",
            disable=True if self.cluster.rank else None,
        )


def noise_seed(*key: int) -> int:
    """A seed for torch from (seed, step, rank, micro-batch): well apart for neighbours."""
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> np.uint64(1))
