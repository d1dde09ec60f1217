"""Results of all runs -> OUTPUT/ablation.json.

schema_version  1
table           name, title, source, note, measures (the paper's)
baseline        name of its arm
references      measure -> the arm that others are compared with where that is not the baseline
seeds           runs of each arm; the baseline has as many more
tuned           whether each arm's peak learning rate was chosen among `factors`
target_loss     what `steps_to_loss` counts to: the held-out loss that every run of the baseline has
                reached by 80 % of its steps; null if it was not validated before. Only runs that
                finished count, here and below
equal_tokens    whether all arms read the same number of tokens, to 1 %
generated       whether a generator, which is not kept, predicts the masked words in all arms
fine_tuning     tasks, protocol (its family), seeds (fine-tunings per run and task); null if none
noise           measure -> the difference of the baseline to itself with other seeds
arms            name, recipe, changes, source, published, peak_lr, tuning, initial_weights (what
                equal seeds start with in common with the baseline), shards (fingerprint), cost
                (means over seeds), measures (measure -> mean, spread, values by seed),
                differences (measure -> to the baseline or `references`), missing (measure -> why),
                finished (its seeds, in the order of values), diverged (seed and why of each other
                run, of the baseline's other seeds, too), not_compared (measure -> why, where too
                few seeds are left)
runs            every run: arm, seed, peak_lr, measures, curve, cost, recovered (what it skipped);
                wall_seconds (from its start to its score, unless it was resumed); `error` if it
                diverged

A difference has mean, standard_deviation, low, high (95 %, Student's t over seeds), p, p_holm
(corrected over the arms of a measure), significant, visible (the smallest true difference that 80 %
of such experiments would find), seeds, and from ten seeds on low and high of the multi-bootstrap.
It is of the seeds that finished in both arms; biased if these are not all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from pipeline.base.errors import DataError
from pipeline.base.files import write_whole
from pipeline.base.typed_json import as_json
from pipeline.data.shards.held_out_check import held_out_key
from pipeline.data.shards.manifest import read_manifest
from pipeline.evaluation.scoring.seed_summary import CONFIDENCE, summarize_seeds
from pipeline.experiments.ablation import (
    TUNING_FACTORS,
    Ablation,
    AblationArm,
    AblationJob,
    first_unlike,
    initial_weights,
)
from pipeline.experiments.arm_shards import check_inputs, held_out
from pipeline.experiments.fine_tuning import check_examples
from pipeline.experiments.measures import (
    COSTS,
    GENERATED,
    PAIR_ACCURACY,
    RESULT,
    divergence,
    is_generated,
    scores_another_model,
    sequence_losses,
)
from pipeline.experiments.runner import AblationRunner
from pipeline.experiments.significance import (
    MIN_BOOTSTRAP_SEEDS,
    holm,
    interval,
    multi_bootstrap,
    paired_difference,
)

SCHEMA_VERSION = 1
ABLATION = "ablation.json"
TARGET_SHARE = 0.8
"""Share of the baseline's steps after which its loss is the target of `steps_to_loss`."""
EQUAL = 0.01  # relative: phases are rounded to whole steps
MIN_PAIRS = 2
"""Seeds that both arms of a difference have finished."""
Results = Mapping[tuple[str, int], dict[str, Any]]
"""Results by arm and seed."""
Measured = Mapping[str, tuple[list[str], dict[str, str]]]
"""Names of an arm's measures, and reasons for missing ones, from `_find_measures`."""
Points = Sequence[Sequence[float]]
"""Steps and held-out losses."""


def collect(runner: AblationRunner) -> Path | None:
    """Write the table; None if runs are missing, which another process has yet to do."""
    jobs = runner.ablation.jobs()
    if not all(runner.is_done(job) for job in jobs):
        return None
    check_examples(runner.ablation, jobs)
    results = {(job.arm.name, job.seed): runner.result(job) for job in jobs}
    _check_pairs(runner.ablation, jobs, results)
    check_inputs(runner.ablation)
    path = runner.ablation.output / ABLATION
    write_whole(path, as_json(assemble_results(runner, results), indent=1).encode())
    return path


def _check_pairs(ablation: Ablation, jobs: Sequence[AblationJob], results: Results) -> None:
    """Raises DataError if runs were scored on other minimal pairs than the first."""
    found = ((job, results[job.arm.name, job.seed].get("pairs")) for job in jobs)
    if unlike := first_unlike(found):
        raise DataError(
            f"{ablation.directory(unlike[0]) / RESULT} has scores of other minimal pairs than "
            f"{unlike[1].name}; remove it and rerun"
        )


def assemble_results(runner: AblationRunner, results: Results) -> dict[str, Any]:
    """The content of ablation.json."""
    ablation = runner.ablation
    target = target_loss([run["curve"] for run in _runs(ablation, results, ablation.baseline.name)])
    _count_steps(ablation, results, target)  # adds a measure, which the next line reads
    measured = {arm.name: _find_measures(ablation, results, arm.name) for arm in ablation.arms}
    table, compared = ablation.table, references(ablation, measured)
    arms = [_arm(runner, arm, results, measured, compared) for arm in ablation.arms]
    for name in compared:
        rows = [arm["differences"][name] for arm in arms[1:] if name in arm["differences"]]
        for row, p in zip(rows, holm([row["p"] for row in rows]), strict=True):
            row |= {"p_holm": p, "significant": p <= 1 - CONFIDENCE}
    tokens = [arm["cost"]["tokens"] for arm in arms if arm["cost"]] or [0]
    return {
        "schema_version": SCHEMA_VERSION,
        "table": {
            "name": table.name, "title": table.title, "source": table.source,
            "note": table.note, "measures": [*table.measures],
        },
        "baseline": ablation.baseline.name,
        "references": {
            name: arm for name, arm in compared.items() if arm != ablation.baseline.name
        },
        "seeds": ablation.seeds,
        "tuned": ablation.tune,
        "factors": [*TUNING_FACTORS] if ablation.tune else [],
        "target_loss": target,
        "equal_tokens": max(tokens) <= (1 + EQUAL) * min(tokens),
        "generated": all(is_generated(arm) for arm in ablation.arms),
        "fine_tuning": _fine_tuning(ablation),
        "noise": _noise(ablation, results, arms[0]["measures"]),
        "arms": arms,
        "runs": [*results.values()],
    }  # fmt: skip


def _fine_tuning(ablation: Ablation) -> dict[str, Any] | None:
    if not ablation.tasks:
        return None
    return {
        "tasks": [task for task, _ in ablation.tasks],
        "protocol": ablation.protocol,
        "seeds": ablation.finetune_seeds,
    }


def target_loss(curves: Sequence[Points]) -> float | None:
    """The lowest loss that all these runs have reached within the first 80 % of their steps."""
    found = []
    for curve in curves:
        # so an arm that needs up to a quarter more steps still reaches it
        early = [loss for step, loss in curve if step <= TARGET_SHARE * curve[-1][0]]
        if not early:
            return None
        found.append(min(early))
    return max(found, default=None)


def steps_to(curve: Points, target: float) -> float | None:
    """The step at which a curve first reaches a loss, between two validations on a straight line;
    None if it never does."""
    before: Sequence[float] | None = None
    for step, loss in curve:
        if loss <= target:
            if before is None:
                return float(step)
            # no division by 0: before[1] > target >= loss
            share = (before[1] - target) / (before[1] - loss)
            return before[0] + share * (step - before[0])
        before = (step, loss)
    return None


def _count_steps(ablation: Ablation, results: Results, target: float | None) -> None:
    """Add `steps_to_loss` to runs whose curves are of the baseline's frozen masks."""
    frozen = _held_out_key(ablation, ablation.baseline)
    for arm in ablation.arms:
        unlike = scores_another_model(ablation, arm)
        comparable = _held_out_key(ablation, arm) == frozen and not unlike
        for (name, _), result in results.items():
            if name != arm.name or divergence(result):
                continue
            found = steps_to(result["curve"], target) if target is not None else None
            if unlike:
                why = GENERATED
            elif not comparable:
                why = "validated on its own format or masks while it trained"
            elif target is None:
                why = "no finished run of the baseline was validated before the end"
            else:
                why = "the loss was not reached in every run"
            if comparable and found is not None:
                result["measures"]["steps_to_loss"] = found
            else:
                result["missing"]["steps_to_loss"] = why


def _held_out_key(ablation: Ablation, arm: AblationArm) -> tuple[object, ...]:
    """Key of all that the held-out losses of an arm depend on while it trains."""
    return held_out_key(read_manifest(held_out(ablation, arm)), arm.run.validation.mask_rate)


def references(ablation: Ablation, measured: Measured) -> dict[str, str]:
    """Measure -> the arm that others are compared with: the baseline, if its runs have the measure.

    Otherwise none, but for pairs, the first arm with a head for them: a table of pair objectives
    may have the arm without one as its baseline.
    """
    found: dict[str, str] = {}
    for arm in ablation.arms:
        for name in measured[arm.name][0]:
            if arm is ablation.baseline or name.startswith(PAIR_ACCURACY):
                found.setdefault(name, arm.name)
    return found


def _find_measures(
    ablation: Ablation, results: Results, arm: str
) -> tuple[list[str], dict[str, str]]:
    """The measures that all finished runs of an arm have, and why others are missing."""
    runs = _runs(ablation, results, arm)
    if not runs:
        return [], {"mask_loss": "every run diverged"}
    missing: dict[str, str] = {}
    for run in runs:
        missing |= run["missing"]
    # one seed that never reaches the target takes `steps_to_loss` from all
    shared = set(runs[0]["measures"]).intersection(*(run["measures"] for run in runs))
    return [name for name in runs[0]["measures"] if name in shared - missing.keys()], missing


def _list_finished(results: Results, arm: str, seeds: Sequence[int]) -> list[int]:
    """The seeds of an arm whose runs did not diverge."""
    return [seed for seed in seeds if not divergence(results[arm, seed])]


def _runs(ablation: Ablation, results: Results, arm: str) -> list[dict[str, Any]]:
    """The finished runs of an arm, without the baseline's other seeds."""
    return [results[arm, seed] for seed in _list_finished(results, arm, range(ablation.seeds))]


def _pairs(ablation: Ablation, results: Results, one: str, other: str) -> list[int]:
    """The seeds that two arms are compared over: those that finished in both."""
    return _list_finished(results, other, _list_finished(results, one, range(ablation.seeds)))


def _arm(
    runner: AblationRunner,
    arm: AblationArm,
    results: Results,
    measured: Measured,
    compared: Mapping[str, str],
) -> dict[str, Any]:
    """The entry of an arm, without p_holm; compared: from `references`."""
    ablation, baseline = runner.ablation, runner.ablation.baseline
    runs = _runs(ablation, results, arm.name)
    names, missing = measured[arm.name]
    differences, not_compared = {}, {}
    for name in names if ablation.seeds >= MIN_PAIRS else ():
        other = compared.get(name, arm.name)
        if other == arm.name:
            continue
        seeds = _pairs(ablation, results, arm.name, other)
        if len(seeds) < MIN_PAIRS:
            not_compared[name] = (
                f"seeds that finished in it and in {other}: {len(seeds)} of {ablation.seeds}; a "
                f"comparison needs {MIN_PAIRS}"
            )
            continue
        sides = [[results[each, seed] for seed in seeds] for each in (other, arm.name)]
        rows = _rows(ablation, results, measured, name, other)
        differences[name] = _difference(sides, name, ablation.seeds, rows)
        if name == "mask_loss" and len(seeds) >= MIN_BOOTSTRAP_SEEDS:
            differences[name]["bootstrap"] = _bootstrap(ablation, arm, seeds)
    tuning = [
        {"factor": job.factor, "peak_lr": result["peak_lr"], "measures": result["measures"],
         "own_mask_loss": result.get("own_mask_loss"), "error": divergence(result)}
        for job in runner.tuning_jobs(arm)
        for result in [runner.result(job)]
    ]  # fmt: skip
    return {
        "name": arm.name,
        "recipe": arm.arm.recipe,
        "changes": [*arm.arm.changes],
        "source": arm.arm.source,
        "published": dict(arm.arm.published),
        "peak_lr": results[arm.name, 0]["peak_lr"],
        "tuning": tuning,
        "initial_weights": initial_weights(arm.run, baseline.run),
        "shards": read_manifest(held_out(ablation, arm)).fingerprint,
        # none if every run diverged
        "cost": {name: fmean(run[name] for run in runs) for name in COSTS if runs},
        "measures": {name: summarize_seeds(_values(runs, name)) for name in names},
        "differences": differences,
        "missing": missing,
        "finished": [run["seed"] for run in runs],
        "diverged": [
            {"seed": seed, "why": why}
            for (name, seed), run in results.items()
            if name == arm.name and (why := divergence(run))
        ],
        "not_compared": not_compared,
    }


def _rows(
    ablation: Ablation, results: Results, measured: Measured, name: str, reference: str
) -> int:
    """Arms that a measure compares with the reference, whose p-values are corrected together."""
    return sum(
        name in shared and len(_pairs(ablation, results, arm, reference)) >= MIN_PAIRS
        for arm, (shared, _) in measured.items()
        if arm != reference
    )


def _noise(ablation: Ablation, results: Results, names: Mapping[str, Any]) -> dict[str, Any]:
    """The baseline with its other seeds, minus the baseline."""
    name, count = ablation.baseline.name, ablation.seeds
    others = _list_finished(results, name, range(count, 2 * count))
    seeds = [seed for seed in _list_finished(results, name, range(count)) if count + seed in others]
    if len(seeds) < MIN_PAIRS:
        return {}
    sides = [[results[name, start + seed] for seed in seeds] for start in (0, count)]
    return {
        measure: _difference(sides, measure, count)
        for measure in names
        if all(measure in run["measures"] for run in sides[1])
    }


def _difference(
    sides: Sequence[Sequence[Mapping[str, Any]]], name: str, seeds: int, rows: int = 1
) -> dict[str, Any]:
    """sides: runs of the baseline and of the arm; seeds: as many as there would be if none had
    diverged; rows: from `_rows`."""
    first, second = (_values(runs, name) for runs in sides)
    return asdict(paired_difference(first, second, rows)) | {"biased": len(first) < seeds}


def _values(runs: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [run["measures"][name] for run in runs]


def _bootstrap(ablation: Ablation, arm: AblationArm, seeds: Sequence[int]) -> dict[str, float]:
    """The 95 % interval of the difference when seeds and held-out sequences are resampled."""
    first, other = (_sequence_scores(ablation, each, seeds) for each in (ablation.baseline, arm))
    # RandomState's stream is frozen by numpy: the same results always give the same file
    low, high = interval(multi_bootstrap(first, other, np.random.RandomState(0)))
    return {"low": low, "high": high}


def _sequence_scores(
    ablation: Ablation, arm: AblationArm, seeds: Sequence[int]
) -> list[list[float]]:
    """Scores [seeds, sequences] whose mean is the loss at [MASK]: longer sequences count more."""
    found = []
    for seed in seeds:
        job = AblationJob(arm=arm, seed=seed, factor=0)
        sums, counts = sequence_losses(ablation.directory(job))
        scale = len(sums) / sum(counts)
        found.append([part * scale for part in sums])
    return found
