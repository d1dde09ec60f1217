"""One predicted quantity, with what it assumes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Basis = Literal["computed", "published", "estimated", "measured here"]
"""The source of a value: sizes that follow from the settings, a figure of the stated source,
a formula with published or assumed rates, or this site's own runs."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A predicted quantity of a run."""

    name: str
    value: float
    unit: str
    """bytes, seconds, ..."""
    basis: Basis
    assumption: str
    """Conditions under which the value is right, in a few words."""
    low: float | None = None
    """Lower end of a band; None if the value is exact."""
    high: float | None = None
    """Upper end of the band."""

    def __post_init__(self) -> None:
        assert self.least <= self.value <= self.most, self  # a band around another value misleads

    @property
    def least(self) -> float:
        """The lower end of the band, or the value."""
        return self.value if self.low is None else self.low

    @property
    def most(self) -> float:
        """The upper end of the band, or the value."""
        return self.value if self.high is None else self.high
