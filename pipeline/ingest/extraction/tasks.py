"""Tasks of `extract`: a raw file to identify or to extract, and its units."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipeline.ingest.documents.records import Source
from pipeline.ingest.extraction.units import Unit
from pipeline.remote.copies import is_here

_NAME_BYTES = 160
"""Kept of a file's name in those of its Parquet file, units and locks: a name has at most 255."""


def kept_name(name: str) -> str:
    """The part of a Parquet file's name that is taken from its file."""
    return name.encode()[:_NAME_BYTES].decode(errors="ignore")  # the cut may be inside a character


@dataclass(frozen=True, slots=True)
class ExtractionTask:
    """One raw file to extract to one Parquet file, from its units."""

    source: Source
    mark: str
    """Fingerprint of the file and of the code that reads it."""
    directory: Path

    @property
    def target(self) -> Path:
        """The Parquet file."""
        return self.directory / f"{kept_name(self.source.name)}-{self.mark}.parquet"

    @property
    def weight(self) -> int:
        """Bytes of the file."""
        return self.source.size

    @property
    def name(self) -> str:
        """Its name in logs."""
        return f"extract {self.source.name}"

    @property
    def marker(self) -> str:
        """Name of the Parquet file."""
        return self.target.name

    @property
    def can_share(self) -> bool:
        """True if several processes can extract it: it is not done yet, and the file is here."""
        return self.is_here and not self.target.exists()

    @property
    def is_here(self) -> bool:
        """True if the raw file is here: a published one may still have to be fetched."""
        return self.source.published is None or is_here(self.source.published)

    def stored(self, unit: Unit) -> Path:
        """Path at which the unit waits for the others."""
        # Hidden, which is how `_remove_used_units` tells units from whole files.
        return self.directory / f".{self.target.stem}.{unit.start}-{unit.stop}.parquet"


@dataclass(frozen=True, slots=True)
class IdentificationTask:
    """A raw file whose content is to be hashed, and compared if it was extracted before."""

    file: ExtractionTask

    @property
    def weight(self) -> int:
        """Bytes of the file."""
        return self.file.weight

    @property
    def name(self) -> str:
        """Its name in logs."""
        return f"identify {self.file.source.name}"

    @property
    def marker(self) -> str:
        """No file's name: only files in a new state become tasks."""
        return ""


@dataclass(frozen=True, slots=True)
class UnitTask:
    """One unit of a file to extract."""

    file: ExtractionTask
    unit: Unit

    @property
    def target(self) -> Path:
        """The unit's own Parquet file."""
        return self.file.stored(self.unit)

    @property
    def weight(self) -> int:
        """Bytes of the unit."""
        return self.unit.stop - self.unit.start

    @property
    def name(self) -> str:
        """Its name in logs."""
        return f"{self.file.name} from {self.unit.start}"

    @property
    def marker(self) -> str:
        """Name of the unit's own Parquet file."""
        return self.target.name


@dataclass(frozen=True, slots=True)
class HelpTask:
    """A unit of a published file that another process fetches and extracts."""

    file: ExtractionTask
    unit: Unit
    """The unit as expected, since the file is not here yet."""

    @property
    def weight(self) -> int:
        """Nothing, as the file's own task counts; so help comes after all files are started."""
        return 0

    @property
    def name(self) -> str:
        """Its name in logs."""
        return f"help to {self.file.name}"

    @property
    def marker(self) -> str:
        """Name of the unit's own Parquet file."""
        return self.file.stored(self.unit).name


UnitWork = UnitTask | IdentificationTask
FileWork = ExtractionTask | HelpTask
