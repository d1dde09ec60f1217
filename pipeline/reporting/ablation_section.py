"""ablation.json of pipeline.ablate -> what a report says of it: noise first, then rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.base.errors import DataError
from pipeline.base.typed_json import read_object, require
from pipeline.reporting.sections import Report, Section, TextTable

ABLATION = "ablation.json"
NEEDED = {
    "table": dict, "baseline": str, "seeds": int, "tuned": bool, "noise": dict, "arms": list,
    "equal_tokens": bool, "generated": bool, "references": dict, "runs": list,
}  # fmt: skip
NEEDED_OF_ARM = {
    "name": str, "changes": list, "published": dict, "cost": dict, "measures": dict,
    "differences": dict, "missing": dict, "initial_weights": str, "peak_lr": float,
    "finished": list, "diverged": list, "not_compared": dict,
}  # fmt: skip
MEASURES = {
    "mask_loss": ("Loss at [MASK], nats; lower is better", 4),
    "steps_to_loss": ("Steps to a fixed loss; fewer are better", 0),
    "grammar": ("Grammar, share of minimal pairs; higher is better", 4),
    "fine-tuned": ("Fine-tuned, mean score of the tasks; higher is better", 4),
}
"""Title and decimals by measure."""
RECOVERED = {
    "skipped_updates": "{} steps without an update", "rollbacks": "{} rollbacks",
    "skipped_sequences": "{} sequences skipped", "left_out": "shards left out: {}",
}  # fmt: skip
HEAD = ("arm", "mean", "difference", "95 % interval", "p, Holm", "visible from", "")
FEW = 2
LEVEL = 0.05
"""Level of significance."""


def read_ablation_report(directory: Path) -> Report:
    """The report of OUTPUT of pipeline.ablate. Raises DataError if it has no readable table."""
    path = directory / ABLATION if directory.is_dir() else directory
    if not path.exists():
        raise DataError(f"{path} does not exist; finish pipeline.ablate, or run it with --collect")
    # a damaged file can fail anywhere below, and is reported in one line
    try:
        content = read_object(path)
        require(content, NEEDED, "it")
        require(content["table"], {"name": str, "title": str, "source": str, "note": str}, "table")
        if not content["arms"]:
            raise ValueError("it has no arms")
        for number, arm in enumerate(content["arms"]):
            require(arm, NEEDED_OF_ARM, f"arms[{number}]")
        return _report(content)
    except (ValueError, OSError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise DataError(f"{path} cannot be read ({error!r}); run pipeline.ablate again") from error


def _report(content: Mapping[str, Any]) -> Report:
    table, arms = content["table"], content["arms"]
    report = Report(f"Ablation: {table['name']}")
    report.verdicts = [_verdict(content, arm) for arm in arms[1:]]
    lines = [
        table["title"],
        *(f"{name}: {table[name]}" for name in ("source", "note") if table[name]),
    ]
    report.sections.append(Section("What is compared", [*lines, *_design(content)]))
    if any(arm["diverged"] for arm in arms):
        report.sections.append(_divergences(content))
    if recovered := [*_tell_recovered(content)]:
        report.sections.append(Section("Runs that skipped something", recovered))
    names = dict.fromkeys(name for arm in arms for name in arm["measures"])
    report.sections += [_measure(content, name) for name in names]
    report.sections.append(Section("Cost, means over seeds", tables=[_costs(content)]))
    if published := _published(content):
        report.sections.append(published)
    if missing := [*_missing(arms)]:
        report.sections.append(Section("Not measured", missing))
    return report


def _verdict(content: Mapping[str, Any], arm: Mapping[str, Any]) -> str:
    """One sentence on the loss at [MASK]."""
    name, difference = arm["name"], arm["differences"].get("mask_loss")
    if difference is None:
        return f"{name}: no difference is known; {_why(content, arm, 'mask_loss')}"
    found = f"{name}: {difference['mean']:+.4f} nats to {content['baseline']}"
    if content["generated"]:
        found += " of the generator"
    if not difference["significant"] and _is_alike(difference):
        found += f", the same in all {difference['seeds']} seeds"
        found += f"; {_too_few(difference)}" if difference["mean"] else ""
    elif not difference["significant"]:
        seen = f"{difference['visible']:.4f}"
        found += f", not significant; differences from {seen} on would have been seen"
    else:
        found += f", {'better' if difference['mean'] < 0 else 'worse'}, p {_p(difference)}"
    if difference.get("biased"):
        lost = [f"{each['name']}: {said}" for each in (content["arms"][0], arm)
                if (said := _say_lost(content, each))]  # fmt: skip
        found += f"; biased, as only {_survivors(content, difference)} ({'; '.join(lost)})"
    return found


def _why(content: Mapping[str, Any], arm: Mapping[str, Any], measure: str) -> str:
    """Reason why a measure of an arm is not compared."""
    if content["seeds"] < FEW:
        return "one seed has no interval, give --seeds 2 or more"
    if why := arm["not_compared"].get(measure):
        return str(why)
    for each in (arm, content["arms"][0]):
        if not each["finished"]:
            return f"{each['name']}: {_say_lost(content, each)}"
    # the measure, then its family: without `grammar` there is no `grammar/X`
    for name in (measure, measure.partition("/")[0]):
        if name in arm["missing"]:
            return str(arm["missing"][name])
    why = content["arms"][0]["missing"].get(measure)
    return f"the baseline lacks it: {why}" if why else "the baseline lacks it"


def _say_lost(content: Mapping[str, Any], arm: Mapping[str, Any]) -> str:
    """`1 of 5 runs diverged`; empty if none did. The baseline's other seeds do not count."""
    seeds = content["seeds"]
    count = sum(each["seed"] < seeds for each in arm["diverged"])  # the baseline's others follow
    return f"{count} of {seeds} runs diverged" if count else ""


def _survivors(content: Mapping[str, Any], difference: Mapping[str, Any]) -> str:
    return f"{difference['seeds']} of {content['seeds']} seeds finished in both"


def _divergences(content: Mapping[str, Any]) -> Section:
    """Numbers of runs that diverged in each arm, and the reasons."""
    seeds, rows, lines = content["seeds"], [], []
    for arm in content["arms"]:
        others = sum(each["seed"] >= seeds for each in arm["diverged"])
        rows.append((arm["name"], str(len(arm["finished"])), str(len(arm["diverged"]) - others)))
        if arm is content["arms"][0]:
            rows.append(("the same, other seeds", str(seeds - others), str(others)))
        lines += [f"{arm['name']}:{each['seed']}: {each['why']}" for each in arm["diverged"]]
    about = (
        "means are of the runs that finished, and differences of the seeds that finished in both "
        "arms: both are biased in favour of an arm whose worst runs diverged, and so are p-values"
    )
    table = TextTable(("arm", "finished", "diverged"), rows)
    return Section("Runs that diverged", [about, *lines], [table])


def _tell_recovered(content: Mapping[str, Any]) -> Iterator[str]:
    """Runs with updates, sequences or shards that were left out: they read less than others."""
    for run in content["runs"]:
        found = run.get("recovered", {})  # none of one that diverged
        if said := [RECOVERED[name].format(found[name]) for name in RECOVERED if name in found]:
            yield f"{run['arm']}:{run['seed']}: {', '.join(said)}"


def _design(content: Mapping[str, Any]) -> list[str]:
    """Design of the comparison, and what to doubt about it."""
    seeds, baseline = content["seeds"], content["baseline"]
    lines = [
        f"{seeds} seeds each, the same for all arms; {baseline} has {seeds} more, and its "
        "difference to itself is the noise",
        "all arms are scored on the baseline's held-out sequences with its masks, which favour "
        "an arm that was trained on such",
        "p is corrected within a measure, for the number of arms; a true difference of the size "
        "`visible from` is found by 80 % of such experiments",
        "equal tokens" if content["equal_tokens"] else "the arms did not read equally many tokens",
    ]
    if content["tuned"]:
        factors = ", ".join(f"{factor:g}" for factor in content["factors"])
        lines.append(f"peak learning rates are tuned: the best of {factors} x the recipe's")
        lines += [
            f"{arm['name']}: the best rate is at the edge of the grid"
            for arm in content["arms"]
            if _at_edge(arm)
        ]
        lines += [line for arm in content["arms"] for line in _doubts_of_rate(arm)]
    else:
        lines.append("peak learning rates are not tuned")
    if content["generated"]:
        lines.append("words are predicted by the generator, not by the model that is kept")
    if tuning := content["fine_tuning"]:
        lines.append(
            f"fine-tuned scores: all arms by the protocol of {tuning['protocol']}, with equal "
            f"fine-tuning seeds for equal seeds, {tuning['seeds']} per run and task"
        )
    if target := content["target_loss"]:
        lines.append(
            f"the fixed loss is {target:.4f} nats, which every finished run of the baseline has "
            "reached by 80 % of its steps"
        )
    return lines


def _at_edge(arm: Mapping[str, Any]) -> bool:
    rates = [float(point["peak_lr"]) for point in arm["tuning"]]
    # a better rate may lie beyond
    return bool(rates) and arm["peak_lr"] in (min(rates), max(rates))


def _doubts_of_rate(arm: Mapping[str, Any]) -> Iterator[str]:
    """Doubts about the runs that chose an arm's rate."""
    points = arm["tuning"]
    if lost := sum(bool(point["error"]) for point in points):
        yield f"{arm['name']}: {lost} of {len(points)} runs with other rates diverged"
    if lost < len(points) and not any("mask_loss" in point["measures"] for point in points):
        why = arm["missing"].get("mask_loss", "it has no loss on the shared ones")
        yield f"{arm['name']}: the rate was chosen by the loss on its own held-out masks, as {why}"


def _measure(content: Mapping[str, Any], name: str) -> Section:
    """A table of one measure: the baseline, its noise, the other arms.

    If the baseline lacks it, another arm may take its place.
    """
    kind, _, part = name.partition("/")
    title, digits = MEASURES.get(kind, ("", 4))
    if part:
        title = f"{kind.replace('_', ' ').capitalize()}: {part}; higher is better"
    first, reference = content["arms"][0], content["references"].get(name, "")
    rows: list[Sequence[str]] = [
        (f"{first['name']}, the baseline", _mean(first, name, digits), "", "", "", "",
         first["missing"].get(name, _say_lost(content, first)))
    ]  # fmt: skip
    if name in content["noise"]:
        rows.append(_row(content, "the same, other seeds", "", content["noise"][name], digits))
    elif content["seeds"] >= FEW and name in first["measures"]:
        why = "too few runs finished" if first["diverged"] else "a run with another seed lacks it"
        why = f"not known: {why}"
        rows.append(("the same, other seeds", "", "", "", "", "", why))
    for arm in content["arms"][1:]:
        mean = _mean(arm, name, digits)
        if name in arm["differences"]:
            rows.append(_row(content, arm["name"], mean, arm["differences"][name], digits))
        elif arm["name"] == reference:
            rows.append(
                (f"{reference}, in its place", mean, "", "", "", "", _say_lost(content, arm))
            )
        else:
            rows.append((arm["name"], mean, "", "", "", "", _why(content, arm, name)))
    lines = [
        f"{first['name']} lacks it, so arms are compared with {reference}, the first that has it; "
        "the noise is not known"
    ] if reference else []  # fmt: skip
    lines += [
        f"{arm['name']}: {found['low']:+.4f} to {found['high']:+.4f} if held-out sequences are "
        "resampled, too (multi-bootstrap)"
        for arm in content["arms"][1:]
        if (found := arm["differences"].get(name, {}).get("bootstrap"))
    ]
    return Section(title, lines, [TextTable(HEAD, rows)])


def _mean(arm: Mapping[str, Any], name: str, digits: int) -> str:
    found = arm["measures"].get(name)
    return f"{found['mean']:.{digits}f}" if found else ""


def _row(
    content: Mapping[str, Any], name: str, mean: str, found: Mapping[str, Any], digits: int
) -> tuple[str, ...]:
    """found: a difference; without `p_holm` it is the noise."""
    verdict = "noise"
    if "p_holm" in found:
        verdict = "significant" if found["significant"] else "not significant"
        if _is_alike(found) and not found["mean"]:
            verdict = "identical in every seed"
        elif _is_alike(found) and not found["significant"]:
            verdict = f"the same in every seed; {_too_few(found)}"
    if found.get("biased"):
        verdict += f"; biased: {_survivors(content, found)}"
    return (
        name,
        mean,
        f"{found['mean']:+.{digits}f}",
        f"{found['low']:+.{digits}f} to {found['high']:+.{digits}f}",
        _p(found) if "p_holm" in found else "",
        "" if _is_alike(found) else f"{found['visible']:.{digits}f}",
        verdict,
    )


def _is_alike(found: Mapping[str, Any]) -> bool:
    """True if all seeds have the same difference."""
    return found["visible"] is None  # where the spread is 0, see paired_difference


def _too_few(found: Mapping[str, Any]) -> str:
    """Reason why the same difference in all seeds is not significant."""
    # significant before the correction
    rows = " with so many arms" if found["p"] <= LEVEL else ""
    return f"{found['seeds']} seeds cannot reach 5 %{rows}: their sign test has p {_p(found)}"


def _p(found: Mapping[str, Any]) -> str:
    value = float(found["p_holm"])
    return f"{value:.3f}" if value >= 0.001 else "< 0.001"


def _costs(content: Mapping[str, Any]) -> TextTable:
    rows = []
    for arm in content["arms"]:
        cost = arm["cost"]
        if not cost:
            rows.append((arm["name"], *[""] * 6, f"{arm['peak_lr']:g}", _say_lost(content, arm)))
            continue
        rows.append(
            (arm["name"], f"{cost['steps']:,.0f}", f"{cost['tokens']:,.0f}",
             f"{cost['flops']:.3g}", f"{cost['seconds']:,.1f}", f"{cost['memory_gb']:.2f}",
             f"{cost['parameters']:,.0f}", f"{arm['peak_lr']:g}",
             "as baseline" if arm is content["arms"][0] else arm["initial_weights"])
        )  # fmt: skip
    head = (
        "arm", "steps", "tokens", "FLOPs", "seconds", "GB, peak", "parameters", "peak rate",
        "shared initial weights",
    )  # fmt: skip
    return TextTable(head, rows)


def _published(content: Mapping[str, Any]) -> Section | None:
    """The paper's figures, at the paper's scale."""
    names = list(dict.fromkeys(name for arm in content["arms"] for name in arm["published"]))
    if not names:
        return None
    columns = [_align([arm["published"].get(name) for arm in content["arms"]]) for name in names]
    rows = [*zip((arm["name"] for arm in content["arms"]), *columns, strict=True)]
    line = f"{content['table']['source']}, at the paper's scale: other data, sizes and measures"
    return Section("Published", [line], [TextTable(("arm", *names), rows)])


def _align(values: Sequence[float | None]) -> list[str]:
    """A column with the decimals of its most precise number."""
    # as in print: 90.0 above 90.3, and no noise of binary fractions
    decimals = max(len(f"{value:.12g}".partition(".")[2]) for value in values if value is not None)
    return ["" if value is None else f"{value:.{decimals}f}" for value in values]


def _missing(arms: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for arm in arms:
        for name, why in arm["missing"].items():
            yield f"{arm['name']}, {name}: {why}"
