"""Files of minimal pairs, as published -> paradigms: sentences that differ in one point of grammar.

`.jsonl` is BLiMP's form, `sentence_good` and `sentence_bad` on each line with its `UID` and
`linguistics_term`. `.txt` is Zorro's: odd lines are wrong, even lines are right, and the name is
PHENOMENON-PARADIGM. A zip of such files is read in place. Files with other endings are skipped, and
README.txt and the like, which are counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import xxhash

from pipeline.base.errors import DataError
from pipeline.base.skipped_names import SkippedNames, is_skipped_name, is_skipped_path
from pipeline.base.typed_json import as_object
from pipeline.ingest.extraction.zip_archives import opened

MOST_BYTES = 64 << 20
"""Largest file of pairs; all of BLiMP has 26 MB."""
ENDINGS = (".txt", ".jsonl")


@dataclass(frozen=True, slots=True)
class Paradigm:
    """Minimal pairs of one kind."""

    name: str
    phenomenon: str
    pairs: tuple[tuple[str, str], ...]
    """The right and the wrong sentence of each."""

    def sample(self, most: int) -> Paradigm:
        """The paradigm with `most` pairs at most, evenly spaced: files are sorted by template."""
        count = min(most, len(self.pairs))
        chosen = (self.pairs[index * len(self.pairs) // count] for index in range(count))
        return replace(self, pairs=tuple(chosen))


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
    content = [(each.name, each.phenomenon, each.pairs) for each in paradigms]
    return xxhash.xxh3_64(json.dumps(content).encode()).hexdigest()


def _forms() -> str:
    return ".txt (Zorro), .jsonl (BLiMP), or a .zip of them"


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
            name = PurePosixPath(member.filename)
            if name.is_absolute() or ".." in name.parts or "\\" in member.filename:
                raise DataError(
                    f"{path}: the member {member.filename!r} lies outside the archive; "
                    "create it again from the files"
                )
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
    return Paradigm(stem, phenomenon or rest, tuple(zip(lines[1::2], lines[::2], strict=True)))


def _from_json(where: str, stem: str, lines: list[str]) -> list[Paradigm]:
    """A paradigm for each UID; the file's name stands for a UID or term that is not there."""
    pairs: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for number, line in enumerate(lines, 1):
        try:
            row = as_object(line)
        except ValueError as error:
            raise DataError(f"{where}:{number}: not a JSON object: {error}") from error
        pair = row.get("sentence_good"), row.get("sentence_bad")
        for field, sentence in zip(("sentence_good", "sentence_bad"), pair, strict=True):
            if not isinstance(sentence, str) or not sentence.strip():
                raise DataError(f"{where}:{number}: {field} is not a sentence; fix the line")
        names = row.get("UID", stem), row.get("linguistics_term", stem)
        for field, name in zip(("UID", "linguistics_term"), names, strict=True):
            if not isinstance(name, str) or not name:
                raise DataError(f"{where}:{number}: {field} is {name!r}, not a name; fix the line")
        pairs.setdefault((str(names[0]), str(names[1])), []).append((str(pair[0]), str(pair[1])))
    return [Paradigm(name, term, tuple(own)) for (name, term), own in pairs.items()]
