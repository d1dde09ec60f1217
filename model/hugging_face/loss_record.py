"""The parts of a model's loss <-> an entry of its folder's configuration, which transformers keeps
and does not read.

With it a folder's loss is that of its training. Published folders have no such entry; callers have
a default for these.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, get_args, get_type_hints

from model.objectives.masked_language import LossPart

ENTRY = "loss_parts"
"""The key in config.json: by name of the part, its weight and what it is a mean over."""
COUNTS = get_args(get_type_hints(LossPart)["per"])  # postponed annotations are text


def loss_entry(parts: Sequence[LossPart]) -> dict[str, Any]:
    """The entry of a configuration; nothing for a loss of one part."""
    if len(parts) == 1:
        return {}
    return {ENTRY: {part.name: {"weight": part.weight, "per": part.per} for part in parts}}


def recorded_part(config: Mapping[str, Any], default: LossPart) -> LossPart:
    """The part of this name that the configuration has an entry for, else the default.

    Raises ValueError for an entry that `loss_entry` does not write.
    """
    parts = config.get(ENTRY, {})
    if isinstance(parts, Mapping) and default.name not in parts:
        return default
    found = parts[default.name] if isinstance(parts, Mapping) else {}
    entry: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
    weight: Any = entry.get("weight")
    per: Any = entry.get("per")
    number = isinstance(weight, int | float) and not isinstance(weight, bool)
    # JSON allows an int that no float can hold.
    if not number or not 0 < weight <= sys.float_info.max or per not in COUNTS:
        raise ValueError(
            f"{ENTRY}={parts!r} cannot be loaded; each part needs a weight above 0 and per, one of "
            f"{', '.join(COUNTS)}; remove the entry to use the published weights"
        )
    return LossPart(name=default.name, weight=float(weight), per=per)
