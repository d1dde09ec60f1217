"""The runs of an ablation, each finished once: what is done is a file.

OUTPUT/runs/ARM/seed-N is a run directory of pipeline.train; result.json in it is written last, so a
run that has it is done. Processes share the runs by locks: elements of a Slurm array take one each,
and need not meet. A run that was interrupted resumes from its checkpoint.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from pipeline.base.errors import EXIT_DIVERGED, ConfigError, PipelineError
from pipeline.base.files import make_directory, write_whole
from pipeline.base.shown_urls import recorded_url
from pipeline.base.typed_json import as_json, name_damage, read_object, require
from pipeline.config.settings import fingerprint, override, to_dict
from pipeline.data.shards.manifest import MANIFEST
from pipeline.execution.ledger import check_same_work, hold_lock
from pipeline.experiments.ablation import (
    TUNING_FACTORS,
    TUNING_SEED,
    Ablation,
    AblationArm,
    AblationJob,
)
from pipeline.experiments.arm_shards import LOGS, SHARDS, directories, prepare_shards
from pipeline.experiments.children import ChildError, Children
from pipeline.experiments.fine_tuning import (
    fine_tune_run,
    fine_tuned,
    has_scores,
    is_fine_tuned,
)
from pipeline.experiments.measures import (
    RESULT,
    check_result,
    diverged_result,
    divergence,
    measure_run,
)
from pipeline.training.run_directory.run_status import RECORD

SETTINGS = "settings.json"
"""Settings of an output; an ablation with others does not continue it."""
ARMS = "arms"
_TASKS = "finetune"
"""Tasks in the settings; unlike the others they may be added to, see `with_scored_tasks`."""
_SETTING_TYPES = {
    "table": str, "baseline": str, "tune": bool, "inputs": list[str], "grammar": str, "arms": dict,
    _TASKS: dict,
}  # fmt: skip


class RunError(PipelineError):
    """A run that failed."""


@dataclass(frozen=True, slots=True)
class AblationRunner:
    """Trains and scores the runs of an ablation."""

    ablation: Ablation
    children: Children

    def finish(self, jobs: Sequence[AblationJob]) -> None:
        """Do all these runs; one that another process has locked is tried again until it is done.

        A run that fails says so at once and stops none of the others. Raises RunError for the
        first, at the end.
        """
        failed: list[RunError] = []
        waiting = list(jobs)
        while waiting:
            taken_elsewhere = []
            for job in waiting:
                try:
                    if not self._do(job):
                        taken_elsewhere.append(job)
                except RunError as error:
                    failed.append(error)
            if waiting := taken_elsewhere:
                self.children.pause()
        if failed:
            more = f"; {len(failed) - 1} more runs failed" if len(failed) > 1 else ""
            raise RunError(f"{failed[0]}{more}") from failed[0]

    def is_done(self, job: AblationJob) -> bool:
        """True if a run has its result and its fine-tuned scores; one that diverged has none."""
        if not self.is_measured(job):
            return False
        return is_fine_tuned(self.ablation, job) or self.has_diverged(job)

    def has_diverged(self, job: AblationJob) -> bool:
        """True if a run is done because it diverged; with the same settings it would again."""
        return self.is_measured(job) and bool(divergence(self.result(job)))

    def is_measured(self, job: AblationJob) -> bool:
        """True if a run has its result, all but fine-tuned scores."""
        return (self.ablation.directory(job) / RESULT).exists()

    def result(self, job: AblationJob) -> dict[str, Any]:
        """The result of a measured run, with its fine-tuned scores so far.

        Raises DataError if it is damaged.
        """
        path = self.ablation.directory(job) / RESULT
        with name_damage(path, "remove it and rerun"):
            found = read_object(path)
            check_result(found, job)
        measures, missing = fine_tuned(self.ablation, job)
        if measures or missing:
            found |= {"measures": found["measures"] | measures,
                      "missing": found["missing"] | missing}  # fmt: skip
        return found

    def tuning_jobs(self, arm: AblationArm) -> list[AblationJob]:
        """The runs that choose an arm's peak learning rate; none without --tune."""
        factors = TUNING_FACTORS if self.ablation.tune else ()
        return [AblationJob(arm=arm, seed=TUNING_SEED, factor=factor) for factor in factors]

    def rate_of(self, arm: AblationArm) -> float:
        """The peak learning rate of an arm's runs in the table."""
        jobs = self.tuning_jobs(arm)
        if not jobs:
            return arm.run.optimizer.peak_lr
        best = min(jobs, key=lambda job: held_out_loss(self.result(job)))
        return arm.run.optimizer.peak_lr * best.factor

    def _do(self, job: AblationJob) -> bool:
        """Do a run unless it is done; False if another process has taken it."""
        directory = self.ablation.directory(job)
        with hold_lock(directory.with_name(f".{directory.name}.lock")) as lock:
            # before looking at the lock, which the process that finished it may still hold
            if self.is_done(job):
                return True
            if lock is None:
                return False
            log = self.ablation.output / LOGS / f"{job.arm.name}-{job.folder}.log"
            try:
                if not self.is_measured(job):
                    self._train(job, log, lock)
                if not self.has_diverged(job):
                    fine_tune_run(self.ablation, job, self.children, log, lock)
            except RunError:
                raise  # of a run that tunes the rate
            except PipelineError as error:
                print(f"{job.name} failed: {error}", file=sys.stderr, flush=True)
                raise RunError(f"{job.name}: {error}") from error
            return True

    def _train(self, job: AblationJob, log: Path, lock: IO[Any]) -> None:
        """Train and measure a run. Raises ChildError, and DataError for damaged files."""
        directory = self.ablation.directory(job)
        # the runs that tune the rate, which other processes may share
        self.finish([] if job.factor else self.tuning_jobs(job.arm))
        factor = job.factor * job.arm.run.optimizer.peak_lr
        rate = factor or self.rate_of(job.arm)
        prepare_shards(self.ablation, job.arm, self.children)
        resumes, began = (directory / RECORD).exists(), time.monotonic()
        try:
            self.children.run(self._command(job, rate, directory), log, lock)
            result = measure_run(self.ablation, job, rate, self.children, log, lock)
            if not resumes:  # the time of a resumed run is not that of the whole
                result["wall_seconds"] = round(time.monotonic() - began, 3)
        except ChildError as error:
            if error.code != EXIT_DIVERGED:
                raise
            result = diverged_result(job, rate, str(error))
        make_directory(directory, "name another --output")
        write_whole(directory / RESULT, as_json(result, indent=1).encode())
        if why := divergence(result):
            print(f"{job.name}: diverged: {why}", flush=True)
        else:
            loss = held_out_loss(result)
            print(f"{job.name}: {loss:.4f} nats at [MASK], {result['seconds']:.0f} s", flush=True)

    def _command(self, job: AblationJob, rate: float, directory: Path) -> list[object]:
        return [
            "pipeline.train", arm_file(self.ablation, job.arm),
            "--data", *directories(self.ablation, job.arm), "--output", directory,
            # repr() keeps every bit
            "--set", f"seed={job.seed}", "--set", f"optimizer.peak_lr={rate!r}",
        ]  # fmt: skip


def held_out_loss(result: dict[str, Any]) -> float:
    """The loss at [MASK] on the shared held-out sequences, or else on the arm's own; infinite for
    a run that diverged."""
    if divergence(result):
        return math.inf
    found = result["measures"].get("mask_loss", result.get("own_mask_loss"))
    return math.inf if found is None else float(found)


def arm_file(ablation: Ablation, arm: AblationArm) -> Path:
    """The settings of an arm, which are a recipe of the commands."""
    return ablation.output / ARMS / f"{arm.name}.json"


def with_scored_tasks(ablation: Ablation) -> Ablation:
    """The ablation with the tasks that runs of its output have scores of, asked for or not, and
    with the protocol of these scores.

    The task of a command may have another folder than recorded until there is a score of it.
    Raises ConfigError for a folder or a number of fine-tuning seeds that differs from the scores'.
    """
    recorded: dict[str, Any] = _read_settings(ablation)[_TASKS]
    scored = {task: each for task, each in recorded.items() if has_scores(ablation, task)}
    tasks, seeds, protocol = dict(ablation.tasks), ablation.finetune_seeds, ablation.protocol
    for task, earlier in scored.items():
        folder = tasks.setdefault(task, Path(earlier["data"])).resolve()
        if not ablation.tasks:
            seeds = earlier["seeds"]
        protocol = earlier["protocol"]
        if (str(folder), seeds) != (earlier["data"], earlier["seeds"]):
            raise ConfigError(
                f"{ablation.output} has fine-tuned scores of {task} with {earlier['data']} and "
                f"--finetune-seeds {earlier['seeds']}, not {folder} and {seeds}; repeat that, or "
                "give another --output"
            )
    return replace(ablation, tasks=tuple(tasks.items()), finetune_seeds=seeds, protocol=protocol)


def claim_ablation(ablation: Ablation) -> None:
    """Create the output, or check that it was made with the same settings; seeds and tasks may be
    added.

    Raises ConfigError naming the first setting that differs.
    """
    check_ablation(ablation)
    make_directory(ablation.output / ARMS, "name another --output")
    for arm in ablation.arms:
        content = json.dumps({"run": to_dict(arm.run)}, indent=1).encode()
        write_whole(arm_file(ablation, arm), content)  # equal but for what changes no result
    tasks = {
        task: {
            "data": str(data.resolve()),
            "seeds": ablation.finetune_seeds,
            "protocol": ablation.protocol,
        }
        for task, data in ablation.tasks
    }
    earlier = _read_settings(ablation)[_TASKS]  # or another process asks for them now
    settings = _settings(ablation) | {_TASKS: earlier | tasks}
    write_whole(ablation.output / SETTINGS, json.dumps(settings, indent=1).encode())


def check_ablation(ablation: Ablation) -> None:
    """Raises ConfigError naming the first setting that differs from those the output has."""
    before, now = _read_settings(ablation), _settings(ablation)
    if not any(ablation.output.glob(f"{SHARDS}/*/{MANIFEST}")):
        del now["inputs"]  # nothing was prepared from them, as of a name that was mistyped
    # compared by name, so that the message lists the arms and not their hashes
    arms: dict[str, str] = now.pop("arms")
    check_same_work(ablation.output, {name: before[name] for name in now}, now)
    earlier = before["arms"]
    if changed := [arm for arm in {**earlier, **arms} if earlier.get(arm) != arms.get(arm)]:
        raise ConfigError(
            f"{ablation.output} was made with other arms or settings of arms "
            f"({', '.join(changed)}); repeat those, or give another --output"
        )


def _read_settings(ablation: Ablation) -> dict[str, Any]:
    """The settings of the output; those of the ablation if it is new."""
    path = ablation.output / SETTINGS
    if not path.exists():
        return _settings(ablation) | {_TASKS: {}}
    with name_damage(path, "give another --output"):
        found = read_object(path)
        require(found, _SETTING_TYPES, "it")
        for task, each in found[_TASKS].items():
            require(each, {"data": str, "seeds": int, "protocol": str}, f"{_TASKS}.{task}")
    return found


def _settings(ablation: Ablation) -> dict[str, Any]:
    """Settings that must be equal for an output to be continued."""
    return {
        "table": ablation.table.name,
        "baseline": ablation.baseline.name,
        "tune": ablation.tune,
        "inputs": [*map(recorded_url, ablation.inputs)],  # without signatures, which are renewed
        "grammar": str(ablation.grammar.resolve()) if ablation.grammar else "",
        # batch.per_device changes no result; a run that is out of memory advises to lower it
        "arms": {
            arm.name: fingerprint(override(arm.run, ["batch.per_device=1"]))
            for arm in ablation.arms
        },
    }
