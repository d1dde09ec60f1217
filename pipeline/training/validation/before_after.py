"""Held-out losses before the first step and after the last one, in words.

Of a run that starts from given weights: on the held-out rows of its own text (validation_*), and on
those of the general sample (general_*), where a loss that rises shows what the run forgets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pipeline.config.mask_rates import at_rate

PARTS = {
    "mlm_loss": "words", "pair_loss": "pairs", "sbo_loss": "span boundaries",
    "rtd_loss": "detection", "words_loss": "restored words",
}  # fmt: skip
"""Parts of the loss, and what they are called."""
OWN, GENERAL = "validation_", "general_"
"""Prefixes of the fields of metrics on the run's own text, and on the general sample."""
RATE = f"{OWN}mask_rate"
"""Field with the rate of held-out masks, where it is not that of the training masks."""


def at_the_start(first: Mapping[str, Any]) -> str:
    """The losses of step 0 in a line; first: fields of metrics."""
    return f"before the first step: {_in_words(first, {})}"


def change(first: Mapping[str, Any], last: Mapping[str, Any]) -> str:
    """The losses of step 0 and of a later step in a line; "" without these.

    first, last: fields of metrics. A text that was not scored at the later step has one loss.
    """
    if first.get("step") != 0 or not last.get("step"):
        return ""
    scored = [name for name in PARTS if {f"{OWN}{name}", f"{GENERAL}{name}"} & last.keys()]
    return _in_words(first, last) if scored else ""


def _in_words(first: Mapping[str, Any], last: Mapping[str, Any]) -> str:
    found = {
        called: [text for text in (_own(name, first, last), _general(name, first, last)) if text]
        for name, called in PARTS.items()
    }
    parts = {called: ", ".join(texts) for called, texts in found.items() if texts}
    if not parts:
        return "no held-out loss"
    said = f"held-out loss{at_rate(last.get(RATE, first.get(RATE)))}"
    if [*parts] == [PARTS["mlm_loss"]]:
        return f"{said} {parts[PARTS['mlm_loss']]}"
    return f"{said} {'; '.join(f'of {called} {text}' for called, text in parts.items())}"


def _own(name: str, first: Mapping[str, Any], last: Mapping[str, Any]) -> str:
    return _figures(first.get(f"{OWN}{name}"), last.get(f"{OWN}{name}"), "on your text", last)


def _general(name: str, first: Mapping[str, Any], last: Mapping[str, Any]) -> str:
    before, after = first.get(f"{GENERAL}{name}"), last.get(f"{GENERAL}{name}")
    text = _figures(before, after, "on the general sample", last)
    if before is None or after is None or not math.isfinite(after):
        return text
    # As many digits as are printed, or "+0.0000" would be called forgetting.
    rise = round(after - before, 4)
    return f"{text} ({f'forgetting: {rise:+.4f}' if rise > 0 else 'no forgetting'})"


def _figures(before: float | None, after: float | None, where: str, last: object) -> str:
    """Both losses; "" if the first is unknown: it was not finite, or there was nothing to score."""
    if before is None:
        return ""
    if after is None:
        return f"{before:.4f} {where}{' at the start' if last else ''}"
    return f"{before:.4f} -> {after:.4f} {where}"
