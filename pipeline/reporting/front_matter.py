"""The head of a model card, which the Hub reads: YAML, in the subset that is JSON.

Parsers read the same values from it whatever a name contains: text is quoted, characters that YAML
does not allow are escaped, and no number has an exponent, which YAML 1.1 takes for text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from pipeline.ingest.corpora.catalogue import CORPORA
from pipeline.reporting.score_files import BASELINE, Score

HUB_LICENCES = {"CC BY-SA 3.0": "cc-by-sa-3.0", "CC BY 2.5": "cc-by-2.5", "CC BY-SA": "cc"}
"""Licences of corpora -> the Hub's identifiers, from its list; "cc" is the family."""
UNCLEAR = ("unknown", "as each book's", "as each story's", "third-party pages")
"""Licences of corpora that name none."""
TASK_TYPES = {
    "classification": "text-classification", "regression": "text-classification",
    "choices": "multiple-choice", "tags": "token-classification", "spans": "question-answering",
    "": "fill-mask",
}  # fmt: skip
"""Kind of a fine-tuned task -> the Hub's name of it."""
HELD_OUT = "held-out documents"
MOST_VALUE = 1e15
"""Scores from here on would be written with an exponent."""


def front_matter(fields: Mapping[str, object]) -> str:
    """The head, with its two lines of dashes; a field whose value is empty is skipped."""
    lines = [f"{name}: {_quote(value)}" for name, value in fields.items() if value]
    return "\n".join(("---", *lines, "---"))


def licence_fields(licences: Collection[str]) -> dict[str, str]:
    """`license`, and `license_name` if the Hub has no identifier for what the corpora have."""
    found = sorted(set(licences))
    # one text of unknown licence makes the whole unknown
    if not found or any(licence in UNCLEAR for licence in found):
        return {"license": "unknown"}
    identifiers = {HUB_LICENCES.get(licence, "") for licence in found}
    if len(identifiers) == 1 and "" not in identifiers:
        return {"license": identifiers.pop()}
    name = re.sub(r"[^a-z0-9.]+", "-", " ".join(found).lower()).strip("-")
    return {"license": "other", "license_name": name or "other"}


def hub_datasets(licences: Iterable[tuple[str, str]]) -> list[str]:
    """The Hub's copies of named corpora; licences: corpus and licence.

    A corpus of the user's own, or of the sample, may have a named one's name, not its licence.
    """
    known = [
        corpus.hub.id
        for name, licence in licences
        if (corpus := CORPORA.get(name)) and corpus.hub and corpus.licence == licence
    ]
    return list(dict.fromkeys(known))


def model_index(name: str, scores: Sequence[Score]) -> list[dict[str, Any]]:
    """`model-index`: the scores of the model itself, without those of baselines."""
    results = [
        _result(score)
        for score in scores
        if score.note != BASELINE and math.isfinite(score.value) and abs(score.value) < MOST_VALUE
    ]
    return [{"name": name, "results": results}] if results else []


def _result(score: Score) -> dict[str, Any]:
    dataset, _, metric = score.name.rpartition(": ")
    kind = re.sub(r"\W+", "_", metric)
    if dataset == "grammar":
        dataset, kind = f"minimal pairs: {metric}", "accuracy"
    named = [metric]
    if score.low is not None and score.high is not None:
        named.append(f"95 % interval {score.low:.4f} to {score.high:.4f}")
    named += [score.note] if score.note else []
    return {
        "task": {"type": TASK_TYPES.get(score.kind, score.kind)},
        "dataset": {"name": dataset or HELD_OUT, "type": dataset or HELD_OUT},  # the Hub needs both
        "metrics": [
            {"type": kind, "value": round(score.value, 4), "name": "; ".join(named)},
        ],
    }


def _quote(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)  # YAML would read NaN as text
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in text)
