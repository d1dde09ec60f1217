"""A run and its shards -> its phases, each a range of steps at one sequence length and batch.

A phase reads the directories of --data that have its length. Optimizer and schedule do not depend
on phases; they count the steps of the whole run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipeline.config.data_settings import all_shard_settings
from pipeline.config.run import Run
from pipeline.config.training_settings import EarlierPhase
from pipeline.errors import ConfigError
from pipeline.loading.dataset import Dataset, check_datasets
from pipeline.training.planning.plan import Plan, make_plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A range of steps of a run, and what they read."""

    number: int
    """Counted from 1."""
    begin: int
    """Steps of the run before this phase."""
    end: int
    """Steps of the run at the end of this phase."""
    run: Run
    """The settings in this phase: with its length and batch, and no other phases."""
    train: tuple[Dataset, ...]
    validation: tuple[Dataset, ...]
    plan: Plan

    @property
    def sequence_length(self) -> int:
        """Tokens per sequence."""
        return self.run.data.sequence_length

    @property
    def words(self) -> str:
        """Its number, steps and sequence length, in words."""
        return (
            f"phase {self.number}: steps {self.begin + 1:,} to {self.end:,}, sequences of "
            f"{self.sequence_length}"
        )


def runs_of(run: Run) -> list[tuple[int, int, Run]]:
    """(begin, end, settings) of each phase, see `Phase`."""
    left = run.steps - sum(phase.steps for phase in run.phases)
    last = EarlierPhase(
        steps=left, sequence_length=run.data.sequence_length, sequences=run.batch.sequences
    )
    found, begin = [], 0
    for phase in (*run.phases, last):
        found.append((begin, begin + phase.steps, _as_in(run, phase, begin == 0)))
        begin += phase.steps
    return found


def _as_in(run: Run, phase: EarlierPhase, first: bool) -> Run:
    tokens = run.batch.per_device * run.data.sequence_length
    batch = replace(
        run.batch,
        sequences=phase.sequences,
        per_device=max(1, tokens // phase.sequence_length),
        warmup_steps=run.batch.warmup_steps if first else 0,
    )
    data = replace(run.data, sequence_length=phase.sequence_length)
    return replace(run, data=data, batch=batch, phases=())


def make_phases(
    run: Run,
    world_size: int,
    zero_stage: int,
    train: Sequence[Dataset],
    validation: Sequence[Dataset],
) -> tuple[Phase, ...]:
    """The phases of a run, over the training and validation splits of the same directories.

    Call after `check_lengths`. Raises ConfigError as `make_plan` does.
    """
    found = []
    for number, (begin, end, part) in enumerate(runs_of(run), start=1):
        length = part.data.sequence_length
        own, held_out = (
            tuple(d for d in sets if not run.phases or d.manifest.sequence_length == length)
            for sets in (train, validation)
        )
        owner = f"phases.{number - 1}" if number <= len(run.phases) else "batch"
        plan = make_plan(part, world_size, zero_stage, own, held_out, end - begin, owner)
        found.append(
            Phase(
                number=number, begin=begin, end=end, run=part, train=own, validation=held_out,
                plan=plan,
            )
        )  # fmt: skip
    return tuple(found)


def as_read(run: Run, dataset: Dataset) -> Run:
    """The settings in the phase that reads a dataset; `run` itself if no phase does."""
    length = dataset.manifest.sequence_length
    return next((part for *_, part in runs_of(run) if part.data.sequence_length == length), run)


def check_shards(run: Run, datasets: Sequence[Dataset], tokenizer_sha256: str) -> None:
    """Raises DataError unless all shards match the settings of the phases of their length and share
    one tokenizer, see `check_datasets`."""
    for dataset in datasets:
        settings = all_shard_settings(as_read(run, dataset).data)
        check_datasets([dataset], settings, tokenizer_sha256)
    check_datasets(datasets, {}, tokenizer_sha256)


def check_lengths(run: Run, datasets: Sequence[Dataset]) -> None:
    """Raises ConfigError unless a run of several phases has shards for each and reads all."""
    if not run.phases:
        return
    lengths = {part.data.sequence_length for *_, part in runs_of(run)}
    asked = " and ".join(map(str, sorted(lengths)))
    have = {dataset.manifest.sequence_length for dataset in datasets}
    for length in sorted(lengths - have):
        raise ConfigError(
            f"the phases of the run read sequences of {asked}, but no --data has any of {length}; "
            f"prepare the text with --set data.sequence_length={length} too and add its directory "
            "to --data, or add --set phases=[] for a run of one phase"
        )
    for dataset in datasets:
        if (length := dataset.manifest.sequence_length) not in lengths:
            raise ConfigError(
                f"no phase reads {dataset.directory}, which has sequences of {length}; the phases "
                f"of the run read {asked}; remove it, or add --set phases.0.sequence_length="
                f"{length} for a phase that does"
            )


def phase_of(phases: Sequence[Phase], step: int) -> Phase:
    """The phase of the step after `step` steps; the last phase if there is none."""
    return next((phase for phase in phases if step < phase.end), phases[-1])
