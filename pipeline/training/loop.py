"""The training loop: optimizer steps, and what happens every so many steps between them.

Dropout of hidden vectors and the words of ELECTRA's generator depend only on the seed and their
sequences (`pipeline.loading.micro_batch`); dropped attention weights are drawn from (seed, step,
rank, micro-batch). So a run that resumes from a checkpoint needs no random state, and on a CPU
repeats the original to the bit; without attention dropout on any number of ranks. Loss
denominators of a step are all-reduced during the step before, with the stop requests. A stop
request within a step drops that step and saves the one before it.

A step is the same on all ranks, in this order, as its collectives must meet:

1. Receive the counts of all ranks, and judge an earlier loss.
2. Go forward and backward through this rank's micro-batches.
3. Read the next step, and start to all-reduce its counts.
4. Update the weights.
5. Log, validate and save, each every so many steps.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from tqdm import tqdm

from model.encoder import set_rotary_bases
from model.layers import set_dropout
from model.objectives.masked_language import LossPart, Sums
from pipeline.base.errors import DataError
from pipeline.base.null_device import null_entry
from pipeline.cluster.ranks import Cluster
from pipeline.cluster.stop_request import StopRequest
from pipeline.cluster.watchdog import Watchdog
from pipeline.config.run import Run
from pipeline.evaluation import loss_parts
from pipeline.evaluation.device_copies import on_device
from pipeline.evaluation.model_inputs import model_inputs
from pipeline.loading.loader import NO_STEP, Step
from pipeline.loading.micro_batch import LossCounts
from pipeline.planning.phases import phase_of, words_read
from pipeline.planning.schedule import learning_rate
from pipeline.training.checkpoints.fragment_files import divide
from pipeline.training.checkpoints.read import State
from pipeline.training.checkpoints.saver import Saver
from pipeline.training.display import Display
from pipeline.training.feed import Feed
from pipeline.training.optimizer.engine import ZeroEngine
from pipeline.training.optimizer.optimizer import FragmentState
from pipeline.training.out_of_memory import STEPS_BETWEEN_RETURNS, return_free_memory
from pipeline.training.recovery import Recovery, Rollback
from pipeline.training.run_directory.history import now_utc
from pipeline.training.run_directory.metrics_log import Metrics, Pace, memory_gb, peak_flops
from pipeline.training.run_directory.plan_check import PlanCheck
from pipeline.training.run_directory.profile import Trace
from pipeline.training.run_directory.run_json import RunRecord
from pipeline.training.run_directory.stragglers import Stragglers
from pipeline.training.run_progress import Progress, collect_state
from pipeline.training.step_count import StepCount, StopVote
from pipeline.training.validation.validator import Validator


@dataclass(slots=True, kw_only=True)
class Trainer:
    """A run that trains: its parts, and its progress."""

    record: RunRecord
    feed: Feed
    cluster: Cluster
    engine: ZeroEngine
    validator: Validator
    stop: StopRequest
    metrics: Metrics | None
    """None except on the first rank."""
    progress: Progress
    recovery: Recovery
    stragglers: Stragglers
    saver: Saver
    watchdog: Watchdog
    trace: Trace
    plan_check: PlanCheck | None
    """None except on the first rank of a run that has no plan.json."""
    tokens: int = 0
    """Tokens of this rank that are not in `progress` yet."""

    @property
    def run(self) -> Run:
        """The settings."""
        return self.record.run

    @property
    def parts(self) -> tuple[LossPart, ...]:
        """The parts of the loss."""
        return self.validator.parts

    def train(self, last_step: int) -> bool:
        """Train until `last_step` or a stop request, then save. True if work remains."""
        with Display(
            self.run.name, self.progress.step, last_step, shown=self.cluster.rank == 0
        ) as display:
            self.validator.on_batch = display.validating
            self._set_phase()
            while True:
                known = StepCount(self.cluster.control)
                try:
                    interrupted = self._train_phase(last_step, known, display)
                    # the same step is read again, now without their rows
                    if self._excludes_shards():
                        continue
                    if interrupted or self.progress.step >= last_step:
                        if self._is_broken() and self.progress.step >= last_step:
                            self.recovery.end_broken(self.progress)
                        # `checkpoint.every` may have saved it.
                        if self.saver.saved_step != self.progress.step:
                            self._save(self.saver.save)
                        break
                    self._enter_phase()
                except Rollback as rollback:
                    known.drain()
                    self._go_back(rollback)
                    display.go_back(self.progress.step)
        unfinished = self.progress.step < last_step or self._owes_validation()
        with self.cluster.agreed():
            # Only now that the run is saved: damaged data costs no step.
            if self.stop.mistake and unfinished:
                raise self.stop.mistake
        return interrupted and unfinished

    def _train_phase(self, last_step: int, known: StepCount, display: Display) -> bool:
        """Train until the end of the phase or `last_step`. True after a stop request.

        Raises Rollback at a spike.
        """
        pace, end = Pace(self.progress.tokens), min(last_step, self.feed.phase.end)
        steps = self.feed.loader.steps(
            self.feed.reading(self.progress).sequences, self.progress.step
        )
        coming = self._next(steps, self.progress.step < end)
        known.start(*self._step_message(coming))
        with pace.paused():
            # The job before may have ended between its last step and that step's validation.
            interrupted = self._owes_validation() and not self._validate()
        while True:
            # 1. A rollback for an earlier loss starts here, before this step's work.
            counts, stopping, loss, micro_batches = known.result()
            spike = self.recovery.losses.receive(loss)
            self.progress = self.recovery.on_loss(spike, self.progress)
            interrupted = interrupted or stopping
            if interrupted or self.progress.step >= end:
                break
            # A rank with fewer micro-batches would leave others waiting in their backward passes.
            step = self.feed.loader.pad_micro_batches(coming, micro_batches)
            display.begin_step(counts.tokens, learning_rate(self.run, self.progress.step + 1))
            # 2. None if a stop request came in between.
            sums = self._accumulate(step, counts, pace, display)
            if sums is None:
                interrupted = True
                break
            with pace.waiting():
                # 3. On a GPU the backward passes are still running meanwhile.
                coming = self._next(steps, self.progress.step + 1 < end)
            # Queued before the update, whose wait then serves for the loss as well.
            self.recovery.losses.copy(loss_parts.loss_sum(self.parts, sums, counts))
            known.start(*self._step_message(coming))
            # 4. The all-reduce of the counts runs meanwhile.
            self._update(step, counts)
            pace.steps += 1
            display.end_step(self.progress.step)
            # 5. Only a CPU's heap: on a GPU torch keeps the blocks itself and reuses them.
            if self.cluster.device.type == "cpu" and self._due(STEPS_BETWEEN_RETURNS):
                return_free_memory()
            if self._due(self.run.logging.every) or self._due(self.run.validation.every):
                display.loss(self.progress.step, self._log(step, sums, counts, pace))
            with pace.paused():
                if self._due(self.run.validation.every):
                    interrupted = not self._validate()
                due = self._due(self.run.checkpoint.every) or self.progress.step in self.saver.kept
                if due and self.progress.step < last_step:
                    self._save(self.saver.begin)
        # Before the next phase opens its own, and the copies of these shards may go.
        self.feed.loader.close()
        self.saver.finish()
        return interrupted

    def _next(self, steps: Iterator[Step], needed: bool) -> Step:
        """The next step; an empty one if it is not needed, or if its data are damaged, which stops
        all ranks."""
        try:
            return next(steps) if needed else NO_STEP
        except DataError as error:
            self.stop.mistake = error
            return NO_STEP

    def _step_message(self, step: Step) -> tuple[LossCounts, bool, int, int]:
        """The message of this rank to the others before a step, see `StepCount.start`."""
        return step.counts, self.stop.requested, self.recovery.losses.send(), step.accumulation

    def _accumulate(
        self, step: Step, counts: LossCounts, pace: Pace, display: Display
    ) -> Sums | None:
        """Forward and backward passes of this rank's micro-batches; returns their detached sums.

        None if a stop request ended the step: what it accumulated is dropped.
        """
        sums: Sums = {}
        vote = StopVote(self.cluster.control)
        # All datasets have one tokenizer.
        tokenizer = self.feed.datasets[0].manifest.tokenizer
        self.engine.accumulation = step.accumulation
        batches = on_device(pace.timed(step.batches), self.cluster.device)
        for done, batch in enumerate(self.watchdog.through(batches), 1):
            if vote.passed():
                return None
            # Not after the last one: the counts of the next step ask all ranks anyway.
            if done < step.accumulation:
                vote.ask(self.stop.is_urgent)
            # Attention's dropout is the same whatever ran before, a resume included.
            torch.manual_seed(
                noise_seed(self.run.seed, self.progress.step, self.cluster.rank, batch.micro_batch)
            )
            inputs = model_inputs(batch, tokenizer)
            with self.stragglers.clock.running():
                scored = self.engine(inputs)
            loss = loss_parts.loss_sum(self.parts, scored, counts)
            self.engine.backward(loss, loss_parts.first_count(self.parts, counts))
            loss_parts.add(sums, scored)
            display.micro_batch(done, step.accumulation)
        self.tokens += step.counts.tokens
        return sums

    def _update(self, step: Step, counts: LossCounts) -> None:
        """Update the weights with the accumulated gradient, and count the step."""
        updated = self.engine.step(learning_rate(self.run, self.progress.step + 1))
        self.progress = self.progress.after(
            step, self.feed.phase.order, counts.predictions, updated
        )
        count = loss_parts.first_count(self.parts, counts)
        self.recovery.losses.record(self.progress.step, count)
        self.recovery.check_gradients(self.progress)
        self.watchdog.beat()
        self.trace.step(self.progress.step)
        if self.plan_check:
            self.plan_check.step(self.feed.phase, self.progress.step, step.sequences)

    def _enter_phase(self) -> None:
        """Start to read the phase of the next step."""
        if not self.feed.enter(self.progress.step, self.progress.readings):
            return
        self._set_phase()
        if self.cluster.device.type == "cuda":
            torch.compiler.reset()  # else the second length is compiled with dynamic shapes
        if self.cluster.rank == 0:
            tqdm.write(self.feed.phase.words)

    def _set_phase(self) -> None:
        """Give the model what a phase may change."""
        encoder = self.feed.phase.run.encoder
        set_dropout(self.engine.module, encoder.dropout, encoder.attention_dropout)
        set_rotary_bases(self.engine.module, encoder.rotary_base, encoder.local_rotary_base)

    def _excludes_shards(self) -> bool:
        """True if the run continues without damaged shards. Collective."""
        progress = self.recovery.on_data_error(self.progress)
        if progress is None:
            return False
        self.progress = progress
        self._save(self.saver.begin)
        # The step that is read again will have another loss.
        self.recovery.losses.reset(self.recovery.losses.recent)
        return True

    def _go_back(self, rollback: Rollback) -> None:
        """Resume from a checkpoint before a spike and skip what was read around it. Collective."""
        self.progress = self.recovery.go_back(rollback, self.progress)
        self.tokens = 0
        self._enter_phase()
        # Entering opens a loader only in another phase, so this one learns what to skip here.
        skipped = self.feed.reading(self.progress).skipped
        self.feed.loader.order = replace(self.feed.loader.order, skipped=skipped)
        with self.cluster.agreed():
            if self.metrics:
                self.metrics.go_back(self.progress.step)
        self._save(self.saver.begin)  # so that a resume from here skips the same sequences
        self.recovery.remove_undone(self.progress.step)

    def _validate(self) -> bool:
        """Score the held-out sequences of the phase of the last step, see `Validator`; before the
        first step those of the run's last phase, to compare with at the end."""
        step = self.progress.step
        phase = phase_of(self.feed.phases, (step or self.run.steps) - 1)
        scored = self.validator.validate(step, phase, at_end=step in (0, self.run.steps))
        if step == 0 and len(self.feed.phases) > 1 and self.cluster.device.type == "cuda":
            torch.compiler.reset()  # as in `_enter_phase`
        if scored and step == self.run.steps:  # no gradient follows that could show more
            self.saver.sound_step = step
        return scored

    def _owes_validation(self) -> bool:
        """True if the last step, made or restored, was due to be validated and was not. Step 0 is
        due in a run from given weights: those of a recipe have a loss that is known."""
        step = self.progress.step
        if not (self._due(self.run.validation.every) if step else self.record.initial_weights):
            return False
        return self.validator.is_owed(step)

    def _is_broken(self) -> bool:
        """True if the last update was skipped, or if its weights have no finite held-out loss."""
        return self.progress.skipped_in_a_row > 0 or self.validator.broken_at == self.progress.step

    def _due(self, every: int) -> bool:
        return self.progress.step % every == 0 or self.progress.step == self.run.steps

    def _log(self, step: Step, sums: Sums, counts: LossCounts, pace: Pace) -> float:
        """Write a line of metrics about the last step; returns its loss."""
        scored = loss_parts.part_metrics(self.parts, self._total(sums), counts)
        # `_total` waits for the device, so the clock's events are complete.
        forward_seconds = self.cluster.each(self.stragglers.clock.take())
        phase, last = self.feed.phase, self.feed.last_sample(self.progress)
        epoch, dataset = int(last.pass_number[0]), phase.train[int(last.dataset[0])]
        words = words_read(self.feed.phases, self.progress.step)
        line: dict[str, float | str] = {"step": self.progress.step, "time": now_utc(), **scored}
        line |= null_entry(self.record.device)
        if len(self.feed.phases) > 1:
            line |= {"phase": phase.number, "sequence_length": phase.sequence_length}
        line |= {
            "learning_rate": learning_rate(self.run, self.progress.step),
            "grad_norm": self.engine.gradient_norm,
            "sequences": self.progress.sequences,
            "tokens": self.progress.tokens,
            "predictions": self.progress.predictions,
            **({"words": words} if words is not None else {}),
            "epoch": epoch,
            # Passes count from 1.
            "duplicate": (epoch - 1) % dataset.cycle,
            "skipped_updates": self.progress.skipped,
            **self.recovery.fields(self.progress),
            **self.engine.optimizer.telemetry.report(),
            **self._speed(step, pace),
            "memory_gb": memory_gb(),
            **self.stragglers.report(forward_seconds),
        }
        with self.cluster.agreed():
            if self.metrics:
                self.metrics.write(line)
                if warning := self.stragglers.warning(forward_seconds):
                    tqdm.write(warning)
        return scored.get("loss", math.nan)  # a step whose shards are all excluded has none

    def _speed(self, step: Step, pace: Pace) -> dict[str, float]:
        """Times since the last line of metrics, and the utilization of the GPUs."""
        speed = pace.report(self.progress.tokens)
        peak = peak_flops(self.cluster.device)
        if peak:
            plan = self.feed.phase.plan
            flops = plan.step_flops * step.sequences / plan.sequences
            seconds = speed["step_seconds"] * self.cluster.world_size
            speed["model_flops_utilization"] = flops / seconds / peak
        return speed

    def _save(self, save: Callable[[Iterable[FragmentState], State], None]) -> None:
        """Save the last step, unless it broke; save: `Saver.save` or `Saver.begin`."""
        if self._is_broken():  # it would push out a checkpoint that can still be continued
            if self.cluster.rank == 0:
                tqdm.write(
                    f"warning: step {self.progress.step:,} is not saved: its gradient or held-out "
                    "loss is not finite; older checkpoints are unchanged",
                    file=sys.stderr,
                )
            return
        # Adds the tokens since the last line, and judges what would else be saved unjudged.
        self._total({})
        fragments = self.engine.optimizer.fragments()
        if self.engine.stage == 0:
            # All ranks hold everything there, so each writes a part.
            fragments = divide(fragments, self.cluster.rank, self.cluster.world_size)
        recent = self.recovery.losses.recent
        state = collect_state(self.progress, self.record, self.engine, recent)
        with self.cluster.agreed():
            save(fragments, state)

    def _total(self, sums: Sums) -> Sums:
        """The sums over all ranks. The same all-reduce adds the tokens of all ranks to `progress`
        and judges the remaining losses."""
        losses = self.recovery.losses
        # Whole numbers, which float64 adds exactly; and one all-reduce in place of two.
        here = torch.tensor([self.tokens, *losses.unjudged()], dtype=torch.float64)
        total = self.cluster.total(torch.cat([here, loss_parts.pack_sums(sums)]))
        tokens, *unjudged = map(int, total[: len(here)].tolist())
        self.progress = replace(self.progress, tokens=self.progress.tokens + tokens)
        self.tokens = 0
        self.progress = self.recovery.on_loss(losses.judge(unjudged), self.progress)
        return loss_parts.unpack(total[len(here) :], sums)


def noise_seed(*key: int) -> int:
    """A seed for torch from (seed, step, rank, micro-batch); similar keys give unrelated seeds."""
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> np.uint64(1))
