"""Runs whose losses compare, and why the others stand apart.

A loss is a mean over the tokens of one vocabulary, on the held-out rows and frozen masks of one
set of shards, of one objective: a smaller number of another kind says nothing. Speed, tokens and
gradient norms are shown side by side anyway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.reporting.run_summary import RunSummary

LOSSES = ("loss", "perplexity", "accuracy")
"""Parts of the names of the metrics that compare only within a group."""


def is_loss(name: str) -> bool:
    """Whether a metric depends on vocabulary, data and objective."""
    return any(part in name for part in LOSSES) and not name.startswith("loss_")


def groups_of(runs: Sequence[RunSummary]) -> list[list[RunSummary]]:
    """The runs in groups whose losses compare, in the order of their first runs."""
    found: list[list[RunSummary]] = []
    for run in runs:
        for group in found:
            if not why_apart(group[0], run):
                group.append(run)
                break
        else:
            found.append([run])
    return found


def why_apart(one: RunSummary, other: RunSummary) -> str:
    """Why the losses of `other` do not compare with those of `one`; empty if they do."""
    reasons = []
    if one.record.get("tokenizer_sha256") != other.record.get("tokenizer_sha256"):
        reasons.append("another vocabulary")
    if _data(one.record) != _data(other.record):
        reasons.append("other data or held-out masks")
    before, after = _objective(one.settings), _objective(other.settings)
    if before != after:
        changed = [
            f"{path}={value}" for path, value in after.items() if before.get(path) != value
        ] or ["unknown"]
        reasons.append(f"another objective ({', '.join(changed)})")
    return ", ".join(reasons)


def _data(record: Mapping[str, Any]) -> set[str]:
    """The fingerprints of the shards that a run reads."""
    parts = record.get("data")
    found = parts if isinstance(parts, list) else []
    return {str(part.get("fingerprint")) for part in found if isinstance(part, dict)}


def _objective(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {path: value for path, value in settings.items() if path.startswith("objective.")}
