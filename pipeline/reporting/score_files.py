"""Scores that other commands wrote: OUTPUT/scores.json of finetune, and evaluate's --json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.base.errors import DataError
from pipeline.base.null_device import refuse_null
from pipeline.base.typed_json import read_object
from pipeline.config.formats import PLL_NAMES
from pipeline.config.mask_rates import masked

THROUGH = " through "
"""Marks the origin of weights that were fine-tuned on another task first."""
BASELINE = "baseline"
"""Note of a score that a model should exceed."""


@dataclass(frozen=True, slots=True)
class Score:
    """One number of a table; None where it is unknown."""

    model: str
    name: str
    value: float
    low: float | None
    high: float | None
    note: str
    """Its protocol: recipe of the fine-tuning, seeds, what chance or word frequencies reach."""
    kind: str = ""
    """Kind of the task that the model was fine-tuned for; empty for all others."""


def scored_encoder(path: Path) -> str:
    """The `encoder_hash` of the `StartingWeights` of a fine-tuning.

    Empty for other scores, and if the weights were an earlier fine-tuning's (--init-from).
    """
    try:
        model = read_object(path).get("model")
    except (ValueError, OSError) as error:
        raise DataError(f"--scores {path} cannot be read: {error}") from error
    if not isinstance(model, Mapping) or THROUGH in str(model.get("origin")):
        return ""
    return str(model.get("encoder_hash", ""))


def read_scores(path: Path) -> list[Score]:
    """The scores in a file.

    Raises DataError if it is neither of the two, CheckpointError if it is from the null device.
    """
    try:
        content = read_object(path)
    except (ValueError, OSError) as error:
        raise DataError(f"--scores {path} cannot be read: {error}") from error
    model = content.get("model")
    # pipeline.finetune writes an object; pipeline.evaluate a name, and the device next to it
    about = model if isinstance(model, Mapping) else content
    refuse_null(about.get("device"), f"--scores {path}")
    try:
        if "schema_version" in content and "task" in content:
            return _fine_tuned(content)
        if "model" in content:
            return _zero_shot(content)
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise DataError(f"--scores {path} is damaged: {error!r}") from error
    raise DataError(
        f"--scores {path} has no scores; give scores.json of pipeline.finetune, or the output of "
        "pipeline.evaluate --json"
    )


def _fine_tuned(content: Mapping[str, Any]) -> list[Score]:
    model = str(content["model"].get("origin", ""))
    found = []
    for metric, score in content["scores"].items():
        name = f"{content['task']}: {metric}"
        note = f"fine-tuned, median of {score['n']} seeds"
        if lost := sum("diverged" in run for run in _reported(content)):
            note += f" ({lost} more diverged)"
        if points := content["grid"].get("points"):
            note += f", grid of {points}"
        note += f"; {_protocol(content['protocol'])}"
        median, low, high = float(score["median"]), score["low"], score["high"]
        found.append(Score(model, name, median, low, high, note, content["kind"]))
    main = content["metric"]
    for kind, baseline in content["baselines"].items():
        value = baseline.get(main)
        # majority and tfidf have one value, the others one per seed
        score = value if isinstance(value, Mapping) else {"median": value}
        if score.get("median") is not None:
            words = {"majority": "the commonest class", "bag": "a bag of word embeddings",
                     "tfidf": "TF-IDF of words and word pairs",
                     "random": "the same encoder from random weights"}  # fmt: skip
            found.append(
                Score(words.get(kind, kind), f"{content['task']}: {main}", float(score["median"]),
                      score.get("low"), score.get("high"), BASELINE)
            )  # fmt: skip
    return found


def _reported(content: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The fine-tunings of the model at the reported grid point."""
    runs = content.get("runs", ())
    return [r for r in runs if r["arm"] == "model" and r["point"] == content["best"]["point"]]


def _protocol(protocol: Mapping[str, Any]) -> str:
    """The hyperparameters of a fine-tuning, and where they come from."""
    length = "steps" if protocol["max_steps"] else "epochs"
    return (
        f"{protocol['source']}: rate {protocol['peak_lr']:g}, {protocol['rows']} rows, "
        f"{protocol['max_steps'] or protocol['epochs']} {length}"
    )


def _zero_shot(content: Mapping[str, Any]) -> list[Score]:
    model, found = str(content["model"]), []
    rate = masked(float(content["mask_rate"])) if "mask_rate" in content else ""
    for name in ("validation_mask_loss", "validation_mlm_loss", "perplexity", "pseudo_perplexity"):
        if isinstance(content.get(name), int | float):
            note = rate if name != "pseudo_perplexity" else ""  # masks one token at a time
            found.append(Score(model, name.replace("_", " "), content[name], None, None, note))
    grammar = content.get("grammar")
    if grammar:
        # Files that name no measure were written when there was only this one.
        measure = PLL_NAMES[grammar.get("pll", "word")]
        parts = {"all paradigms": grammar["overall"]} | dict(grammar["phenomena"])
        for name, score in parts.items():
            value, error = float(score["accuracy"]), score["standard_error"]
            # normal approximation: pairs are many
            half = 1.96 * float(error) if error is not None else None
            frequency = score["frequency_accuracy"]
            note = f"{score['pairs']:,} pairs, {measure}, without training"
            if score.get("ties"):
                note += f"; {score['ties']:,} ties count half, as right: {score['ties_right']:.1%}"
            if frequency is not None:
                note += f"; word frequencies alone {float(frequency):.1%}"
            low, high = (None, None) if half is None else (value - half, value + half)
            found.append(Score(model, f"grammar: {name}", value, low, high, note))
    return found
