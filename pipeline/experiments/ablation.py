"""The parts of an ablation: arms as complete runs, seeds, and the jobs that train them.

All arms share seeds, steps, held-out documents and the times of validation. The baseline also runs
with as many other seeds: its difference to itself is the noise that an arm must exceed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from pipeline.base.errors import ConfigError
from pipeline.config.run import Run, in_phase
from pipeline.config.settings import override
from pipeline.config.training_settings import GENERATOR_KINDS
from pipeline.experiments.tables.table import Arm, Table, run_of
from pipeline.planning.schedule import check_warm_ups, with_steps

POINTS = 10  # with 20, a run of 600 steps on the sample corpus validated as long as it trained
"""Validations of a run, from which the steps to a fixed loss are read."""
TUNING_SEED = 1_000_000
"""Seed of tuning: not one of the table, so no run that is compared was chosen for its loss."""
TUNING_FACTORS = (0.5, 1.0, 2.0)
"""Peak learning rates that are tried, as multiples of the recipe's."""
RUNS = "runs"
Named = TypeVar("Named")


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationArm:
    """An arm and the settings of its runs, all but the seed."""

    arm: Arm
    run: Run

    @property
    def name(self) -> str:
        """Name in tables."""
        return self.arm.name


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationJob:
    """One training run."""

    arm: AblationArm
    seed: int
    factor: float
    """Factor of the recipe's peak learning rate in a run that tunes it; 0 in a run of the table."""

    @property
    def name(self) -> str:
        """Name in messages and for --only."""
        tuning = f" with {self.factor:g} x the rate" if self.factor else ""
        return f"{self.arm.name}:{self.seed}{tuning}"

    @property
    def folder(self) -> str:
        """Name of its directory in that of the arm."""
        return f"rate-{self.factor:g}" if self.factor else f"seed-{self.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ablation:
    """Everything that a command line asks for."""

    table: Table
    arms: tuple[AblationArm, ...]
    """The baseline first."""
    seeds: int
    tune: bool
    grammar: Path | None
    """Minimal pairs, see `pipeline.evaluate --grammar`."""
    inputs: tuple[str, ...]
    """Arguments of pipeline.prepare that name the corpus."""
    output: Path
    tasks: tuple[tuple[str, Path], ...] = ()
    """Labelled tasks that finished runs are fine-tuned on, and the folders of their files."""
    finetune_seeds: int = 1
    """Fine-tunings of a run on a task."""
    protocol: str = ""
    """Name of the protocol that all arms are fine-tuned by, if there are tasks."""

    @property
    def baseline(self) -> AblationArm:
        """The arm that every other one is compared with."""
        return self.arms[0]

    def jobs(self) -> list[AblationJob]:
        """The runs of the table: seed by seed, then the baseline's other seeds."""
        # seed by seed: an ablation that is stopped has about as many seeds of each arm
        paired = [
            AblationJob(arm=arm, seed=seed, factor=0)
            for seed in range(self.seeds)
            for arm in self.arms
        ]
        others = [
            AblationJob(arm=self.baseline, seed=self.seeds + seed, factor=0)
            for seed in range(self.seeds)
        ]
        return paired + others

    def directory(self, job: AblationJob) -> Path:
        """The run directory of a job."""
        return self.output / RUNS / job.arm.name / job.folder

    def tasks_of(self, job: AblationJob) -> tuple[tuple[str, Path], ...]:
        """The tasks that a job is fine-tuned on: none if it only tunes a rate."""
        return () if job.factor else self.tasks


def make_arms(table: Table, common: Sequence[str], steps: int) -> tuple[AblationArm, ...]:
    """The arms of a table, the baseline first; common: settings of all arms; steps: 0 for those of
    the recipes. Raises ConfigError for arms that cannot be compared."""
    # False sorts first, and sorting is stable: the other arms keep their order
    ordered = sorted(table.arms, key=lambda arm: arm.name != table.baseline)
    for arm in ordered:
        _check_changes(arm, steps)
    found = tuple(_made(arm, common, steps) for arm in ordered)
    _check_held_out(found)
    return found


def _check_changes(arm: Arm, steps: int) -> None:
    """Raises ConfigError for a setting that is the same in all runs, whatever an arm says."""
    fixed = {"seed": "--seeds N has its own for each run", "validation.every": "it is equal in all"}
    if steps:
        fixed["steps"] = fixed["epochs"] = f"--train-steps {steps} has the steps of all arms"
    for change in arm.changes:
        name = change.partition("=")[0].strip()
        if name in fixed:
            raise ConfigError(
                f"arm {arm.name}: --set {change} has no effect, as {fixed[name]}; drop it"
            )


def _made(arm: Arm, common: Sequence[str], steps: int) -> AblationArm:
    run = run_of(replace(arm, changes=(*common, *arm.changes)))  # the later setting counts
    if run.epochs and not steps:
        raise ConfigError(
            f"arm {arm.name}: epochs={run.epochs:g} is for pipeline.train; give the arms "
            "--train-steps N, or --set steps=N"
        )
    run = with_steps(replace(run, epochs=0.0), steps) if steps else run
    # not a rule of Run: runs that were trained so can still be exported
    check_warm_ups(run, f"arm {arm.name}: ")
    every = max(1, run.steps // POINTS)
    return AblationArm(arm=arm, run=override(run, [f"validation.every={every}"]))


def _check_held_out(arms: Sequence[AblationArm]) -> None:
    """Raises ConfigError unless all arms hold out the same documents."""
    first = arms[0]
    for name in ("seed", "validation_fraction"):  # the split of documents is drawn from these
        for arm in arms[1:]:
            one, other = getattr(first.run.data, name), getattr(arm.run.data, name)
            if one != other:
                raise ConfigError(
                    f"arms {first.name} and {arm.name} would hold out different documents: "
                    f"data.{name} is {one} and {other}; add --set data.{name}={one} to the latter"
                )


def split_phases(run: Run) -> list[Run]:
    """The settings of each phase, the last one last; each reads shards of its own format."""
    return [*(in_phase(run, phase, i == 0) for i, phase in enumerate(run.phases)), run]


def first_unlike(found: Iterable[tuple[Named, object]]) -> tuple[Named, Named] | None:
    """The first name whose value differs from the first value, and the name of that; None if all
    are alike. A value of None is skipped: nothing was scored."""
    known = [(name, value) for name, value in found if value is not None]
    return next(((name, known[0][0]) for name, value in known if value != known[0][1]), None)


def initial_weights(run: Run, baseline: Run) -> str:
    """Initial weights that runs of equal seeds share: `all`, those of the `encoder`, or `none`.

    Weights are drawn in the order of the parameters, those of the encoder first.
    """
    if run.data.vocab_size != baseline.data.vocab_size:
        return "none"
    # each changes how many numbers are drawn, or by which law, and so all that follow
    shapes = [
        name
        for name in ("layers", "width", "feed_forward", "positions", "position_offset",
                     "segment_types", "embedding_width", "sharing", "groups",
                     "initializer_range", "initializer")
        if getattr(run.encoder, name) != getattr(baseline.encoder, name)
    ]  # fmt: skip
    if shapes:
        return "none"
    mine, theirs = run.objective, baseline.objective
    if mine.kind != theirs.kind:
        return "encoder"
    alike = mine.kind not in GENERATOR_KINDS or mine.generator == theirs.generator
    return "all" if alike else "encoder"
