"""Measures of a finished run, from its metrics and from pipeline.evaluate.

    mask_loss            nats at [MASK] on the baseline's held-out sequences with their first masks,
                         or those of its validation.mask_rate, the same for all arms
    grammar, grammar/X   share of minimal pairs, and by phenomenon
    pair_accuracy/L      share of held-out segment pairs labelled L (next, order) that the head of a
                         model with pairs labels correctly, whatever label it was trained on

`steps_to_loss` depends on the baseline, so it is derived from `curve` when results are gathered.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from pipeline.base.errors import DataError
from pipeline.base.typed_json import as_object, check_finite, name_damage, read_object, require
from pipeline.config.formats import PAIR_FORMATS
from pipeline.config.training_settings import GENERATOR_KINDS
from pipeline.experiments.ablation import Ablation, AblationArm, AblationJob
from pipeline.experiments.arm_shards import held_out, prepare_shards, why_not_scored
from pipeline.experiments.children import Children
from pipeline.training.run_directory.run_status import METRICS, RECORD

RESULT = "result.json"
PAIR_ACCURACY = "pair_accuracy/"
"""Prefix of the measures of pairs."""
DIVERGED = "the loss is not finite"
GENERATED = "a generator predicts the words, not the model that is kept"
COSTS = ("steps", "tokens", "sequences", "flops", "seconds", "memory_gb", "parameters")
RECOVERIES = ("skipped_updates", "rollbacks", "skipped_sequences", "left_out")
"""Fields of metrics.jsonl, 0 or absent in a run without faults; a table names the others."""
_NEEDED: dict[str, Any] = {
    "arm": str, "seed": int, "peak_lr": float, "measures": dict[str, float],
    "missing": dict[str, str],
}  # fmt: skip
_NEEDED_OF_FINISHED: dict[str, Any] = {"curve": list[list[float]], **dict.fromkeys(COSTS, float)}
"""Fields of a finished run's result; others may stand next to them."""
SEQUENCES = "sequences.json"
"""Loss of each held-out sequence, in the run directory."""


def is_generated(arm: AblationArm) -> bool:
    """True if an arm's masked words are predicted by a generator, which is not kept."""
    return arm.run.objective.kind in GENERATOR_KINDS


def scores_another_model(ablation: Ablation, arm: AblationArm) -> bool:
    """True if masked words are predicted by a generator, in one of two unlike objectives."""
    mine, theirs = arm.run.objective, ablation.baseline.run.objective
    return mine != theirs and not {mine.kind, theirs.kind}.isdisjoint(GENERATOR_KINDS)


def divergence(result: Mapping[str, Any]) -> str:
    """Reason why the loss of a run is not finite; empty if it is, or is not measured."""
    if result.get("missing", {}).get("mask_loss") != DIVERGED:
        return ""
    return str(result.get("error", DIVERGED))


def diverged_result(job: AblationJob, rate: float, why: str) -> dict[str, Any]:
    """The result of a run whose training diverged; why: what it said."""
    return {
        "arm": job.arm.name, "seed": job.seed, "peak_lr": rate, "seconds": 0.0, "measures": {},
        "missing": {"mask_loss": DIVERGED}, "own_mask_loss": None, "error": why,
    }  # fmt: skip


def measure_run(
    ablation: Ablation,
    job: AblationJob,
    rate: float,
    children: Children,
    log: Path,
    lock: IO[Any] | None,
) -> dict[str, Any]:
    """The result of a run that has been trained; rate: its peak learning rate."""
    directory = ablation.directory(job)
    measures: dict[str, float] = {}
    missing: dict[str, str] = {}
    # its held-out rows judge all arms, and this run may be the first one to finish
    prepare_shards(ablation, ablation.baseline, children)
    if why := why_not_scored(ablation, job.arm, ablation.baseline):
        missing["mask_loss"] = why
        # scored all the same, for grammar; its loss does not enter the table
        words: list[object] = ["--data", held_out(ablation, job.arm)]
    else:
        words = ["--data", held_out(ablation, ablation.baseline)]
        words += ["--per-sequence", directory / SEQUENCES]  # more seeds may be asked for later
    if scores_another_model(ablation, job.arm):
        missing.setdefault("mask_loss", GENERATED)
        if ablation.grammar:
            missing["grammar"] = GENERATED
    scores_grammar = ablation.grammar and "grammar" not in missing
    if scores_grammar:
        words += ["--grammar", ablation.grammar]
    masked = ablation.baseline.run.validation.mask_rate  # of all arms, whatever each has
    score = ["pipeline.evaluate", directory, "--json", "--mask-rate", masked]
    found = as_object(children.run([*score, *words], log, lock, reads=True))
    if "mask_loss" not in missing:
        loss = found["mask_loss"]  # null if it is not a number
        if loss is not None and math.isfinite(loss):
            measures["mask_loss"] = loss
        else:
            missing["mask_loss"] = DIVERGED
    if scores_grammar:
        if found["grammar"]["overall"]["accuracy"] is None:  # of scores that are not numbers
            missing["grammar"] = DIVERGED
        else:
            measures["grammar"] = found["grammar"]["overall"]["accuracy"]
            for name, part in found["grammar"]["phenomena"].items():
                measures[f"grammar/{name}"] = part["accuracy"]
    for label, judge in pair_judges(ablation).items():
        if job.arm.run.objective.kind != "mlm_pair":
            missing[PAIR_ACCURACY + label] = "no head for pairs"
            continue
        prepare_shards(ablation, judge, children)
        if why := why_not_scored(ablation, job.arm, judge):
            missing[PAIR_ACCURACY + label] = why
            continue
        where = held_out(ablation, judge)
        pairs = as_object(children.run([*score, "--data", where], log, lock, reads=True))
        accuracy = pairs.get("pair_accuracy")  # null if it is not a number
        if accuracy is None:
            missing[PAIR_ACCURACY + label] = f"{where} has no held-out pairs to label"
        else:
            measures[PAIR_ACCURACY + label] = accuracy
    return {
        "arm": job.arm.name, "seed": job.seed, "peak_lr": rate, "measures": measures,
        "missing": missing, "pairs": found["grammar"]["hash"] if scores_grammar else None,
        **from_metrics(directory),
    }  # fmt: skip


def check_result(result: Mapping[str, Any], job: AblationJob) -> None:
    """Raises ValueError for what is not the whole result of a job."""
    require(result, _NEEDED, "it")
    if (result["arm"], result["seed"]) != (job.arm.name, job.seed):
        raise ValueError(f"it is the result of {result['arm']}:{result['seed']}")
    numbers = [*result["measures"].values(), result["peak_lr"]]
    if not divergence(result):
        require(result, _NEEDED_OF_FINISHED, "it")
        numbers += [value for point in result["curve"] for value in point]
        numbers += [result[name] for name in COSTS]
    check_finite(numbers)


def pair_judges(ablation: Ablation) -> dict[str, AblationArm]:
    """For each label of pairs that an arm trains on, the first such arm: its shards have it."""
    found: dict[str, AblationArm] = {}
    for arm in ablation.arms:
        data = arm.run.data
        if data.format in PAIR_FORMATS and data.segments.label != "none":
            found.setdefault(data.segments.label, arm)
    return found


def from_metrics(directory: Path) -> dict[str, Any]:
    """Curve, cost and size of a run, from its own files.

    seconds: in steps, without validations and checkpoints, and as if the steps before the first
    line, in which kernels are compiled, were like the others; flops: of the model, see
    `model.objectives.flops`; own_mask_loss: the last held-out one, at the arm's own masks.
    """
    curve: list[list[float]] = []
    times: list[tuple[int, float]] = []
    before, memory = 0, 0.0
    last: dict[str, Any] = {}
    try:
        for line in (directory / METRICS).read_bytes().splitlines():
            last = as_object(line)
            if "step_seconds" in last:
                times.append((last["step"] - before, last["step_seconds"]))
            memory = max(memory, last.get("memory_gb", 0.0))
            before = last["step"]
            if last.get("validation_mask_loss") is not None:
                curve.append([last["step"], last["validation_mask_loss"]])
        record = read_object(directory / RECORD)
        flops = sum(_flops(plan) for plan in record["plans"])
        timed = times[1:] or times  # a short run has no other line
        pace = sum(steps * each for steps, each in timed) / sum(steps for steps, _ in timed)
        return {
            "steps": last["step"],
            "tokens": int(last["tokens"]),
            "sequences": int(last["sequences"]),
            "flops": flops,
            "seconds": round(pace * last["step"], 3),
            "memory_gb": round(memory, 3),
            "parameters": record["plans"][-1]["parameters"],
            "own_mask_loss": curve[-1][1] if curve else None,
            "curve": curve,
            "recovered": {name: last[name] for name in RECOVERIES if last.get(name)},
        }
    except (KeyError, ValueError, TypeError, ZeroDivisionError, OSError) as error:
        raise DataError(
            f"{directory} has no readable metrics ({error!r}); remove it and rerun"
        ) from error


def _flops(plan: Mapping[str, Any]) -> float:
    """FLOPs of a phase: those of a sequence times the sequences read."""
    read = round(plan["epochs"] * plan["train_sequences"])  # plans record passes, not sequences
    return float(plan["step_flops"] * read / plan["sequences"])


def sequence_losses(directory: Path) -> tuple[list[float], list[float]]:
    """Sums of the loss at [MASK], and numbers of such positions, of each held-out sequence.

    Raises DataError if the file is missing or damaged.
    """
    path = directory / SEQUENCES
    with name_damage(path, f"remove {path.with_name(RESULT)} and rerun"):
        content = read_object(path)
        require(content, {"mask_loss": list[float], "mask_count": list[float]}, "it")
        sums, counts = content["mask_loss"], content["mask_count"]
        check_finite([*sums, *counts])
        if len(sums) != len(counts):
            raise ValueError(f"it has {len(sums)} losses and {len(counts)} counts")
    return sums, counts
