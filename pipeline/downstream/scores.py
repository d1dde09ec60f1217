"""Results of all jobs -> OUTPUT/scores.json, the best model, predictions and GLUE's test files.

schema_version  1
task, kind      name and kind
metric          the one that seeds and grid points are compared by
model           origin, family, parameters, device, versions
protocol        the reported point: rates, rows, epochs, source of the numbers
grid            name, points tried (0 means no grid), each point's median (null if no seed finished)
                and number of seeds that diverged
data            training and development examples, skipped lines, rows without a label, development
                examples that are training examples, what truncation lost
scores          metric -> median, mean, standard_deviation, low, high (95 %), n, values; of the
                seeds that did not diverge
baselines       majority, tfidf: metric -> value; bag, random: as scores
runs            every fine-tuning: arm, seed, peak_lr, rows, steps, loss, seconds, device, metrics;
                of one that diverged the reason (diverged), no steps, no loss and empty metrics
best            seed and folder of the weights that are kept
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch

from model.tasks.task_model import TaskModel, fill_task_model
from pipeline import __version__
from pipeline.base.errors import CheckpointError, DivergedError
from pipeline.base.files import make_directory, one_at_a_time, remove_temporaries, write_whole
from pipeline.base.publish import TakenError
from pipeline.base.typed_json import as_json, read_object
from pipeline.cluster.process_group import device_name
from pipeline.downstream.data_summary import Copies
from pipeline.downstream.features import RowEncoder
from pipeline.downstream.jobs import (
    ARMS,
    BAG,
    MODEL,
    PREDICTIONS,
    RANDOM,
    RESULT,
    TFIDF,
    WEIGHTS,
    TuningJob,
    TuningWork,
    merit,
    predict_examples,
    result_of,
    why_diverged,
)
from pipeline.downstream.starting_weights import FINE_TUNED, StartingWeights, save_folder
from pipeline.downstream.task_predictions import majority, score, submission
from pipeline.evaluation.scoring.seed_summary import summarize_seeds
from pipeline.execution.ledger import lock_of
from pipeline.training.weights.model_folders import load_weights

SCHEMA_VERSION = 1
SCORES = "scores.json"


def check_started_from(output: Path, start: StartingWeights) -> None:
    """Raises CheckpointError unless `output` holds a finished fine-tuning of these weights."""
    path = output / SCORES
    try:
        before = read_object(path)["model"]["encoder_hash"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{path} does not say what was fine-tuned ({error!r}); finish that fine-tuning first"
        ) from error
    if before != start.encoder_hash:
        raise CheckpointError(
            f"--init-from {output} started from other weights than {start.origin}; give an output "
            "of the same model"
        )


def assemble_scores(
    work: TuningWork,
    jobs: Sequence[TuningJob],
    about: Mapping[str, Any],
) -> dict[str, Any]:
    """The content of scores.json; about: the parts that are known before training.

    Raises DivergedError if every seed of the model diverged.
    """
    found = [(job, result_of(work.folder(job) / RESULT)) for job in jobs]
    # TF-IDF has no seed, grid point or rate
    results = [(job, result) for job, result in found if job.arm != TFIDF]
    metric = work.task.metrics[0]
    finished = [item for item in results if not why_diverged(item[1])]
    values = [_values(finished, MODEL, point, metric) for point in range(len(work.points))]
    if not any(values):
        why = next(why_diverged(result) for job, result in results if job.arm == MODEL)
        raise DivergedError(
            f"every seed diverged, the first one so: {why} and give another --output"
        )
    planned = [
        sum(job.arm == MODEL and job.point == point for job, _ in results)
        for point in range(len(values))
    ]
    lost = [count - len(own) for count, own in zip(planned, values)]

    def rank(point: int) -> tuple[float, float]:
        """By the median in which seeds that diverged are the worst, or a point that loses its bad
        seeds would look best."""
        own = values[point]
        return median([*own, *[-math.inf] * lost[point]]), median(own) if own else -math.inf

    chosen = max(range(len(values)), key=rank)
    own = [item for item in finished if item[0].arm == MODEL and item[0].point == chosen]
    best = max(own, key=lambda item: merit(work, item[1]))[0]
    baselines: dict[str, Any] = {"majority": _majority(work)}
    for job, result in found:
        if job.arm == TFIDF:
            baselines[TFIDF] = result["metrics"]
    for arm in (BAG, RANDOM):
        points = {job.point for job, _ in results if job.arm == arm}
        if points:
            point = chosen if chosen in points else min(points)
            baselines[arm] = _summaries(finished, arm, point)
    # the cost of the score: baselines do not count
    seconds = sum(result["seconds"] for job, result in results if job.arm == MODEL)
    return {
        "schema_version": SCHEMA_VERSION,
        "task": work.task.name,
        "kind": work.task.kind,
        "metric": metric,
        "model": dict(about["model"]),
        "protocol": work.points[chosen].describe(),
        "grid": {
            "name": about["grid"],
            "points": 0 if about["grid"] == "none" else len(work.points),
            "medians": [
                {
                    "peak_lr": point.peak_lr,
                    "rows": point.rows,
                    "median": median(own) if own else None,
                    "diverged": count,
                }
                for point, own, count in zip(work.points, values, lost)
            ],
        },
        "data": dict(about["data"]),
        "scores": _summaries(finished, MODEL, chosen),
        "baselines": baselines,
        "seconds": round(seconds, 3),
        "runs": [{"point": job.point, **result} for job, result in results],
        "best": {"seed": best.seed, "point": best.point, "weights": FINE_TUNED},
    }


def publish_scores(work: TuningWork, scores: Mapping[str, Any], encoder: RowEncoder) -> list[str]:
    """Write the best model, its predictions, test files in GLUE's form, then scores.json.

    Returns the names of what was written. Processes that finish at the same time write one after
    another.
    """
    with one_at_a_time(lock_of(work.output / SCORES)):
        names = _publish(work, scores, encoder)
        remove_temporaries(work.output)
        return names


def _publish(work: TuningWork, scores: Mapping[str, Any], encoder: RowEncoder) -> list[str]:
    best = TuningJob(MODEL, scores["best"]["point"], scores["best"]["seed"])
    folder = work.folder(best)
    names: list[str] = []
    try:
        weights = load_weights(folder / WEIGHTS)
    except FileNotFoundError:
        weights = {}  # already published, by this command or by another process just now
    if weights:
        # training ran with the protocol's dropout, so the folder's configuration states it
        start = work.start.with_dropout(work.points[best.point].dropout)
        # no pretrained weights are read: all are filled next
        model = start.random_model(work.design, best.seed)
        fill_task_model(model, weights)
        try:
            device = describe_device(work.device)
            save_folder(model, start, work.output / FINE_TUNED, device=device)
        except TakenError as error:  # where locks have no effect; both write the same
            print(error, flush=True)
        write_whole(work.output / PREDICTIONS, (folder / PREDICTIONS).read_bytes())
        names = [f"{FINE_TUNED}/", PREDICTIONS, *_submit(work, model, encoder)]
    # written last: its presence means that the fine-tuning has finished (check_started_from)
    write_whole(work.output / SCORES, as_json(scores, indent=1).encode())
    # removed only now: a publication that was killed starts again from these weights; names with a
    # dot are folders that another process is still writing
    for path in work.output.glob(f"jobs/[!.]*/{WEIGHTS}"):
        path.unlink(missing_ok=True)
    return [*names, SCORES]


def _submit(work: TuningWork, model: TaskModel, encoder: RowEncoder) -> list[str]:
    names = []
    model.to(work.device)
    for name, examples in work.tests.items():
        features = encoder.encode(examples, work.task.kind, work.design.labels)
        found = predict_examples(work, model, examples, features)
        make_directory(work.output / "submission", "name another --output")
        write_whole(work.output / "submission" / name, submission(found, name))
        names.append(f"submission/{name}")
    return names


def describe_model(work: TuningWork) -> dict[str, Any]:
    """Origin and size of the weights, device, versions: the entry `model` of scores.json."""
    model = work.start.random_model(work.design, 0)
    return {
        "origin": work.start.origin,
        "family": work.start.family,
        "weights": work.start.identity,
        "encoder_hash": work.start.encoder_hash,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "device": describe_device(work.device),
        "versions": versions(),
    }


def describe_device(device: torch.device) -> str:
    """The GPU's name, `null` for one that computes nothing, or the number of CPU threads."""
    if device.type == "cuda":
        return device_name(device)
    threads = torch.get_num_threads()
    return f"CPU, {threads} thread{'s' * (threads != 1)}"


def versions() -> dict[str, str]:
    """Versions of the software that computes."""
    return {"tenfold": __version__, "torch": torch.__version__}


def summarize_scores(scores: Mapping[str, Any]) -> str:
    """A few lines for the terminal."""
    protocol, grid = scores["protocol"], scores["grid"]
    lines = [f"{scores['task']}, {scores['model']['origin']}"]
    for name, values in scores["scores"].items():
        lines.append(f"  {name:<16} {_line(values)}")
        for arm, own in scores["baselines"].items():
            if name in own:
                value = own[name]
                shown = f"{value:.4f}" if isinstance(value, float) else _line(value)
                lines.append(f"    {arm:<14} {shown}")
    lines.append(
        f"  protocol {protocol['source']}: rate {protocol['peak_lr']:g}, {protocol['rows']} rows, "
        f"{_length(protocol)}; grid {grid['name']}"
        + (f" of {grid['points']} points" if grid["points"] else "")
        + f"; {scores['seconds']:.0f} s on {scores['model']['device']}"
    )
    lines += _losses(scores)
    for copies in scores["data"]["copies"]:
        if line := Copies(**copies).describe():
            lines.append(f"  {line}")
    lost = scores["data"]["lost"]
    if any(lost.values()):
        lines.append(
            f"  truncation: {lost['texts']:,} texts cut, {lost['answers']:,} answers and "
            f"{lost['words']:,} words lost"
        )
    return "\n".join(lines)


def _losses(scores: Mapping[str, Any]) -> Iterator[str]:
    """A line for each arm of which seeds diverged at the reported point."""
    for arm in ARMS:
        runs = [
            run
            for run in scores["runs"]
            if (run["arm"], run["point"]) == (arm, scores["best"]["point"])
        ]
        lost = [run for run in runs if why_diverged(run)]
        if lost:
            yield (
                f"  warning: {len(lost)} of {len(runs)} seeds of {arm} diverged "
                f"({', '.join(str(run['seed']) for run in lost)}), and the scores of the others "
                f"are biased in its favour: {why_diverged(lost[0])}"
            )


def _length(protocol: Mapping[str, Any]) -> str:
    """`4 epochs`, or `5,336 steps` where a paper gives these."""
    if protocol["max_steps"]:
        return f"{protocol['max_steps']:,} step{'s' * (protocol['max_steps'] != 1)}"
    return f"{protocol['epochs']:g} epoch{'s' * (protocol['epochs'] != 1)}"


def _line(values: Mapping[str, Any]) -> str:
    text = f"median {values['median']:.4f}"
    if values["n"] > 1:
        text += (
            f", mean {values['mean']:.4f}, standard deviation {values['standard_deviation']:.4f}, "
            f"95 % {values['low']:.4f} to {values['high']:.4f}"
        )
    return f"{text}, n {values['n']}"


def _values(
    results: Sequence[tuple[TuningJob, Mapping[str, Any]]], arm: str, point: int, metric: str
) -> list[float]:
    return [
        result["metrics"][metric]
        for job, result in results
        if job.arm == arm and job.point == point
    ]


def _summaries(
    results: Sequence[tuple[TuningJob, Mapping[str, Any]]], arm: str, point: int
) -> dict[str, Any]:
    """Summaries of an arm's metrics at a point; none if all its seeds diverged there."""
    own = [result["metrics"] for job, result in results if (job.arm, job.point) == (arm, point)]
    return {name: summarize_seeds([each[name] for each in own]) for name in (own or [{}])[0]}


def _majority(work: TuningWork) -> dict[str, float]:
    found: dict[str, float] = {}
    for prefix, examples, _ in work.dev:
        own = score(majority(examples, work.training, work.task), work.task)
        found |= {f"{prefix}{name}": value for name, value in own.items()}
    return found
