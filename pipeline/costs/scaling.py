"""The hours of a run on 1 to 128 nodes -> how well more nodes are used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pipeline.base.errors import ConfigError
from pipeline.costs.devices import Hardware
from pipeline.costs.estimate import Estimate

NODES = (1, 2, 4, 8, 16, 32, 64, 128)


def efficiency(hardware: Hardware, hours_on: Callable[[Hardware], Estimate]) -> list[Estimate]:
    """The share of one node's throughput per device that remains on more nodes.

    hours_on: hours of the run on some machines; raises ConfigError where a step has too few
    sequences for the ranks, which ends the list. The band pairs least with least, and most with
    most.
    """
    one: Estimate | None = None
    found = []
    for nodes in NODES:
        try:
            hours = hours_on(replace(hardware, nodes=nodes))
        except ConfigError:
            break
        one = one or hours
        shares = sorted(
            min(1.0, mine / (nodes * other))
            for mine, other in (
                (one.value, hours.value), (one.least, hours.least), (one.most, hours.most),
            )
        )  # fmt: skip
        usual = min(1.0, one.value / (nodes * hours.value))
        found.append(
            Estimate(
                f"{nodes} node{'s' * (nodes > 1)}", usual, "share", hours.basis,
                f"{hours.value:.3g} h with the same batch", shares[0], shares[-1],
            )
        )  # fmt: skip
    return found
