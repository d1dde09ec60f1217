"""An ablation before it starts: its arms, whether they can run, and its hours.

Before anything is prepared, `check_arms` lets each arm's commands look at what they would do: one
arm that cannot work ends the command before the others have trained for days.

Hours are those of finished runs, or come from a few measured steps (`run_times.py`); start,
validations and scoring are counted. Nothing is written to the output.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from pipeline.base.durations import in_one_unit
from pipeline.base.errors import ConfigError
from pipeline.config.run import Run
from pipeline.config.settings import flatten, to_dict
from pipeline.data.shards.manifest import MANIFEST, read_manifest
from pipeline.experiments.ablation import (
    RUNS,
    TUNING_FACTORS,
    Ablation,
    AblationArm,
    AblationJob,
    split_phases,
)
from pipeline.experiments.arm_shards import (
    LOGS,
    directories,
    held_out,
    prepare_command,
    prepare_log,
    shard_directory,
)
from pipeline.experiments.children import ChildError, Children
from pipeline.experiments.fine_tuning import read_seconds
from pipeline.experiments.measures import pair_judges
from pipeline.experiments.run_times import RunTimes, held_out_rows, measure_runs
from pipeline.experiments.runner import AblationRunner, arm_file
from pipeline.recipes import recipe
from pipeline.remote.urls import is_url
from pipeline.training.run_directory.run_status import RECORD


def describe_arms(ablation: Ablation) -> Iterator[str]:
    """The settings of the baseline, and what each other arm differs in."""
    first = ablation.baseline
    own = _differences(recipe(first.arm.recipe), first.run)
    yield f"{first.name}, the baseline: {first.arm.recipe}{' with ' if own else ''}{own}"
    for arm in ablation.arms[1:]:
        differences = _differences(first.run, arm.run)
        yield f"{arm.name}: {differences or f'no setting differs from {first.name}'}"


def _differences(one: Run, other: Run) -> str:
    """The settings of `other` that differ from those of `one`, as `--set` takes them."""
    before, after = flatten(to_dict(one)), flatten(to_dict(other))
    return ", ".join(
        f"{path}={value if isinstance(value, str) else json.dumps(value)}"
        for path, value in after.items()
        if path != "name" and before.get(path) != value
    )


def check_arms(runner: AblationRunner, jobs: Sequence[AblationJob]) -> None:
    """Let the commands of each arm that has jobs, and no run that began, look at what they would
    do. Raises ConfigError that names all arms that cannot run, with the reasons."""
    ablation = runner.ablation
    wanted = {job.arm.name for job in jobs if not runner.is_done(job)}
    arms = [arm for arm in ablation.arms if arm.name in wanted and not _has_begun(ablation, arm)]
    if not arms:
        return
    print(f"checking {len(arms)} arm{'s' * (len(arms) > 1)}", flush=True)
    reasons: dict[str, str] = {}
    """Reasons by directory of shards or arm; empty for one that can be made."""
    refused: dict[str, list[str]] = {}
    for arm in arms:
        for part in split_phases(arm.run):
            key = shard_directory(ablation, part).name
            # once per directory, which arms share: each check runs a command for seconds
            if key not in reasons:
                reasons[key] = _why_not_prepared(ablation, part, runner.children)
        found = {shard_directory(ablation, part).name: None for part in split_phases(arm.run)}
        reason = next(filter(None, (reasons[key] for key in found)), "")
        if reason := reason or _why_not_trained(ablation, arm, runner.children):
            refused.setdefault(reason, []).append(arm.name)
    problems = [f"{', '.join(names)}: {reason}" for reason, names in refused.items()]
    if len(problems) == 1:
        raise ConfigError(problems[0])
    if problems:
        count = sum(map(len, refused.values()))
        raise ConfigError(f"{count} of {len(arms)} arms cannot run:", problems)


def _has_begun(ablation: Ablation, arm: AblationArm) -> bool:
    return any((ablation.output / RUNS / arm.name).glob(f"*/{RECORD}"))


def _why_not_prepared(ablation: Ablation, part: Run, children: Children) -> str:
    """Reason why the shards of a phase cannot be made; empty if they can, or exist."""
    if (shard_directory(ablation, part) / MANIFEST).exists():
        return ""
    words, log = prepare_command(ablation, part), prepare_log(ablation, part)
    try:
        if any(map(is_url, ablation.inputs)):  # a dry run reads copies
            children.run((*words, "--fetch"), log)
        children.run((*words, "--dry-run"), log)
    except ChildError as error:
        return str(error)
    return ""


def _why_not_trained(ablation: Ablation, arm: AblationArm, children: Children) -> str:
    """Reason why an arm cannot be planned; empty if it can."""
    shards = directories(ablation, arm)
    if all((directory / MANIFEST).exists() for directory in shards):
        data: list[object] = ["--data", *shards]
    elif any(part.batch.is_mixed or part.batch.corpora for part in split_phases(arm.run)):
        return ""  # needs corpora that only shards have
    else:
        data = ["--tokens", "1e9"]  # any number: only contradictions matter
    words = ["pipeline.plan", arm_file(ablation, arm), *data, "--cpu"]
    try:
        children.run(words, ablation.output / LOGS / f"{arm.name}-plan.log")
    except ChildError as error:
        return str(error)
    return ""


@dataclass(frozen=True, slots=True)
class ArmEstimate:
    """The cost of an arm's runs."""

    arm: AblationArm
    runs: int
    done: int
    seconds: float
    """Seconds of one run, from its start to its score."""
    source: str
    """Source of `seconds`."""
    once: float = 0.0
    """Seconds before its first run: checks, and shards that no earlier arm reads; 0 if done."""

    @property
    def left(self) -> float:
        """Seconds of the runs that are not done."""
        return self.once + self.seconds * (self.runs - self.done)


def estimate_arms(runner: AblationRunner) -> list[ArmEstimate]:
    """The cost of each arm, the baseline first."""
    ablation = runner.ablation
    jobs = {
        arm.name: [job for job in ablation.jobs() if job.arm is arm] + runner.tuning_jobs(arm)
        for arm in ablation.arms
    }
    done = {name: [job for job in each if runner.is_measured(job)] for name, each in jobs.items()}
    recorded = {
        name: _recorded([float(runner.result(job).get("wall_seconds", 0.0)) for job in each])
        for name, each in done.items()
    }
    unknown = [
        arm
        for arm in ablation.arms
        if not recorded[arm.name][1] and len(done[arm.name]) < len(jobs[arm.name])
    ]
    times: dict[str, RunTimes] = {}
    if unknown:
        print(f"timing a few steps of {', '.join(arm.name for arm in unknown)}", flush=True)
        measured = measure_runs([arm.run for arm in unknown], runner.children)
        times = {arm.name: each for arm, each in zip(unknown, measured, strict=True)}
    found = []
    shards: set[Path] = set()
    for arm in ablation.arms:
        seconds, count = recorded[arm.name]
        source, once = f"recorded by {count} finished run{'s' * (count > 1)}", 0.0
        if arm.name in times:
            seconds, source = _run_seconds(ablation, arm, times[arm.name]), "measured here"
            if not _has_begun(ablation, arm):
                # arms share shards: whichever comes first pays for them
                missing = {d for d in directories(ablation, arm) if not (d / MANIFEST).exists()}
                once = _seconds_before(times[arm.name], len(missing - shards))
                shards |= missing
        found.append(
            ArmEstimate(arm, len(jobs[arm.name]), len(done[arm.name]), seconds, source, once)
        )
    return found


def _recorded(done: Sequence[float]) -> tuple[float, int]:
    """Mean seconds and number of the runs that recorded some: one that diverged has 0."""
    known = [seconds for seconds in done if seconds]
    return (fmean(known) if known else 0.0), len(known)


def _run_seconds(ablation: Ablation, arm: AblationArm, times: RunTimes) -> float:
    """Seconds of one run of an arm, validated on its own shards if there are any."""
    shards = held_out(ablation, arm)
    known = (shards / MANIFEST).exists()
    rows = held_out_rows(read_manifest(shards)) if known else times.held_out
    # a judge is one more pipeline.evaluate, see measure_run
    pairs = len(pair_judges(ablation)) if arm.run.objective.kind == "mlm_pair" else 0
    return times.of_run(arm.run, rows, scorings=1 + pairs)


def _seconds_before(times: RunTimes, missing: int) -> float:
    """Seconds before the first run of an arm: `check_arms` looks at it and at each of the missing
    shards, which are then prepared."""
    # two starts: a dry run, then the preparation
    return times.start + missing * (2 * times.start + times.prepare)


def describe_costs(runner: AblationRunner, found: list[ArmEstimate]) -> Iterator[str]:
    """The estimate in words."""
    ablation = runner.ablation
    jobs = ablation.jobs()
    yield (
        f"{len(jobs)} runs (--task 0 to {len(jobs) - 1}): {len(ablation.arms)} arms with "
        f"{ablation.seeds} seeds, and {ablation.seeds} more of {ablation.baseline.name} for the "
        "noise"
    )
    if ablation.tune:
        count = len(TUNING_FACTORS) * len(ablation.arms)
        yield f"{count} runs before them, which tune the peak learning rates"
    for part in found:
        cost = f"; {in_one_unit(part.seconds)} each ({part.source})" if part.seconds else ""
        yield (
            f"  {part.arm.name}: {part.runs} runs of {part.arm.run.steps:,} steps, {part.done} "
            f"done{cost}"
        )
    left = sum(part.left for part in found)
    for task, _ in ablation.tasks:
        tuned = [job for job in jobs if not runner.has_diverged(job)]
        done = read_seconds(ablation, tuned, task)
        seconds, count = _recorded(done)
        if count:
            left += seconds * (len(tuned) - len(done))
            cost = f"{in_one_unit(seconds)} each"
        else:
            cost = "not in the hours below, as none is done"
        yield f"  {task}: {len(tuned)} runs to fine-tune, {len(done)} done; {cost}"
    yield f"{in_one_unit(left)} left if run one after another{_not_counted(runner, found)}"


def _not_counted(runner: AblationRunner, found: Sequence[ArmEstimate]) -> str:
    """Costs that the estimate leaves out, in words."""
    ablation = runner.ablation
    unlike = any(part.once for part in found) and "sample" not in ablation.inputs
    words = [
        # a list times False is empty
        "; preparing and validations are counted as for the sample corpus, until there are shards"
    ] * unlike
    return "".join(words + ["; minimal pairs are not counted"] * (ablation.grammar is not None))
