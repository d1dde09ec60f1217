"""Runs whose losses compare, and why the others stand apart.

A loss is a mean over the tokens of one vocabulary, on certain rows and masks, of one objective: a
smaller number of another kind says nothing. Speed, tokens and gradient norms are shown side by side
anyway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.data.shards.held_out_check import held_out_key
from pipeline.reporting.run_summary import RunSummary
from pipeline.training.validation.before_after import GENERAL, OWN

LOSSES = ("loss", "perplexity", "accuracy")
"""Parts of the names of the metrics that compare only within a group."""
HELD_OUT = (OWN, GENERAL)
"""Prefixes of metrics that are not of training."""
MASK_RATE = "validation.mask_rate"


def is_loss(name: str) -> bool:
    """True if a metric depends on vocabulary, data and objective."""
    return any(part in name for part in LOSSES) and not name.startswith("loss_")


def groups_of(runs: Sequence[RunSummary], name: str = "validation_loss") -> list[list[RunSummary]]:
    """The runs in groups that compare by a loss, in the order of their first runs."""
    found: list[list[RunSummary]] = []
    for run in runs:
        for group in found:
            # runs of a group have equal keys, so one stands for all
            if not why_apart(group[0], run, name):
                group.append(run)
                break
        else:
            found.append([run])
    return found


def why_apart(one: RunSummary, other: RunSummary, name: str = "validation_loss") -> str:
    """Reason why a loss of `other` does not compare with that of `one`; empty if it does."""
    reasons = []
    if one.record.get("tokenizer_sha256") != other.record.get("tokenizer_sha256"):
        reasons.append("another vocabulary")
    if unlike := _unlike_data(one, other, is_held_out=name.startswith(HELD_OUT)):
        reasons.append(unlike)
    before, after = _objective(one.settings), _objective(other.settings)
    if before != after:
        changed = [
            f"{path}={value}" for path, value in after.items() if before.get(path) != value
        ] or ["unknown"]
        reasons.append(f"another objective ({', '.join(changed)})")
    return ", ".join(reasons)


def _unlike_data(one: RunSummary, other: RunSummary, is_held_out: bool) -> str:
    """The difference in rows or masks of a loss, training's or held-out; empty if there is none.

    Training losses compare on the same shards. Held-out ones also compare on shards that hold out
    the same sequences, if both runs mask them at one rate.
    """
    same_shards = _fingerprints(one.record) == _fingerprints(other.record)
    if not is_held_out:
        return "" if same_shards else "other data or masks"
    # 0 stands for the stored masks
    rates = [run.settings.get(MASK_RATE, 0.0) for run in (one, other)]
    keys = [_held_out_keys(run) for run in (one, other)]
    if (same_shards and rates[0] == rates[1]) or (keys[0] and keys[0] == keys[1]):
        return ""
    if same_shards:
        return f"held-out masks at another rate ({MASK_RATE}={rates[1]})"
    return "other data or held-out masks"


def _fingerprints(record: Mapping[str, Any]) -> set[str]:
    """The fingerprints of the shards that a run reads."""
    parts = record.get("data")
    found = parts if isinstance(parts, list) else []
    return {str(part.get("fingerprint")) for part in found if isinstance(part, dict)}


def _held_out_keys(run: RunSummary) -> set[tuple[object, ...]]:
    """`held_out_key` of each dataset; empty if one is not there any more."""
    manifests = [manifest for _, manifest in run.data if manifest]
    if len(manifests) < len(run.data):
        return set()
    return {held_out_key(manifest, run.settings.get(MASK_RATE, 0.0)) for manifest in manifests}


def _objective(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {path: value for path, value in settings.items() if path.startswith("objective.")}
