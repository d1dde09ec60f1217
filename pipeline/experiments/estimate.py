"""What an ablation would run, and its hours: from finished runs, or from a few measured steps.

The steps are trained in a temporary directory on the sample corpus, in the arm's format and sizes:
seconds per token hardly depend on the text. Nothing is written to the output.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from pipeline.config.run import Run
from pipeline.config.settings import override, to_dict
from pipeline.durations import in_one_unit
from pipeline.experiments.ablation import TUNING_FACTORS, AblationArm
from pipeline.experiments.children import Children
from pipeline.experiments.fine_tuning import seconds_of
from pipeline.experiments.runner import AblationRunner
from pipeline.files import write_whole
from pipeline.training.run_directory.status import METRICS
from pipeline.typed_json import as_object

MEASURED_STEPS = 4
"""The first is not counted: it compiles."""


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


def estimate(runner: AblationRunner) -> list[ArmEstimate]:
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


def describe(runner: AblationRunner, found: list[ArmEstimate]) -> Iterator[str]:
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
        done = seconds_of(ablation, tuned, task)
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
