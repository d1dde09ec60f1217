"""The content of a report: sections of tables, lines and plots, for pages and for text."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline import __version__
from pipeline.base.durations import in_words
from pipeline.base.plots import Plot
from pipeline.config.mask_rates import at_rate
from pipeline.data.shards.corpus_warnings import unknown_share
from pipeline.data.shards.manifest import Manifest
from pipeline.reporting.comparable import groups_of, is_loss, why_apart
from pipeline.reporting.run_summary import RunSummary, changes
from pipeline.reporting.score_files import Score
from pipeline.training.validation.before_after import PARTS, RATE

LOSSES = {
    "loss": "training", "validation_loss": "held-out",
    "mask_loss": "training, at [MASK]", "validation_mask_loss": "held-out, at [MASK]",
}  # fmt: skip
PLOTS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("Loss", "nats", LOSSES),
    ("Parts of the loss", "nats", PARTS),
    ("Parts of the held-out loss", "nats", {f"validation_{k}": v for k, v in PARTS.items()}),
    ("Accuracy", "share", {
        "mlm_accuracy": "words", "validation_mlm_accuracy": "held-out words",
        "validation_pair_accuracy": "held-out pairs", "validation_rtd_auc": "detection, area",
        "validation_rtd_recall": "detection, recall",
    }),
    ("Grammar", "share of pairs, PLL per token", {"validation_grammar": "all paradigms"}),
    ("Gradient norm", "before clipping", {"grad_norm": "all weights"}),
    ("Learning rate", "", {"learning_rate": "rate"}),
    ("Speed", "tokens per second", {"tokens_per_second": "all ranks"}),
    ("Slowest rank", "times the median", {"slowest_ratio": "forward passes"}),
    ("Memory", "GB, peak", {"memory_gb": "first rank"}),
)  # fmt: skip
"""Title, unit, and fields of metrics with their names."""
FAMILIES = (
    ("Held-out loss by corpus and language", "nats", "validation_loss/"),
    ("Held-out loss at [MASK] by corpus and language", "nats", "validation_mask_loss/"),
    ("Grammar by phenomenon", "share of pairs, PLL per token", "validation_grammar/"),
    ("Trust ratios, median", "LAMB", "trust_ratio_median_"),
    ("Trust ratios, highest", "LAMB", "trust_ratio_max_"),
    ("Relative steps", "LAMB", "relative_step_"),
    ("RMS of updates, median", "StableAdamW", "update_rms_median_"),
    ("RMS of updates, highest", "StableAdamW", "update_rms_max_"),
)
"""Title, unit, and prefix of the fields' names."""
COMPARED = (
    ("validation_mask_loss", "held-out loss at [MASK]"), ("validation_mlm_loss", "of words"),
    ("validation_loss", "held-out loss"), ("validation_perplexity", "perplexity"),
    ("validation_mlm_accuracy", "accuracy"), ("loss", "last training loss"), ("tokens", "tokens"),
    ("tokens_per_second", "tokens per second"), ("grad_norm", "last gradient norm"),
    (RATE, "rate of held-out masks"),
)  # fmt: skip
REST = "The rest: validation, checkpoints, starts, and steps repeated after a restart."
MOST_DROPS, MOST_RESTARTS = 8, 20
"""Rows that are shown."""


@dataclass(frozen=True, slots=True)
class TextTable:
    """Rows of text; the first column names the row."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what is below it, in this order."""

    title: str
    lines: Sequence[str] = ()
    tables: Sequence[TextTable] = ()
    plots: Sequence[Plot] = ()
    commands: Sequence[str] = ()


@dataclass(slots=True)
class Report:
    """Everything, in order."""

    title: str
    verdicts: list[str] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)


def make_report(runs: Sequence[RunSummary], scores: Sequence[Score], again: str) -> Report:
    """The report of runs; again: the command that makes it once more."""
    report = Report(", ".join(run.name for run in runs))
    report.verdicts = [verdict(run) for run in runs]
    if len(runs) > 1:
        report.sections.append(_compare(runs))
    report.sections += [_identity(run, len(runs) > 1) for run in runs]
    if plots := [plot for plot in _plots(runs) if any(part for _, part in plot.series)]:
        report.sections.append(Section("Curves", plots=plots))
    report.sections += [_time(run, len(runs) > 1) for run in runs]
    report.sections += [_plan(run, len(runs) > 1) for run in runs if run.plan]
    report.sections += _data(runs)
    if scores:
        report.sections.append(score_section(scores))
    commands = [_command(run) for run in runs if run.record] + [again]
    report.sections.append(Section("To reproduce", commands=commands))
    if problems := [problem for run in runs for problem in run.problems]:
        report.sections.append(Section("Not readable", problems))
    return report


def verdict(run: RunSummary) -> str:
    """One sentence: state, progress, the loss that counts, and what went wrong."""
    last, status = run.curves.numbers, run.status
    steps = status.progress.steps
    words = [f"{run.name}: {status.state}, step {status.progress.step:,}"]
    words[0] += f" of {steps:,}" if steps else ""
    for name, called in COMPARED[:3]:  # the first that exists
        if name in run.curves.last:
            words.append(f"{called}{at_rate(last.get(RATE))} {number_text(run.curves.last[name])}")
            break
    if curve := run.curves.curves.get("validation_loss"):
        step, value = curve.lowest
        if value < curve.last * 0.995:
            words.append(f"it was lower, {value:.4f}, at step {step:,}")
    for name, called in (
        ("skipped_updates", "steps without an update"), ("loss_spikes", "loss spikes"),
        ("rollbacks", "rollbacks"),
    ):  # fmt: skip
        if last.get(name):
            words.append(f"{last[name]:,.0f} {called}")
    count = len(status.restarts)
    words.append(f"{count} restart{'s' * (count != 1)}")
    if status.reason:
        words.append(status.reason)
    return "; ".join(words)


def _identity(run: RunSummary, several: bool) -> Section:
    record, rows = run.record, []
    versions = record.get("versions", {})
    rows.append(("recipe", run.recipe or "unknown"))
    rows.append(("versions", ", ".join(f"{k} {v}" for k, v in versions.items()) or "unknown"))
    for directory, manifest in run.data:
        fingerprint = manifest.fingerprint if manifest else "not there any more"
        rows.append(("data", f"{directory} ({fingerprint})"))
    for name, called in (("begun_from", "forked from"), ("attention", "attention")):
        if record.get(name):
            rows.append((called, str(record[name])))
    if initial := record.get("initial_weights"):
        rows.append(("initial weights", ", ".join(f"{k} {v}" for k, v in initial.items())))
    if words := run.curves.change():
        rows.append(("before and after", words))
    for number, plan in enumerate(record.get("plans", []), 1):
        what = f"phase {number}" if len(record["plans"]) > 1 else "plan"
        named = ("world_size", "zero_stage", "sequences", "accumulation", "parameters")
        rows.append((what, ", ".join(f"{k} {number_text(plan[k])}" for k in named if k in plan)))
    tables = [TextTable(("", ""), rows)]
    differences = changes(run.settings, run.recipe)
    lines = []
    if differences:
        head = ("differs from the recipe", run.recipe, "this run")
        tables.append(TextTable(head, [(p, shorten(a), shorten(b)) for p, a, b in differences]))
    elif run.settings:
        lines.append("All settings are the recipe's.")
    return Section(_titled("Identity", run, several), lines, tables)


def _compare(runs: Sequence[RunSummary]) -> Section:
    """Tables of results and of the settings that differ."""
    names = [run.name for run in runs]
    groups = groups_of(runs)
    lines = ["One run each: a difference may be the seed's."]
    if len(groups) == 1:
        if len(groups_of(runs, "loss")) > 1:
            lines.append("Held-out losses are comparable; training losses differ in data or masks.")
        tables = _last_values("last values", runs, COMPARED)
    else:
        losses = [part for part in COMPARED if is_loss(part[0])]
        rest = [part for part in COMPARED if not is_loss(part[0])]
        tables = [table for group in groups for table in _last_values("last losses", group, losses)]
        tables += _last_values("last values", runs, rest)
        lines += [
            f"{', '.join(run.name for run in group)} stand{'s' * (len(group) == 1)} apart from "
            f"{names[0]}: {why_apart(runs[0], group[0])}; these losses are not comparable"
            for group in groups[1:]
        ]
    paths = sorted({path for run in runs for path in run.settings})
    settings = []
    for path in paths:
        values = [run.settings.get(path) for run in runs]
        if any(value != values[0] for value in values):
            settings.append((path, *map(shorten, values)))
    prints = [" + ".join(m.fingerprint if m else "gone" for _, m in run.data) for run in runs]
    if len(set(prints)) > 1:
        settings.append(("data", *prints))
    if settings:
        tables.append(TextTable(("differing settings", *names), settings))
    return Section("Side by side", lines, tables)


def _last_values(
    title: str, runs: Sequence[RunSummary], compared: Iterable[tuple[str, str]]
) -> list[TextTable]:
    """A table of these metrics of the runs, if any has one of them."""
    rows = []
    for name, called in compared:
        values = [run.curves.last.get(name) for run in runs]
        if any(value is not None for value in values):
            rows.append((called, *map(number_text, values)))
    return [TextTable((title, *(run.name for run in runs)), rows)] if rows else []


def _plots(runs: Sequence[RunSummary]) -> Iterable[Plot]:
    parts = {name for run in runs for name in PARTS if name in run.curves.curves}
    for title, unit, fields in PLOTS:
        if len(parts) < 2 and title.startswith("Parts"):
            continue  # the loss has one part, which is shown as such
        if len(runs) == 1:
            yield _one(runs[0], title, unit, fields)
        else:
            for name, called in fields.items():
                yield from _several(
                    runs, f"{title}: {called}" if len(fields) > 1 else title, unit, name
                )
    for title, unit, prefix in FAMILIES:
        names = sorted({n for run in runs for n in run.curves.curves if n.startswith(prefix)})
        fields = {name: name.removeprefix(prefix) for name in names}
        if len(runs) == 1:
            yield _one(runs[0], title, unit, fields)
        else:
            for name, called in fields.items():
                yield from _several(runs, f"{title}: {called}", unit, name)


def _one(run: RunSummary, title: str, unit: str, fields: dict[str, str]) -> Plot:
    curves = run.curves
    series = [(curves.label(name, called), curves.columns(name)) for name, called in fields.items()]
    series = [part for part in series if part[1]]
    return Plot(title, unit, series, curves.phases, run.starts)


def _several(runs: Sequence[RunSummary], title: str, unit: str, name: str) -> Iterable[Plot]:
    """The runs in one frame, or in one for each group whose losses compare."""
    for group in groups_of(runs, name) if is_loss(name) else [runs]:
        curves = [(run.name, run.curves) for run in group]
        series = [(own.label(name, called), own.columns(name)) for called, own in curves]
        names = ", ".join(run.name for run in group)
        yield Plot(title if len(group) == len(runs) else f"{title} ({names})", unit, series)


def _time(run: RunSummary, several: bool) -> Section:
    """Speed, and where the time went."""
    curves, status, rows, lines = run.curves, run.status, [], []
    last = curves.numbers
    if "tokens_per_second" in last:
        rows.append(("speed", f"{last['tokens_per_second']:,.0f} tokens per second at the end"))
    if last.get("step_seconds"):
        waited = last.get("data_seconds", 0.0) / last["step_seconds"]
        rows.append(("step", f"{last['step_seconds']:.3g} s, {waited:.1%} of it waiting for data"))
    if "model_flops_utilization" in last:
        rows.append(("of the GPUs' peak", f"{last['model_flops_utilization']:.1%}"))
    if len(curves.times) > 1:
        whole = curves.times[-1][1] - curves.times[0][1]
        steps = min(curves.step_seconds, whole)  # log times are whole seconds
        rows.append(("first to last line", in_words(whole)))
        if whole:
            rows.append(("in steps", f"{in_words(steps)} ({steps / whole:.1%})"))
            rows.append(("in the rest", f"{in_words(whole - steps)} ({1 - steps / whole:.1%})"))
            lines.append(REST)
    if curves.slowest:
        host, count = max(curves.slowest.items(), key=lambda part: part[1])
        rows.append(("most often slowest", f"{host}, in {count:,} of {curves.lines:,} lines"))
    tables = [TextTable(("", ""), rows)] if rows else []
    if status.restarts:
        lives = [
            (life.at or "unknown time", f"job {life.job}" * bool(life.job), life.reason)
            for life in status.restarts[-MOST_RESTARTS:]
        ]
        tables.append(TextTable(("a life ended", "", "because it"), lives))
    return Section(_titled("Time", run, several), lines, tables)


def _plan(run: RunSummary, several: bool) -> Section:
    """Predicted next to measured values, as the run wrote them."""
    rows = []
    for name, value in run.plan.items():
        if isinstance(value, dict) and {"predicted", "measured"} <= value.keys():
            a, b = value["predicted"], value["measured"]
            ratio = f"{a / b:.2f}" if _is_number(a) and _is_number(b) and b else ""
            rows.append((name.replace("_", " "), number_text(a), number_text(b), ratio))
    table = TextTable(("", "predicted", "measured", "ratio"), rows)
    return Section(_titled("Plan", run, several), (), [table] if rows else [])


def _data(runs: Sequence[RunSummary]) -> list[Section]:
    seen: dict[str, tuple[str, Manifest]] = {}
    for run in runs:
        for directory, manifest in run.data:
            if manifest:
                seen.setdefault(manifest.fingerprint, (directory, manifest))
    return [data_card(directory, manifest) for directory, manifest in seen.values()]


def data_card(directory: str, manifest: Manifest) -> Section:
    """Corpora, licences, drops and masks of a dataset."""
    rows, drops = [], []
    for name, corpus in manifest.corpora.items():
        rows.append(
            (name, corpus["licence"], f"{corpus['documents']:,}",
             f"{corpus['tokens'] / 1e6:,.1f} M", f"{unknown_share(corpus):.3%}")
        )  # fmt: skip
        for kind in ("dropped", "bad"):
            drops += [(name, reason, f"{count:,}") for reason, count in corpus[kind].items()]
    drops.sort(key=lambda row: -int(row[2].replace(",", "")))
    head = ("corpus", "licence", "documents", "tokens", "behind unknown tokens")
    left_out = TextTable(("corpus", "left out because", "documents"), drops[:MOST_DROPS])
    tables = [TextTable(head, rows), left_out][: 2 if drops else 1]
    scheme = ", ".join(f"{k} {v}" for k, v in manifest.masking.items())
    lines = [f"{directory}, fingerprint {manifest.fingerprint}", f"masking: {scheme}"]
    if shares := _predicted_shares(manifest):
        least, most = f"{min(shares):.2%}", f"{max(shares):.2%}"
        predicted = least if least == most else f"{least} to {most}"
        lines.append(
            f"{len(shares)} stored masks per row; each predicts {predicted} of the training tokens"
        )
    return Section("Data", lines, tables)


def _predicted_shares(manifest: Manifest) -> list[float]:
    """The share of training tokens that each stored duplicate of the masks predicts."""
    shards = manifest.of("train")
    tokens = max(1, sum(shard.tokens for shard in shards))
    return [
        sum(shard.masks[number].predictions for shard in shards) / tokens
        for number in range(manifest.duplicates)
    ]


def score_section(scores: Sequence[Score]) -> Section:
    """Scores with their intervals and protocols."""
    rows = [
        (s.model, s.name, number_text(s.value),
         f"{number_text(s.low)} to {number_text(s.high)}" if s.low is not None else "", s.note)
        for s in scores
    ]  # fmt: skip
    head = ("model", "score", "", "95 % interval", "protocol")
    return Section("Scores", (), [TextTable(head, rows)])


def _command(run: RunSummary) -> str:
    data = " ".join(shlex.quote(directory) for directory, _ in run.data)
    settings, output = shlex.quote(str(run.path / "run.json")), shlex.quote(f"{run.path}-again")
    return f"python -m pipeline.train {settings} --data {data} --output {output}"


def report_command(runs: Sequence[Path], scores: Sequence[Path], output: Path | None) -> str:
    """The command that makes a report."""
    parts = ["python", "-m", "pipeline.report", *map(str, runs)]
    if scores:
        parts += ["--scores", *map(str, scores)]
    return shlex.join([*parts, *(["--output", str(output)] if output else ["--text"])])


def made_by() -> str:
    """The last line of a report."""
    return f"Made by Tenfold {__version__} from files of the runs alone."


def _titled(title: str, run: RunSummary, several: bool) -> str:
    return f"{title}: {run.name}" if several else title


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)  # True is an int


def number_text(value: Any) -> str:
    """A number with four digits after the point, or text; empty for None."""
    if not _is_number(value):
        return "" if value is None else str(value)
    if isinstance(value, int):
        return f"{value:,}"  # of any length: no float has 400 digits
    if abs(value) >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.4g}" if abs(value) < 1e-3 else f"{value:.4f}"


def shorten(value: object) -> str:
    """A setting, cut if it is long."""
    text = str(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
