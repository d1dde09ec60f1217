"""What an ablation would run, whether it can, and its hours.

Before anything is prepared, `check_arms` lets each arm's commands look at what they would do: one
arm that cannot work ends the command before the others have trained for days.

Hours are those of finished runs, or come from a few measured steps. These are trained in a
temporary directory on the sample corpus, in the arm's format and sizes: seconds per token hardly
depend on the text. Nothing is written to the output.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from pipeline.base.durations import in_one_unit
from pipeline.base.errors import ConfigError
from pipeline.base.files import write_whole
from pipeline.base.typed_json import as_object
from pipeline.config.run import Run
from pipeline.config.settings import flatten, override, to_dict
from pipeline.data.shards.manifest import MANIFEST
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
    prepare_command,
    prepare_log,
    shard_directory,
)
from pipeline.experiments.children import ChildError, Children
from pipeline.experiments.fine_tuning import read_seconds
from pipeline.experiments.runner import AblationRunner, arm_file
from pipeline.recipes import recipe
from pipeline.remote.urls import is_url
from pipeline.training.run_directory.run_status import METRICS, RECORD

MEASURED_STEPS = 4
"""The first is not counted: it compiles."""


def describe_arms(ablation: Ablation) -> Iterator[str]:
    """The settings of the baseline, and what each other arm differs in."""
    first = ablation.baseline
    own = _differences(recipe(first.arm.recipe), first.run)
    yield f"{first.name}, the baseline: {first.arm.recipe}{' with ' if own else ''}{own}"
    for arm in ablation.arms[1:]:
        differences = _differences(first.run, arm.run)
        yield f"{arm.name}: {differences or f'no setting differs from {first.name}'}"


def _differences(one: Run, other: Run) -> str:
    """The settings of `other` that `one` has not, as `--set` takes them."""
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
    """By what was looked at: a directory of shards or an arm; empty for one that can be made."""
    refused: dict[str, list[str]] = {}
    for arm in arms:
        for part in split_phases(arm.run):
            key = shard_directory(ablation, part).name
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
    """Why the shards that a phase reads cannot be made; empty if they can, or are there."""
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
    """Why an arm cannot be planned; empty if it can."""
    shards = directories(ablation, arm)
    if all((directory / MANIFEST).exists() for directory in shards):
        data: list[object] = ["--data", *shards]
    elif any(part.batch.is_mixed or part.batch.corpora for part in split_phases(arm.run)):
        return ""  # needs corpora that only shards have
    else:
        data = ["--tokens", "1e9"]
    words = ["pipeline.plan", "--run", arm_file(ablation, arm), *data, "--cpu"]
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
    """Of one run, in steps."""
    source: str
    """Where `seconds` comes from."""

    @property
    def left(self) -> float:
        """Seconds of the runs that are not done."""
        return self.seconds * (self.runs - self.done)


def estimate_arms(runner: AblationRunner) -> list[ArmEstimate]:
    """The cost of each arm, the baseline first."""
    found = []
    for arm in runner.ablation.arms:
        jobs = [job for job in runner.ablation.jobs() if job.arm is arm]
        jobs += runner.tuning_jobs(arm)
        done = [job for job in jobs if runner.is_measured(job)]
        seconds, count = _recorded([float(runner.result(job)["seconds"]) for job in done])
        if count:
            source = f"recorded by {count} finished run{'s' * (count > 1)}"
        else:
            seconds = measured_seconds(arm.run, runner.children)
            source = f"measured, {MEASURED_STEPS - 1} steps on this machine"
        found.append(ArmEstimate(arm, len(jobs), len(done), seconds, source))
    return found


def _recorded(done: Sequence[float]) -> tuple[float, int]:
    """Mean seconds and number of the runs that recorded some: one that diverged has 0."""
    known = [seconds for seconds in done if seconds]
    return (fmean(known) if known else 0.0), len(known)


def measured_seconds(run: Run, children: Children) -> float:
    """Seconds of a run's steps, from a few smaller ones of the same micro-batches."""
    small = override(run, [
        "phases=[]", "batch.step_tokens=0", "batch.warmup_steps=0", "batch.first_sequences=1",
        f"batch.sequences={min(run.batch.sequences, run.batch.per_device)}", "batch.mixture=[]",
        "batch.mixture_exponent=1", "batch.corpora=[]",
        f"steps={max(run.schedule.warmup_steps + run.schedule.decay_steps, MEASURED_STEPS) + 1}",
        f"validation.every={run.steps + MEASURED_STEPS}", "logging.every=1",
    ])  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="tenfold-") as name:
        folder = Path(name)
        settings, shards, output = folder / "run.json", folder / "shards", folder / "run"
        write_whole(settings, json.dumps({"run": to_dict(small)}).encode())
        root = {"TENFOLD_ROOT": str(folder / "root")}
        words: list[object] = ["pipeline.prepare", "--corpus", "sample", "--run", settings]
        children.run([*words, "--output", shards], folder / "log", environment=root)
        words = ["pipeline.train", "--run", settings, "--data", shards, "--output", output]
        children.run([*words, "--stop-at", MEASURED_STEPS], folder / "log", environment=root)
        lines = [as_object(line) for line in (output / METRICS).read_bytes().splitlines()]
    pace = median(float(line["step_seconds"]) for line in lines if line["step"] > 1)
    step_tokens = lines[-1]["tokens"] / lines[-1]["step"]
    per_sequence = step_tokens / small.batch.sequences
    return float(pace / step_tokens * tokens_of(run, per_sequence))


def tokens_of(run: Run, per_sequence: float) -> float:
    """Tokens that a run reads; per_sequence: mean number in a row of the last phase."""
    last = run.batch.step_tokens or run.batch.sequences * per_sequence
    share = per_sequence / run.data.sequence_length
    steps = run.steps - sum(phase.steps for phase in run.phases)
    earlier = sum(p.steps * p.sequences * p.sequence_length for p in run.phases) * share
    return steps * last + earlier


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
        yield (
            f"  {part.arm.name}: {part.runs} runs of {part.arm.run.steps:,} steps, {part.done} "
            f"done; {in_one_unit(part.seconds)} each ({part.source})"
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
    yield (
        f"{in_one_unit(left)} left if run one after another, besides preparing, validations and "
        "scoring"
    )
