"""Rates of masks in words, as all commands print them."""

from __future__ import annotations


def masked(rate: float) -> str:
    """`15 % masked`: the rate of masks in words."""
    return f"{100 * rate:g} % masked"


def at_rate(rate: float | None) -> str:
    """` (15 % masked)`, to follow the name of a held-out loss; "" if masks are the training's."""
    return f" ({masked(rate)})" if rate else ""
