"""Fine-tuned scores of a finished run: pipeline.finetune on each task that --finetune names.

RUN/finetune-TASK is the output of pipeline.finetune, without its weights. RUN/finetune-TASK.json is
written last, so a task that has it is done; it may be asked for after the run has been measured.

All arms are fine-tuned by the baseline's protocol, and the runs of a seed with the same fine-tuning
seeds, which differ between seeds: with --finetune-seeds N, run s has seeds N s to N s + N - 1, and
their mean is its score.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from statistics import fmean
from typing import IO, Any

from pipeline.base.errors import EXIT_DIVERGED, ConfigError, DataError
from pipeline.base.files import write_whole
from pipeline.base.typed_json import as_json, check_finite, name_damage, read_object, require
from pipeline.downstream.finetune_tasks import TASKS
from pipeline.downstream.protocols import PROTOCOLS, usual_protocol
from pipeline.experiments.ablation import (
    RUNS,
    Ablation,
    AblationArm,
    AblationJob,
    first_unlike,
)
from pipeline.experiments.children import ChildError, Children

FINE_TUNED = "fine-tuned"
"""The measure of all tasks together, if there are several, and prefix of each task's."""
DIVERGED = "fine-tuning diverged"
_SCORES, _WEIGHTS, _SETTINGS = "scores.json", "model", "finetune.json"
"""Files that pipeline.finetune writes."""


def protocol_name(baseline: AblationArm) -> str:
    """The usual protocol of an arm's family and width. Raises as `find_recipe_family`."""
    return usual_protocol(find_recipe_family(baseline), baseline.run.encoder.width)


def find_recipe_family(baseline: AblationArm) -> str:
    """The first part of an arm's recipe, for BabyLM's that of its layers. Raises ConfigError if no
    family is named so."""
    recipe = baseline.arm.recipe
    family = recipe.partition("_")[0].replace("babylm", "modernbert")
    families = PROTOCOLS.keys() - {"small"}
    if family not in families:
        raise ConfigError(
            f"--finetune: no protocol is known for the baseline's recipe {recipe}; known: "
            f"{', '.join(sorted(families))}"
        )
    return family


def score_file(ablation: Ablation, job: AblationJob, task: str) -> Path:
    """File of a run's score on a task, once it is known."""
    return ablation.directory(job) / f"finetune-{task}.json"


def is_fine_tuned(ablation: Ablation, job: AblationJob) -> bool:
    """True if a run has all its scores."""
    return all(score_file(ablation, job, task).exists() for task, _ in ablation.tasks_of(job))


def has_scores(ablation: Ablation, task: str) -> bool:
    """True if a run of the output, asked for or not, has a score on a task."""
    return any(ablation.output.glob(f"{RUNS}/*/*/finetune-{task}.json"))


def fine_tune_run(
    ablation: Ablation, job: AblationJob, children: Children, log: Path, lock: IO[Any] | None
) -> None:
    """Fine-tune a run on each task that it has no score of. Raises ChildError."""
    for task, data in ablation.tasks_of(job):
        path = score_file(ablation, job, task)
        if path.exists():
            continue
        output, seeds = path.with_suffix(""), ablation.finetune_seeds
        words = (
            "pipeline.finetune", ablation.directory(job), "--task", task, "--data", data,
            "--output", output, "--protocol", ablation.protocol, "--seeds", seeds,
            # other baselines would be trained again for each run
            "--first-seed", job.seed * seeds, "--baselines", "majority",
        )  # fmt: skip
        try:
            children.run(words, log, lock)
        except ChildError as error:
            # divergence is a result, too: the same seeds would diverge again
            if error.code != EXIT_DIVERGED:
                raise
            found: dict[str, Any] = {"score": None, "seconds": 0.0}
        else:
            scores = read_object(output / _SCORES)
            # a mean over the seeds that did not diverge would be biased
            lost = any("diverged" in each for each in scores["runs"])
            score = scores["scores"][TASKS[task].metrics[0]]["mean"]
            found = {"score": None if lost else score, "seconds": scores["seconds"]}
            shutil.rmtree(output / _WEIGHTS, ignore_errors=True)  # a model per run and task adds up
        found["examples"] = _examples(output)
        write_whole(path, as_json(found, indent=1).encode())
        said = DIVERGED if found["score"] is None else f"{found['score']:.4f}"
        print(f"{job.name}: {task} {said}, {found['seconds']:.0f} s", flush=True)


def fine_tuned(ablation: Ablation, job: AblationJob) -> tuple[dict[str, float], dict[str, str]]:
    """Scores of a run as measures, and why some are missing; nothing for tasks not yet done."""
    measures: dict[str, float] = {}
    missing: dict[str, str] = {}
    for task, _ in ablation.tasks_of(job):
        name = f"{FINE_TUNED}/{task} {TASKS[task].metrics[0]}"
        found = _read(score_file(ablation, job, task))
        if found is not None and found["score"] is not None:
            measures[name] = float(found["score"])
        elif found is not None:
            missing[name] = DIVERGED
    # a mean over the tasks that happened to finish would not compare
    if len(ablation.tasks) > 1:
        if missing:
            missing[FINE_TUNED] = DIVERGED
        elif measures:
            measures[FINE_TUNED] = fmean(measures.values())
    return measures, missing


def check_examples(ablation: Ablation, jobs: list[AblationJob]) -> None:
    """Raise DataError if runs were fine-tuned on other examples of a task than the first run."""
    for task, _ in ablation.tasks:
        paths = [score_file(ablation, job, task) for job in jobs]
        found = ((path, each["examples"]) for path in paths if (each := _read(path)))
        if pair := first_unlike(found):
            raise DataError(
                f"{pair[0]} is the score of other examples than {pair[1]}; remove it and "
                f"{pair[0].with_suffix('')}, and rerun"
            )


def read_seconds(ablation: Ablation, jobs: list[AblationJob], task: str) -> list[float]:
    """Seconds of the fine-tunings of a task that are done."""
    found = [_read(score_file(ablation, job, task)) for job in jobs]
    return [float(each["seconds"]) for each in found if each is not None]


def _examples(output: Path) -> dict[str, str]:
    """Number and hash of the examples in each file of a fine-tuning."""
    path = output / _SETTINGS
    with name_damage(path, f"remove {output} and rerun"):
        return {name: text for name, text in read_object(path).items() if name.endswith("examples")}


def _read(path: Path) -> dict[str, Any] | None:
    """Raises DataError if it is damaged."""
    if not path.exists():
        return None
    with name_damage(path, "remove it and rerun"):
        found = read_object(path)
        score = {} if "score" in found and found["score"] is None else {"score": float}
        require(found, {"seconds": float, "examples": dict, **score}, "it")
        check_finite([found["seconds"], *(found[name] for name in score)])
    return {name: found[name] for name in ("score", "seconds", "examples")}
