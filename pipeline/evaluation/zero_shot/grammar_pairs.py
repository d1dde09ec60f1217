"""Files of sentences to choose from, as published -> paradigms, the right one of each choice first.

`.jsonl` has a form of BabyLM's evaluation, told by the fields of each line: BLiMP with `UID` and
`linguistics_term`, its supplement without; EWoK; COMPS; entity tracking; WUG. `.txt` is Zorro's
form: odd lines are wrong, even lines are right, and the name is PHENOMENON-PARADIGM. A zip of such
files is read in place. Files with other endings are skipped, and README.txt and the like, which are
counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import xxhash

from pipeline.base.errors import DataError
from pipeline.base.skipped_names import SkippedNames, is_skipped_name, is_skipped_path
from pipeline.base.typed_json import as_object
from pipeline.ingest.extraction.zip_archives import opened

MOST_BYTES = 64 << 20
"""Largest file of pairs; all of BLiMP has 26 MB."""
ENDINGS = (".txt", ".jsonl")
FORMS = {
    "blimp": {"sentence_good", "sentence_bad"},
    "ewok": {"Context1", "Target1", "Target2"},
    "comps": {"property_phrase", "prefix_acceptable", "prefix_unacceptable"},
    "entity_tracking": {"input_prefix", "options", "numops"},
    "wug": {"sentences", "ratio"},
}
"""Fields by which the first line of a file tells its form."""


class Completion(NamedTuple):
    """A text whose end is scored, given what precedes it."""

    text: str
    start: int = 0
    """Characters before the end that is scored; 0 scores the whole text."""


Choice = tuple[Completion, ...]


@dataclass(frozen=True, slots=True)
class Paradigm:
    """Choices of one kind."""

    name: str
    phenomenon: str
    pairs: tuple[Choice, ...]
    """The right completion of each, then the wrong one; entity tracking has four of these."""
    task: str = "blimp"
    """BabyLM's name of what is asked."""
    ratios: tuple[float, ...] = ()
    """Of WUG, where both are words: the share of people who chose the first of each."""

    def sample(self, most: int) -> Paradigm:
        """The paradigm with `most` pairs at most, evenly spaced: files are sorted by template."""
        count = min(most, len(self.pairs))
        chosen = [index * len(self.pairs) // count for index in range(count)]
        ratios = tuple(self.ratios[index] for index in chosen if self.ratios)
        return replace(self, pairs=tuple(self.pairs[index] for index in chosen), ratios=ratios)


def read_paradigms(path: Path) -> list[Paradigm]:
    """All paradigms of a folder, of one file, or of a zip, by name.

    Raises DataError if there are none, or one is malformed, empty, or named twice.
    """
    if not path.exists():
        raise DataError(f"{path}: no such directory or file; give a folder of {_forms()}")
    found: dict[str, Paradigm] = {}
    skipped = SkippedNames()
    for where, name, content in _files(path, skipped):
        for paradigm in _parse(where, name, content):
            if paradigm.name in found:
                raise DataError(
                    f"{where}: the paradigm {paradigm.name!r} appears twice; remove one"
                )
            found[paradigm.name] = paradigm
    skipped.tell(str(path))
    if not found:
        raise DataError(f"{path} has no pairs; expected {_forms()}")
    return [found[name] for name in sorted(found)]


def pairs_hash(paradigms: Sequence[Paradigm]) -> str:
    """xxh3_64 of all pairs and their names, 16 hex digits."""
    content = [
        (each.name, each.phenomenon, [[side.text for side in pair] for pair in each.pairs])
        for each in paradigms
    ]
    return xxhash.xxh3_64(json.dumps(content).encode()).hexdigest()


def _forms() -> str:
    return ".txt (Zorro), .jsonl (BLiMP, other sets of BabyLM), or a .zip of them"


def _files(path: Path, skipped: SkippedNames) -> Iterator[tuple[str, str, bytes]]:
    """Path, name and content of each file of pairs; skipped: gets the names that are skipped."""
    paths = sorted(path.iterdir()) if path.is_dir() else [path]
    for file in paths:
        if path.is_dir() and is_skipped_name(file.name, is_folder=file.is_dir()):
            skipped.add([file.name])
        elif file.suffix == ".zip":
            yield from _members(file, skipped)
        elif file.is_file() and file.suffix in ENDINGS:
            _check_size(str(file), file.stat().st_size)
            yield str(file), file.name, file.read_bytes()


def _members(path: Path, skipped: SkippedNames) -> Iterator[tuple[str, str, bytes]]:
    with opened(str(path)) as archive:
        for member in archive.infolist():
            name = PurePosixPath(member.filename)  # read in place, so it may lie anywhere
            if member.is_dir():
                continue
            if is_skipped_path(str(name)):
                skipped.add([f"{path.name}/{name}"])
            elif name.suffix in ENDINGS:
                where = f"{path}/{name}"
                # Before it is read: a small zip may hold gigabytes.
                _check_size(where, member.file_size)
                yield where, name.name, archive.read(member)


def _check_size(where: str, size: int) -> None:
    if size > MOST_BYTES:
        raise DataError(
            f"{where} has {size / 1e6:,.0f} MB, more than {MOST_BYTES / 1e6:,.0f} MB of pairs; "
            "split it"
        )


def _parse(where: str, name: str, content: bytes) -> list[Paradigm]:
    """The paradigms of a file. Raises DataError if it is malformed or empty."""
    try:
        lines = [line.strip() for line in content.decode("utf-8-sig").split("\n")]
    except UnicodeDecodeError as error:
        raise DataError(f"{where} is not UTF-8 ({error.reason} at byte {error.start})") from error
    while lines and not lines[-1]:
        lines.pop()
    if not lines:
        raise DataError(f"{where} is empty; remove it, or copy it again")
    stem, _, ending = name.rpartition(".")
    return [_from_text(where, stem, lines)] if ending == "txt" else _from_json(where, stem, lines)


def _from_text(where: str, stem: str, lines: list[str]) -> Paradigm:
    if len(lines) % 2:
        raise DataError(
            f"{where} has {len(lines):,} lines; pairs need an even number: wrong, right, wrong, ..."
        )
    if "" in lines:
        raise DataError(f"{where}:{lines.index('') + 1}: the line is empty; a pair needs two lines")
    phenomenon, _, rest = stem.rpartition("-")
    sides = [Completion(line) for line in lines]
    return Paradigm(stem, phenomenon or rest, tuple(zip(sides[1::2], sides[::2], strict=True)))


def _from_json(where: str, stem: str, lines: list[str]) -> list[Paradigm]:
    """A paradigm for each name in the file."""
    found: dict[tuple[str, str], list[Paradigm]] = {}
    for number, line in enumerate(lines, 1):
        try:
            row = as_object(line)
            if number == 1:
                form = form_of(row) or "blimp"
            one = _read_row(form, row, stem)
        except ValueError as error:
            raise DataError(f"{where}:{number}: {error}; fix the line") from error
        found.setdefault((one.name, one.phenomenon), []).append(one)
    return [
        replace(
            ones[0],
            pairs=tuple(pair for one in ones for pair in one.pairs),
            ratios=tuple(ratio for one in ones for ratio in one.ratios),
        )
        for ones in found.values()
    ]


def form_of(row: Mapping[str, Any]) -> str:
    """The form that the first line of a file tells; empty if it is of another task."""
    return next((form for form, fields in FORMS.items() if fields & row.keys()), "")


def _read_row(form: str, row: Mapping[str, Any], stem: str) -> Paradigm:
    """A paradigm of the choice in a line.

    stem: of the file's name, for a name that is not there. Raises ValueError that names the field.
    """

    def text(field: str, default: object = None) -> str:
        value = row.get(field, default)
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"{field} is {value!r}, not text")
        return value

    def after(seen: str, *ends: str) -> Choice:
        return tuple(Completion(seen + end, len(seen)) for end in ends)

    match form:
        case "ewok":
            pair = after(text("Context1"), f" {text('Target1')}", f" {text('Target2')}")
            return Paradigm(text("Domain"), form, (pair,), form)
        case "comps":
            end, name = text("property_phrase"), stem.removeprefix("comps_").replace("-", "_")
            pair = after(text("prefix_acceptable") + " ", end)
            pair += after(text("prefix_unacceptable") + " ", end)
            return Paradigm(name, form, (pair,), form)
        case "entity_tracking":
            options, operations = row.get("options"), row.get("numops")
            given = options if isinstance(options, list) else []
            texts = [option for option in given if isinstance(option, str) and option.strip()]
            if len(texts) < 2 or texts != options:
                raise ValueError(f"options is {options!r}, not a list of texts")
            if type(operations) is not int:
                raise ValueError(f"numops is {operations!r}, not a whole number")
            pair = after(text("input_prefix"), *texts)
            return Paradigm(f"{stem}_{operations}_ops", stem, (pair,), form)
        case "wug":
            name, ratio = "_".join(stem.split("_")[:2]), row.get("ratio")
            pair = after("", *text("sentences").split("\t"))
            if len(pair) != 2:
                raise ValueError(f"sentences is {row['sentences']!r}, not two with a tab between")
            if not isinstance(ratio, int | float) or not 0 <= ratio <= 1:
                raise ValueError(f"ratio is {ratio!r}, not in [0, 1]")
            return Paradigm(name, form, (pair,), name, (ratio,))
        case _:
            pair = after("", text("sentence_good"), text("sentence_bad"))
            return Paradigm(text("UID", stem), text("linguistics_term", stem), (pair,))
