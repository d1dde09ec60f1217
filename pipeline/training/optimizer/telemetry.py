"""What the optimizer did since the last line of metrics, in a few numbers per kind of weight.

    clip_fraction               share of updates whose gradient was clipped
    trust_ratio_min_KIND, trust_ratio_median_KIND, trust_ratio_max_KIND
                                of the last LAMB update, over the logical parameters of a kind that
                                the ratio applies to
    relative_step_KIND          norm of the last LAMB update relative to the weight's: median over a
                                kind, without weights that are zero
    update_rms_median_KIND, update_rms_max_KIND
                                the RMS that the last StableAdamW update divided the rate by if
                                above 1, over the logical parameters of a kind

KIND is one of KINDS. All come from numbers that the step computes anyway and has on the host, so
they cost no collective and no wait for the device.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from pipeline.training.optimizer.fragments import FragmentedParameter

KINDS = ("embedding", "attention", "feed_forward", "head", "norm", "bias")


def kind_of(parameter_name: str) -> str:
    """The kind of a weight, from our names of its modules."""
    module, _, last = parameter_name.rpartition(".")
    if "norm" in module:  # first: a LayerNorm's bias is of kind norm
        return "norm"
    if last == "bias":
        return "bias"
    for part, kind in (("embedding", "embedding"), ("attention", "attention")):
        if part in module:
            return kind
    return "feed_forward" if "feed_forward" in module else "head"


class Telemetry:
    """Collects numbers at each update, and reports them on request."""

    def __init__(self, logical: Sequence[FragmentedParameter], adapted: Sequence[bool]) -> None:
        """adapted: whether LAMB's ratio applies, per logical parameter."""
        kinds = [kind_of(part.parameter_name) for part in logical]
        members = {kind: [i for i, own in enumerate(kinds) if own == kind] for kind in KINDS}
        self._members = {kind: places for kind, places in members.items() if places}
        self._adapted = tuple(adapted)
        self._updates = self._clipped = 0
        self._rate = 0.0
        self._ratios: Sequence[float] = ()
        self._rms: Sequence[float] = ()
        self._norms: Sequence[tuple[float, float]] = ()

    def update(self, clipped: bool) -> None:
        """Record an update of any optimizer."""
        self._updates += 1
        self._clipped += clipped

    def lamb(
        self, rate: float, ratios: Sequence[float], norms: Sequence[tuple[float, float]]
    ) -> None:
        """Record a LAMB update; norms: ||w|| and ||u||."""
        self._rate, self._ratios, self._norms = rate, ratios, norms

    def stable_adamw(self, rms: Sequence[float]) -> None:
        """Record a StableAdamW update; rms: the RMS of the gradient relative to sqrt(v)."""
        self._rms = rms

    def report(self) -> dict[str, float]:
        """The numbers above; those without data since the last report are missing."""
        found: dict[str, float] = {}
        if self._updates:
            found["clip_fraction"] = self._clipped / self._updates
        for kind, places in self._members.items() if self._ratios else ():
            ratios = [self._ratios[place] for place in places if self._adapted[place]]
            if ratios:
                found[f"trust_ratio_min_{kind}"] = min(ratios)
                found[f"trust_ratio_median_{kind}"] = statistics.median(ratios)
                found[f"trust_ratio_max_{kind}"] = max(ratios)
            steps = [self._relative_step(place) for place in places if self._norms[place][0]]
            if steps:
                found[f"relative_step_{kind}"] = statistics.median(steps)
        for kind, places in self._members.items() if self._rms else ():
            found[f"update_rms_median_{kind}"] = statistics.median(self._rms[i] for i in places)
            found[f"update_rms_max_{kind}"] = max(self._rms[i] for i in places)
        self._updates = self._clipped = 0
        self._ratios = self._rms = ()
        return found

    def _relative_step(self, place: int) -> float:
        weight, update = self._norms[place]
        return self._rate * self._ratios[place] * update / weight
