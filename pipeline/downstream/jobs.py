"""The seeds of a fine-tuning, each finished once: what is done is a file.

OUTPUT/jobs/ARM-POINT-SEED appears whole, with result.json, so a seed that has it is done. Processes
share the jobs by number: ranks of torchrun and elements of a Slurm array take every n-th one, and
need not meet; each one that finds all results writes the scores.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from model.tasks.task_model import TaskDesign, TaskModel, word_bag_model
from pipeline.base.errors import ConfigError, DivergedError
from pipeline.base.files import make_directory, write_whole
from pipeline.base.publish import TakenError, whole_folder
from pipeline.base.typed_json import as_json, name_damage, read_object, require
from pipeline.cluster.process_group import device_name
from pipeline.downstream.features import Feature
from pipeline.downstream.finetune_tasks import LabelledTask
from pipeline.downstream.protocols import TuningProtocol
from pipeline.downstream.reading.examples import Example
from pipeline.downstream.starting_weights import StartingWeights, save_weights
from pipeline.downstream.task_predictions import Predicted, predictions, score, unsure
from pipeline.downstream.tfidf import fit_predict
from pipeline.downstream.training import fine_tune, predict
from pipeline.execution.ledger import check_same_work, hold_lock, record_once

MODEL, BAG, RANDOM, TFIDF = "model", "bag", "random", "tfidf"
ARMS = (MODEL, BAG, RANDOM)
"""The weights in question, and what they are compared with by the same protocol."""
ARMS_OF = {
    "all": (*ARMS, TFIDF), "bag": (MODEL, BAG), "tfidf": (MODEL, TFIDF), "majority": (MODEL,),
}  # fmt: skip
"""Arms that are trained, by --baselines."""
BAG_RATE = 1e-2
"""Learning rate of the bag of words, whose embeddings move too little at an encoder's rate."""
RESULT, PREDICTIONS, WEIGHTS = "result.json", "predictions.jsonl", "weights.safetensors"
SETTINGS = "finetune.json"
"""Settings of an output; a fine-tuning with others does not continue it."""


@dataclass(frozen=True, slots=True)
class TuningJob:
    """One fine-tuning."""

    arm: str
    point: int
    """Index in the grid."""
    seed: int

    @property
    def name(self) -> str:
        """Name of the job's folder."""
        return f"{self.arm}-{self.point}-{self.seed}"


@dataclass(frozen=True, kw_only=True, slots=True)
class TuningWork:
    """All that the jobs of an output share."""

    task: LabelledTask
    design: TaskDesign
    start: StartingWeights
    points: list[TuningProtocol]
    train: list[Feature]
    training: list[Example]
    """The examples of `train`."""
    dev: list[tuple[str, list[Example], list[Feature]]]
    """Development files: prefix of their metrics, examples, features."""
    tests: dict[str, list[Example]]
    """Examples of test files, by the name of the file to submit."""
    device: torch.device
    output: Path

    def folder(self, job: TuningJob) -> Path:
        """Folder of a job's files."""
        return self.output / "jobs" / job.name


def choose_arms(baselines: str, missing: str) -> tuple[str, ...]:
    """Arms to train; missing: the reason why TF-IDF cannot run, which `all` ignores.

    Raises ConfigError if it was asked for by name.
    """
    if missing and baselines == TFIDF:
        raise ConfigError(f"{missing}; or give another of --baselines")
    return tuple(arm for arm in ARMS_OF[baselines] if not (missing and arm == TFIDF))


def plan_jobs(seeds: Sequence[int], points: int, arms: Sequence[str]) -> list[TuningJob]:
    """The jobs in the order of their work: the model's seeds first. TF-IDF has neither seeds nor
    grid points, and is one job."""
    jobs = [
        TuningJob(arm, point, seed) for arm in arms for point in range(points) for seed in seeds
    ]
    return [job for job in jobs if job.arm != TFIDF or (job.point, job.seed) == (0, seeds[0])]


def claim_output(output: Path, settings: dict[str, Any]) -> None:
    """Create the output, or check that it was made with the same settings.

    Raises ConfigError naming the first setting that differs.
    """
    make_directory(output / "jobs", "name another --output")
    before = record_once(output / SETTINGS, settings, "give another --output")
    # through JSON, as the recorded settings went: tuples become lists
    check_same_work(output, before, json.loads(json.dumps(settings)))


def is_done(work: TuningWork, job: TuningJob) -> bool:
    """True if the job has its result."""
    return (work.folder(job) / RESULT).exists()


def why_diverged(result: Mapping[str, Any]) -> str:
    """Reason why a seed has no metrics; empty if it has."""
    return str(result.get("diverged", ""))


def result_of(path: Path) -> dict[str, Any]:
    """The content of a job's result.json. Raises DataError if it is damaged."""
    with name_damage(path, "remove it, and the same command repeats that seed"):
        found = read_object(path)
        require(found, {"metrics": dict, "seconds": float, "seed": int}, "it")
    return found


@contextmanager
def hold_job(work: TuningWork, job: TuningJob) -> Iterator[None]:
    """Hold the lock of a job, whose files one process writes. Raises ConfigError if another does,
    such as an element of an array that was submitted twice."""
    path = work.output / f".{job.name}.lock"  # outside its folder, which appears whole
    with hold_lock(path) as lock:
        if lock is None:
            raise ConfigError(
                f"{work.folder(job)} is being written by another pipeline.finetune, which has "
                f"locked {path}; wait for it, or give another --output"
            )
        yield


def run_job(work: TuningWork, job: TuningJob) -> dict[str, Any]:
    """Fit, score, and publish the job's folder. Where locks have no effect, another process may
    do the same job, and the result is that of the first.

    A seed that diverges is done, too: it would diverge again, and the others have their scores.
    """
    folder = work.folder(job)
    if not is_done(work, job):  # the user removed the result
        shutil.rmtree(folder, ignore_errors=True)
    if job.arm == TFIDF:
        model, fitted, found = None, *_run_tfidf(work, job)
    else:
        model, fitted, found = _run_fine_tuning(work, job)
    metrics: dict[str, float] = {}
    lines: list[bytes] = []
    for (prefix, _, _), predicted in zip(work.dev, found, strict=not why_diverged(fitted)):
        metrics |= {f"{prefix}{name}": value for name, value in score(predicted, work.task).items()}
        lines += [part.line(prefix.rstrip("_")) for part in predicted]
    result = {"arm": job.arm, "seed": job.seed, **fitted, "metrics": metrics}
    try:
        with whole_folder(folder) as written:
            write_whole(written / PREDICTIONS, b"".join(lines))
            # baselines are compared, never published
            if model is not None and job.arm == MODEL:
                save_weights(model, written / WEIGHTS)
            write_whole(written / RESULT, as_json(result, indent=1).encode())
    except TakenError:
        print(f"{folder} was finished by another process first; its result counts", flush=True)
        return result_of(folder / RESULT)
    if job.arm == MODEL:
        # after publishing, so that this seed is among those compared
        _drop_worse_weights(work, job.point)
    return result


def _run_fine_tuning(
    work: TuningWork, job: TuningJob
) -> tuple[TaskModel | None, dict[str, Any], list[list[Predicted]]]:
    """Fine-tune: the model, entries of its result, and predictions of each development file.

    Neither model nor predictions if it diverged.
    """
    protocol = work.points[job.point]
    model = _model(work, job, protocol)
    began = time.monotonic()
    rates = _of_bag(protocol) if job.arm == BAG else protocol
    device = device_name(work.device)
    fitted = {"peak_lr": rates.peak_lr, "rows": protocol.rows, "device": device}
    try:
        fit = fine_tune(model, work.train, work.task.kind, rates, job.seed, work.device, job.name)
        seconds = time.monotonic() - began  # before predicting: scores report the cost of training
        found = [predict_examples(work, model, examples, own) for _, examples, own in work.dev]
    except DivergedError as error:
        seconds = time.monotonic() - began
        return None, fitted | {"seconds": round(seconds, 3), "diverged": str(error)}, []
    fitted |= {"steps": fit.steps, "loss": fit.loss, "seconds": round(seconds, 3)}
    return model, fitted, found


def _run_tfidf(work: TuningWork, job: TuningJob) -> tuple[dict[str, Any], list[list[Predicted]]]:
    """Fit the baseline of `tfidf`; its result has no hyperparameters of a fine-tuning."""
    began = time.monotonic()
    sets = [examples for _, examples, _ in work.dev]
    fitted = fit_predict(work.training, sets, work.task.kind)
    found = [unsure(examples, own) for examples, own in zip(sets, fitted)]
    return {"seconds": round(time.monotonic() - began, 3)}, found


def describe_result(work: TuningWork, job: TuningJob, result: dict[str, Any]) -> str:
    """A line for a finished job."""
    if why := why_diverged(result):
        return f"{job.arm} seed {job.seed} diverged: {why}"
    metric = work.task.metrics[0]
    said = f"{metric} {result['metrics'][metric]:.4f}"
    if job.arm == TFIDF:
        return f"{job.arm}: {said}, {result['seconds']:.0f} s"
    return (
        f"{job.arm} seed {job.seed}, rate {result['peak_lr']:g}, {result['rows']} rows: {said}, "
        f"loss {result['loss']:.4f}, {result['seconds']:.0f} s"
    )


def merit(work: TuningWork, result: Mapping[str, Any]) -> tuple[float, int]:
    """Greatest for the result of a grid point whose weights are kept: of equals the first seed."""
    return result["metrics"][work.task.metrics[0]], -result["seed"]


def _drop_worse_weights(work: TuningWork, point: int) -> None:
    """Keep only the best weights of a grid point: large models have gigabytes per seed."""
    paths = work.output.glob(f"jobs/{MODEL}-{point}-*/{RESULT}")
    found = {path: own for path in paths if not why_diverged(own := result_of(path))}
    # all processes sort alike, so whichever runs last, the best weights remain
    for path in sorted(found, key=lambda path: merit(work, found[path]))[:-1]:
        path.with_name(WEIGHTS).unlink(missing_ok=True)  # another process may have dropped it


def predict_examples(
    work: TuningWork, model: TaskModel, examples: list[Example], features: list[Feature]
) -> list[Predicted]:
    """The model's prediction of each example."""
    logits = predict(model, features, work.device)
    return predictions(examples, features, logits, work.task, work.design.labels)


def _model(work: TuningWork, job: TuningJob, protocol: TuningProtocol) -> TaskModel:
    start = work.start.with_dropout(protocol.dropout)
    if job.arm == RANDOM:
        model = start.random_model(work.design, job.seed)
    else:
        model = start.model(work.design, job.seed)
    if job.arm == BAG:
        model = word_bag_model(model, job.seed)
    return model.to(work.device)


def _of_bag(protocol: TuningProtocol) -> TuningProtocol:
    return replace(protocol, peak_lr=BAG_RATE, layer_decay=1.0)
