"""Seconds -> words, in the two forms that all commands print.

`in_words` is for what has passed or is left: `3 h 07 min`. `in_one_unit` is for estimates, which
stand next to their bounds: `2.78 h`, with three digits and a name that both bounds can share.
"""

from __future__ import annotations

_UNITS = (
    (2 * 365 * 86400, 365 * 86400, "years"), (2 * 86400, 86400, "days"), (7200, 3600, "h"),
    (120, 60, "min"), (1, 1, "s"), (1e-9, 1e-3, "ms"), (0, 1, "s"),
)  # fmt: skip
"""Least seconds for a unit, the unit in seconds, its name."""


def in_words(seconds: float) -> str:
    """`90 s`, `7 min`, `3 h 07 min` or `2 d 03 h`, rounded down."""
    minutes = int(seconds) // 60
    if minutes < 2:
        return f"{int(seconds)} s"
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes // (24 * 60):,} d {minutes // 60 % 24:02d} h"


def in_one_unit(seconds: float) -> str:
    """`12.3 ms`, `90 s`, `2.78 h` or `4.17 days`: the largest unit of which it has two."""
    return " ".join(digits_and_unit(seconds))


def digits_and_unit(seconds: float) -> tuple[str, str]:
    """The two words of `in_one_unit`."""
    size, unit = next((size, unit) for least, size, unit in _UNITS if seconds >= least)
    count = seconds / size
    # From 999.5 on three digits would print as 1e+03.
    return f"{count:,.0f}" if count >= 999.5 else f"{count:.3g}", unit
