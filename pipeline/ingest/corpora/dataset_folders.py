"""Folders that Hugging Face's `datasets` wrote -> the files of their train split.

    state.json                `save_to_disk`: the split's files; in a DatasetDict, whose folder
                              has dataset_dict.json, the folder's name is the split
    SPLIT-00000-of-00002.*    `push_to_hub`, if one of the splits is train
    NAME-SPLIT.arrow          a builder's cache, beside its dataset_info.json

Files of these folders that belong to no split are skipped, such as cache-*.arrow of `map`, which
holds the same documents again. So are other splits than train, which are there to be evaluated on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.base.errors import DataError

TRAIN = "train"
DICT, INFO, STATE = "dataset_dict.json", "dataset_info.json", "state.json"
DESCRIPTIONS = {DICT, INFO, "dataset_infos.json"}
"""Files that `datasets` writes next to its own, and never documents."""
_MOST_BYTES = 1 << 24  # read of a description, at most
_NAMED = 3
"""At most this many skipped files are listed by name."""
_HELD_OUT = {"test", "validation", "valid", "dev", "eval"}
_SHARD = re.compile(r"(?:.+-)?(\w+(?:\.\w+)*)-\d{5}-of-\d{5}\b.*", re.ASCII)
_CACHED = re.compile(r"(?!cache-).+-(\w+(?:\.\w+)*)\.(?:arrow|parquet)", re.ASCII)


@dataclass(slots=True)
class Dataset:
    """The files of a folder by split."""

    folder: Path
    splits: dict[str, list[Path]] = field(default_factory=dict)
    places: dict[str, Path] = field(default_factory=dict)
    """A path or glob that names the files of each split."""
    unnamed: list[Path] = field(default_factory=list)
    """Files that are in no split."""
    descriptions: list[Path] = field(default_factory=list)

    def add(self, split: str, files: Iterable[Path], place: Path) -> None:
        """Add files of a split; place: a path or glob that names them."""
        self.splits.setdefault(split, []).extend(files)
        self.places[split] = place

    def omitted(self) -> set[Path]:
        """The files that are not read. Raises DataError if there is no split train."""
        if self.splits and TRAIN not in self.splits:
            named = " or ".join(map(str, self.places.values()))
            raise DataError(
                f"{self.folder} is a dataset without a split train, only {', '.join(self.splits)}; "
                f"name the one to read: --input {named}"
            )
        others = [files for split, files in self.splits.items() if split != TRAIN]
        return {*self.unnamed, *self.descriptions}.union(*others)

    def note(self, read: set[Path]) -> str:
        """A line on what is not read, and how to name it; empty if all is read.

        read: all files that are, as some of the dataset's may be inputs of their own.
        """
        left_out = [
            f"split {split} ({self.places[split]})"
            for split, files in self.splits.items()
            if not read.issuperset(files)
        ]
        if unnamed := [file.name for file in self.unnamed if file not in read]:
            names = ", ".join(unnamed[:_NAMED]) + (", ..." if len(unnamed) > _NAMED else "")
            left_out.append(f"{len(unnamed):,} file(s) in no split ({names})")
        if not left_out:
            return ""
        return (
            f"note: {self.folder} is a dataset, of which only the split train is read; skipped: "
            f"{', '.join(left_out)}; name one with --input to read it as well"
        )


def find_datasets(given: str, paths: Callable[[], Iterable[str]]) -> list[Dataset]:
    """The datasets among the files below a given directory.

    paths: gives the files' paths one by one, as there can be a million.
    Raises DataError for one that is saved with indices.
    """
    folders: dict[Path, dict[str, Path]] = {}
    for text in paths():
        path = Path(text)
        if path.name in DESCRIPTIONS or path.name == STATE or _SHARD.fullmatch(path.name):
            folders.setdefault(path.parent, {})
    for path in map(Path, paths()) if folders else ():
        if path.parent in folders:
            folders[path.parent][path.name] = path
    datasets: dict[Path, Dataset] = {}
    for folder, names in sorted(folders.items()):
        saved = _saved(names)
        # splits that were saved side by side are one dataset, unless the user names one of them
        home = folder.parent if saved and folder != Path(given) else folder
        dataset = datasets.setdefault(home, Dataset(home))
        if saved:
            split, files = saved
            if DICT in folders.get(home, {}):
                split = folder.name
            dataset.add(TRAIN if folder == home else split, files, folder)
        else:
            for place, (split, files) in _named_splits(folder, names).items():
                dataset.add(split, files, place)
        in_a_split = set[Path]().union(*dataset.splits.values())
        for name, path in names.items():
            if name in DESCRIPTIONS or (saved and name == STATE):
                dataset.descriptions.append(path)
            elif dataset.splits and path not in in_a_split:
                dataset.unnamed.append(path)
    return [*datasets.values()]


def _saved(names: dict[str, Path]) -> tuple[str, list[Path]] | None:
    """The split and files of the dataset that a folder holds; None if its state is another's."""
    if STATE not in names:
        return None
    try:
        with names[STATE].open("rb") as file:
            state: dict[str, Any] = json.loads(file.read(_MOST_BYTES))
        listed = {str(entry["filename"]) for entry in state["_data_files"]}
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return None
    if state.get("_indices_data_files"):
        raise DataError(
            f"{names[STATE].parent} is a dataset saved with the indices of its rows; load it with "
            "`datasets`, call flatten_indices() and save it again"
        )
    # a part of train is written as train[:10%]; what was made in memory has no split
    split = str(state.get("_split") or TRAIN).partition("[")[0]
    return split, [path for name, path in names.items() if name in listed]


def _named_splits(folder: Path, names: dict[str, Path]) -> dict[Path, tuple[str, list[Path]]]:
    """Splits and their files, by a glob that names them, as the files' names tell.

    Empty if these are other shards' names by chance.
    """
    splits: dict[Path, tuple[str, list[Path]]] = {}
    for name, path in names.items():
        if match := _SHARD.fullmatch(name) or (INFO in names and _CACHED.fullmatch(name)):
            place = folder / f"{name[: match.end(1)]}{'-' * (match.re is _SHARD)}*"
            splits.setdefault(place, (match[1], []))[1].append(path)
    known = {split for split, _ in splits.values()}
    is_dataset = TRAIN in known or (INFO in names and not known.isdisjoint(_HELD_OUT))
    return splits if is_dataset else {}
