"""Names places in files for messages: by the line where it is known, else by the byte."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.ingest.documents.byte_blocks import count_lines
from pipeline.ingest.documents.records import EXTRACTED, Source


@dataclass(frozen=True, slots=True)
class Where:
    """Names places in a piece that starts at the byte `start`."""

    source: Source
    start: int

    def __call__(self, number: int, position: int) -> str:
        """The piece's line `number`, from 1, as name:line; name@byte if the piece is not the first.

        position: the same place, in bytes of the file. The lines before the piece are not counted,
        since that means reading the file up to there; `with_line` does it for one place.
        """
        if self.start:
            return f"{self.source.name}@{position}"
        return f"{self.source.name}:{number}"


def with_line(example: str, sources: Iterable[Source]) -> str:
    """An example of a bad record, with the line instead of the byte where it has one.

    example: "where: reason", see `BadRecord`; reads the file up to that line.
    """
    for source in sources:
        raw = source.raw or source
        for file in raw.files if raw.group else (replace(raw, name=source.name),):
            if not file.compression and example.startswith(f"{file.name}@"):
                position, _, reason = example.removeprefix(f"{file.name}@").partition(": ")
                if position.isdecimal() and file.format != EXTRACTED and Path(file.path).exists():
                    line = count_lines(file.path, int(position), of_text=file.format == "text") + 1
                    return f"{file.name}:{line}: {reason}"
    return example
