"""A run and its shards -> its phases, each a stretch of steps at one sequence length and batch.

What a phase reads follows from its length: every directory of --data belongs to the phases of its
own. Optimizer and schedule know nothing of phases; they count the steps of the whole run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipeline.config.run import EarlierPhase, Run, all_shard_settings
from pipeline.errors import ConfigError
from pipeline.loading.dataset import Dataset, check_datasets
from pipeline.training.planning.plan import Plan, make_plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Some steps of a run, and what they read."""

    number: int
    """From 1."""
    begin: int
    """Steps of the run before it."""
    end: int
    """Steps of the run when it ends."""
    run: Run
    """The run as it is in this phase: with its length and batch, and no other phase."""
    train: tuple[Dataset, ...]
    validation: tuple[Dataset, ...]
    plan: Plan

    @property
    def sequence_length(self) -> int:
        """Tokens per sequence."""
        return self.run.data.sequence_length

    @property
    def words(self) -> str:
        """Which one it is."""
        return (
            f"phase {self.number}: steps {self.begin + 1:,} to {self.end:,}, sequences of "
            f"{self.sequence_length}"
        )


def runs_of(run: Run) -> list[tuple[int, int, Run]]:
    """Where each phase begins and ends, and the run as it is there."""
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
    """The phases of a run over its shards, the two splits of the same directories.

    After `check_lengths`; ConfigError as `make_plan`.
    """
    found = []
    for number, (begin, end, part) in enumerate(runs_of(run), start=1):
        length = part.data.sequence_length
        own, held_out = (
            tuple(d for d in sets if not run.phases or d.manifest.sequence_length == length)
            for sets in (train, validation)
        )
        plan = make_plan(part, world_size, zero_stage, own, held_out, end - begin)
        found.append(
            Phase(
                number=number, begin=begin, end=end, run=part, train=own, validation=held_out,
                plan=plan,
            )
        )  # fmt: skip
    return tuple(found)


def as_read(run: Run, dataset: Dataset) -> Run:
    """The run as it is in a phase that reads a dataset, itself when no phase does."""
    length = dataset.manifest.sequence_length
    return next((part for *_, part in runs_of(run) if part.data.sequence_length == length), run)


def check_shards(run: Run, datasets: Sequence[Dataset], tokenizer_sha256: str) -> None:
    """DataError unless all were prepared with the settings of the run, each with those of the
    phases of its length, and with one tokenizer; see `check_datasets`."""
    for dataset in datasets:
        settings = all_shard_settings(as_read(run, dataset).data)
        check_datasets([dataset], settings, tokenizer_sha256)
    check_datasets(datasets, {}, tokenizer_sha256)


def check_lengths(run: Run, datasets: Sequence[Dataset]) -> None:
    """ConfigError unless a run of several phases has shards for each, and reads all of them."""
    if not run.phases:
        return
    lengths = {part.data.sequence_length for *_, part in runs_of(run)}
    asked = " and ".join(map(str, sorted(lengths)))
    have = {dataset.manifest.sequence_length for dataset in datasets}
    for length in sorted(lengths - have):
        raise ConfigError(
            f"the phases of the run read sequences of {asked}, no --data has any of {length}; "
            f"prepare the text with data.sequence_length={length} too and name its directory with "
            "the others, or set phases=[] for a run of one phase"
        )
    for dataset in datasets:
        if (length := dataset.manifest.sequence_length) not in lengths:
            raise ConfigError(
                f"no phase reads {dataset.directory}, which has sequences of {length}: those of "
                f"the run are of {asked}; leave it out, or change the length of a phase"
            )


def phase_of(phases: Sequence[Phase], step: int) -> Phase:
    """That of the step after so many, the last one's for steps beyond."""
    return next((phase for phase in phases if step < phase.end), phases[-1])
