"""Groups of corpora: which files belong to which member, and whether there is enough text."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from pipeline.base.errors import ConfigError, DataError
from pipeline.base.skipped_names import SkippedNames, is_skipped_name
from pipeline.ingest.corpora.catalogue import CORPORA, GROUPS, Group
from pipeline.ingest.corpora.input_files import is_folder_entry
from pipeline.ingest.documents.records import Source

SHORT_SHARE = 0.1
"""A member or group that falls this far below its stated size is refused."""
_MOST_EXPANSION = 8
"""Upper bound on bytes of text per compressed byte; text compresses 3 to 5 times."""


def group_of(name: str, inputs: list[str], published: Collection[str] = ()) -> Group | None:
    """The group of that name, or the user's own if the inputs name corpora, or None.

    published: corpora whose files are in the lists of their publishers.

    The user's own group is given as MEMBER=PATH, or as a directory in which every folder is named
    for a corpus. Its priority is the catalogue's order, and its size is not checked.
    """
    if name in GROUPS or name in CORPORA:
        return GROUPS.get(name)
    before, equals, _ = (inputs or [""])[0].partition("=")
    by_member = (equals and before in CORPORA) or _is_by_member(inputs)
    if not by_member and (inputs or not published):
        return None
    return Group(members=tuple(CORPORA), published_bytes=0)


def member_inputs(name: str, group: Group, inputs: list[str]) -> dict[str, list[str]]:
    """Files of each member, in the group's order; an empty list for a member without any.

    inputs: `member=PATH`, followed by more paths of that member; or one directory with a folder or
    file named for each member. Raises ConfigError for anything else.
    """
    members = group.members
    if len(inputs) == 1 and Path(inputs[0]).is_dir():
        entries = entries_of(Path(inputs[0]), SkippedNames())  # others than members are, too
        return {
            member: [str(path) for path in entries if path.name.split(".")[0] == member]
            for member in members
        }
    found: dict[str, list[str]] = {member: [] for member in members}
    member = ""
    for text in inputs:
        before, equals, path = text.partition("=")
        if equals and before in members:  # a path may hold =, so only a member's name counts
            member = before
        elif equals and before in CORPORA:
            raise ConfigError(f"--input {text}: {name} is {', '.join(members)}; drop {before}")
        elif member:
            path = text  # more files of the member that was named last
        else:
            raise ConfigError(
                f"--input {text}: name its member, --input {members[0]}=PATH... "
                f"{members[1]}=PATH..., or give one directory with a folder for each member "
                f"({', '.join(members)})"
            )
        if not path:
            raise ConfigError(f"--input {text}: add a path after =")
        found[member].append(path)
    return found


def _is_by_member(inputs: list[str]) -> bool:
    """True if this is one directory in which every folder is named for a corpus."""
    if len(inputs) != 1 or not Path(inputs[0]).is_dir():
        return False
    names = {path.name for path in entries_of(Path(inputs[0]), SkippedNames())}
    return len(names) > 1 and names <= CORPORA.keys()  # one such folder is just a folder


def entries_of(directory: Path, skipped: SkippedNames) -> list[Path]:
    """Entries of a directory by name, without those that `skipped` gets."""
    paths = list[Path]()
    with os.scandir(directory) as entries:  # asks the file system nothing about each entry
        for entry in sorted(entries, key=lambda entry: entry.name):
            if is_skipped_name(entry.name, is_folder=is_folder_entry(entry)):
                skipped.add([entry.name])
            else:
                paths.append(Path(entry.path))
    return paths


def require_members(
    name: str, found: dict[str, list[str]], published: Collection[str] = ()
) -> None:
    """Raises ConfigError if a member of a group has no files."""
    missing = [member for member, paths in found.items() if not paths and member not in published]
    if missing:
        example = " ".join(f"{member}=PATH..." for member in missing)
        raise ConfigError(
            f"--corpus {name} needs files of {', '.join(missing)}: --input {example}, or fetch "
            f"the Hub's copies with --fetch (the page on corpora lists more sources)"
        )


def most_text(sources: list[Source]) -> dict[str, float]:
    """Upper bound on the bytes of text in each corpus's files."""
    found: dict[str, float] = {}
    for source in sources:
        for format, compression, _, size in source.kinds:
            # Other formats compress inside, so their bytes may also be several times as much text.
            packed = bool(compression) or format not in ("jsonl", "text", "doc")
            text = size * (_MOST_EXPANSION if packed else 1)
            found[source.corpus] = found.get(source.corpus, 0) + text
    return found


def require_size(name: str, text: dict[str, float], how: str = "") -> None:
    """Raises DataError if a group or one of its members has over a tenth less text than stated.

    text: bytes of each corpus; how: "at most" if these are bounds. Accepts any name that is not a
    group.
    """
    if name not in GROUPS:
        return
    stated = {member: CORPORA[member].published_bytes for member in GROUPS[name].members}
    stated["the group"] = GROUPS[name].published_bytes
    found = text | {"the group": sum(text.values())}
    short = [
        f"{member} has {how} {_size(found[member])} of {_size(size)}".replace("  ", " ")
        for member, size in stated.items()
        if found[member] < (1 - SHORT_SHARE) * size
    ]
    if short:
        raise DataError(
            f"{name} has too little text: {', '.join(short)}; give the rest, or accept it with "
            "--allow-short"
        )


def _size(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"
