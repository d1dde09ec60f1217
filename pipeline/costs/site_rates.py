"""$TENFOLD_ROOT/site.json: rates that this site's own runs reached, for the next plan.

A rate is of a recipe, a device and a precision. A run adds one after its first steps; the newest
few are kept, and their median counts. The file is replaced as a whole, under a lock.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from pipeline.errors import DataError
from pipeline.files import try_lock, write_whole
from pipeline.typed_json import build, read_object

SITE = "site.json"
SCHEMA_VERSION = 1
_ATTEMPTS = 100
"""To lock the file, a tenth of a second apart."""
KEPT = 9
"""Newest runs that are kept of each recipe, device and precision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRate:
    """What one run reached in its first steps."""

    flops: float
    """Worked FLOP per second of a GPU or, without GPUs, of a core: see `training_time`."""
    step_seconds: float
    sequences_per_second: float
    """Over all ranks."""
    ranks: int
    measured_at: str
    versions: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteRates:
    """The content of site.json."""

    schema_version: int = SCHEMA_VERSION
    rates: Mapping[str, tuple[MeasuredRate, ...]] = field(default_factory=dict)
    """By `key`, oldest first."""

    def find(self, recipe: str, device: str, precision: str) -> tuple[MeasuredRate, ...]:
        """The rates of a recipe on a device; empty if none was measured."""
        return tuple(self.rates.get(key(recipe, device, precision), ()))

    def with_rate(self, name: str, rate: MeasuredRate) -> SiteRates:
        """These rates and a new one, under `key`."""
        kept = (*self.rates.get(name, ()), rate)[-KEPT:]
        return replace(self, rates={**self.rates, name: kept})


def key(recipe: str, device: str, precision: str) -> str:
    """`roberta_base cpu fp32`."""
    return f"{recipe} {device} {precision}"


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
        for name, rates in found.rates.items():
            if not all(1e-9 < value < 1e24 for rate in rates for value in _numbers(rate)):
                raise ValueError(f"rates.{name} has a rate that no machine reaches")
    except (ValueError, OSError) as error:
        raise DataError(
            f"{path} cannot be read ({error}); remove it, and the next runs measure again"
        ) from error
    return found


def add_rate(path: Path, name: str, rate: MeasuredRate) -> None:
    """Add a run's rate to the file of a site. Raises DataError if it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.with_name(f".{path.name}.lock").open("w") as lock:
            _wait_for(lock, path)
            content = asdict(read_site(path).with_rate(name, rate))
            write_whole(path, json.dumps(content, indent=1).encode())
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror or error}; fix this") from error


def _wait_for(lock: IO[Any], path: Path) -> None:
    """Take a lock that all runs of a site share. A run trains meanwhile, so it never waits long."""
    for _ in range(_ATTEMPTS):
        if try_lock(lock) is not False:
            return
        time.sleep(0.1)
    raise DataError(f"{path} is locked by another run; this run's rate is not kept")


def _numbers(rate: MeasuredRate) -> tuple[float, ...]:
    return rate.flops, rate.step_seconds, rate.sequences_per_second, rate.ranks
