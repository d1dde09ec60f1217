"""$TENFOLD_ROOT/site.json: rates that were measured at this site, for the next plan.

A run adds the rate of its recipe, device and precision after its first steps, `pipeline.doctor
--full` those of the machines that it ran on. The newest few are kept, and their median counts. The
file is replaced as a whole, under a lock.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from pipeline.base.errors import DataError
from pipeline.base.files import one_at_a_time, write_whole
from pipeline.base.typed_json import as_json, build, read_object

SITE = "site.json"
SCHEMA_VERSION = 1
_LOCK_SECONDS = 10.0
"""Longest wait for the file's lock; short, since a run trains meanwhile."""
KEPT = 9
"""Newest rates that are kept under each key."""
Rate = TypeVar("Rate")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRate:
    """Rates that one run reached in its first steps."""

    flops: float
    """Worked FLOP per second of a GPU or, without GPUs, of a core: see `training_time`."""
    step_seconds: float
    sequences_per_second: float
    """Sequences over all ranks."""
    ranks: int
    measured_at: str
    versions: Mapping[str, str]

    @property
    def numbers(self) -> tuple[float, ...]:
        """Those that are above 0 on any machine."""
        return self.flops, self.step_seconds, self.sequences_per_second, self.ranks

    def added_to(self, site: SiteRates, name: str) -> SiteRates:
        """The rates of a site and this one, under its key."""
        return replace(site, rates=_newest(site.rates, name, self))


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRates:
    """Rates that the doctor measured on the machines of a launch."""

    flops: float
    """FLOP per second of a matrix product: in bf16 of a GPU, in fp32 of a core."""
    bus_bandwidth: float
    """Bytes per second that each rank sends in an all-reduce; 0 if there was one rank."""
    ranks: int
    measured_at: str
    versions: Mapping[str, str]

    @property
    def numbers(self) -> tuple[float, ...]:
        """Those that are above 0 on any machine."""
        return self.flops, self.bus_bandwidth or 1.0, self.ranks  # 0 means that it was not measured

    def added_to(self, site: SiteRates, name: str) -> SiteRates:
        """The rates of a site and these, under their key."""
        return replace(site, machines=_newest(site.machines, name, self))


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteRates:
    """The content of site.json."""

    schema_version: int = SCHEMA_VERSION
    rates: Mapping[str, tuple[MeasuredRate, ...]] = field(default_factory=dict)
    """Rates of runs by `key`, oldest first."""
    machines: Mapping[str, tuple[MachineRates, ...]] = field(default_factory=dict)
    """Rates of machines by `machine_key`, oldest first."""

    def find(self, recipe: str, device: str, precision: str) -> tuple[MeasuredRate, ...]:
        """The rates of a recipe on a device; empty if none was measured."""
        return tuple(self.rates.get(key(recipe, device, precision), ()))

    def links(self, device: str, nodes: int, per_node: int) -> tuple[MachineRates, ...]:
        """Those with an all-reduce, of so many ranks on so many nodes."""
        # A link's rate depends on the number of ranks.
        found = self.machines.get(machine_key(device, nodes, per_node), ())
        return tuple(rate for rate in found if rate.bus_bandwidth)

    def products(self, device: str) -> tuple[MachineRates, ...]:
        """Those of a device, however many were measured."""
        # A product's rate does not depend on the number of ranks.
        names = (name for name in self.machines if name.startswith(f"{device} "))
        return tuple(rate for name in names for rate in self.machines[name])


def _newest(
    held: Mapping[str, tuple[Rate, ...]], name: str, rate: Rate
) -> dict[str, tuple[Rate, ...]]:
    """The rates held and a new one, under its key."""
    rates = [*held.get(name, ()), rate]
    return {**held, name: tuple(rates[-KEPT:])}


def key(recipe: str, device: str, precision: str) -> str:
    """`roberta_base cpu fp32`."""
    return f"{recipe} {device} {precision}"


def machine_key(device: str, nodes: int, per_node: int) -> str:
    """`H100 2x8`."""
    return f"{device} {nodes}x{per_node}"


def median_flops(rates: tuple[MeasuredRate, ...]) -> tuple[float, float, float]:
    """Least, median and most `flops` of some rates."""
    found = [rate.flops for rate in rates]
    return min(found), statistics.median(found), max(found)


def site_file() -> Path | None:
    """The file of this site; None if TENFOLD_ROOT is not set."""
    root = os.environ.get("TENFOLD_ROOT")
    return Path(root) / SITE if root else None


def read_site(path: Path | None) -> SiteRates:
    """The rates of a site, none if there is no file. Raises DataError for a damaged one."""
    if path is None or not path.exists():
        return SiteRates()
    try:
        found = build(SiteRates, read_object(path))
        if found.schema_version != SCHEMA_VERSION:
            raise ValueError(f"schema version {found.schema_version}, not {SCHEMA_VERSION}")
        every: list[tuple[str, tuple[MeasuredRate | MachineRates, ...]]]
        every = [*found.rates.items(), *found.machines.items()]
        for name, rates in every:
            # Zero would divide a plan by it, and JSON has numbers beyond any machine.
            if not all(1e-9 < value < 1e24 for rate in rates for value in rate.numbers):
                raise ValueError(f"{name} has a rate that no machine reaches")
    except (ValueError, OSError) as error:
        raise DataError(
            f"{path} cannot be read ({error}); remove it, and the next runs measure again"
        ) from error
    return found


def add_rate(path: Path, name: str, rate: MeasuredRate | MachineRates) -> None:
    """Add a rate to the file of a site. Raises DataError if it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with one_at_a_time(path.with_name(f".{path.name}.lock"), _LOCK_SECONDS):
            # Read under the lock, or one of two rates is lost.
            content = asdict(rate.added_to(read_site(path), name))
            write_whole(path, as_json(content, indent=1).encode())
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror or error}; fix this") from error
