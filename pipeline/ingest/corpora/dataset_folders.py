"""Folders of Hugging Face datasets -> the files of their train split, by their own descriptions.

    dataset_dict.json         DatasetDict.save_to_disk: the splits, a folder each
    state.json                Dataset.save_to_disk: the split, and its files
    dataset_info.json         a builder's cache: the splits, each as NAME-SPLIT.arrow or in shards
    README.md with configs    a repository of the Hub: the paths of each split's files
    SPLIT-00000-of-00002.*    one without, by the names of `push_to_hub`, if a split is train

A file that no description names is skipped, such as cache-*.arrow of `map`, which holds the same
documents again. So are other splits than train, which are there to be evaluated on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.base.errors import DataError

TRAIN = "train"
DICT, INFO, STATE, CARD = "dataset_dict.json", "dataset_info.json", "state.json", "README.md"
JSON_DESCRIPTIONS = {DICT, INFO, "dataset_infos.json"}
"""Files that `datasets` writes next to its own, and never documents."""
DESCRIPTIONS = JSON_DESCRIPTIONS | {STATE, CARD}
"""The same, and names that other files can have in a folder that is not a dataset."""

_MOST_BYTES = 1 << 24  # read of a description, at most
_NAMED = 3
"""At most this many skipped files are listed by name."""

_SHARD = re.compile(r"(\w+(?:\.\w+)*)-\d{5}-of-\d{5}\b.*", re.ASCII)
# How `datasets` writes a builder's name, MyDataset, in the names of its files, my_dataset.
_WORDS = (re.compile(r"([A-Z]+)([A-Z][a-z])"), re.compile(r"([a-z\d])([A-Z])"))
_NAME_KEYS = ("dataset_name", "builder_name")  # the second before version 2.14 of `datasets`
# A line of a card's header: "- split: test", "path: data/*.json" or "- data/1.json".
_ITEM = re.compile(r"^ *((?:- +)*)(?:(\w+):(?: +|$))?(?!#)(.*?) *$", re.MULTILINE)


@dataclass(slots=True)
class DatasetFolder:
    """A folder of splits."""

    folder: Path
    splits: dict[str, list[Path]] = field(default_factory=dict)
    """Files by split."""
    places: dict[str, str] = field(default_factory=dict)
    """Paths or globs that name a split's files as inputs, by split."""
    unnamed: list[Path] = field(default_factory=list)
    """Files that no description names."""
    about: list[Path] = field(default_factory=list)
    """The descriptions."""

    def add(self, split: str, files: Iterable[Path], place: str) -> None:
        """Add files of a split; place: a path or glob that names them."""
        if not (data := [file for file in files if file.name not in DESCRIPTIONS]):
            return
        self.splits.setdefault(split, []).extend(data)
        self.places[split] = f"{self.places[split]} {place}" if split in self.places else place

    def close(self, others: Iterable[Path]) -> None:
        """Add those of the files that are in no split."""
        named = set[Path]().union(*self.splits.values())
        for file in others:
            if file.name in DESCRIPTIONS:
                self.about.append(file)
            elif file not in named:
                self.unnamed.append(file)

    def train(self) -> set[Path]:
        """The files that are read. Raises DataError if there is no split train."""
        if TRAIN not in self.splits:
            raise DataError(
                f"{self.folder} is a dataset without a split train, only {', '.join(self.splits)}; "
                f"name the one to read: --input {' or '.join(self.places.values())}"
            )
        return {*self.splits[TRAIN]}

    def skipped(self) -> set[Path]:
        """The files that are not read; not those that describe it."""
        return {*self.unnamed}.union(*self.splits.values()) - self.train()

    def note(self, read: set[Path]) -> str:
        """A line on what is not read, and how to name it; empty if all is read.

        read: all files that are, as some of the dataset's may be inputs of their own.
        """
        found = [
            f"split {split} ({self.places[split]})"
            for split, files in self.splits.items()
            if not read.issuperset(files)
        ]
        if unnamed := [file.name for file in self.unnamed if file not in read]:
            more = ", ..." if len(unnamed) > _NAMED else ""
            names = ", ".join(unnamed[:_NAMED]) + more
            found.append(f"{len(unnamed):,} file(s) that no description names ({names})")
        if not found:
            return ""
        return (
            f"note: {self.folder} is a dataset, of which only the split train is read; skipped: "
            f"{', '.join(found)}; name one with --input to read it as well"
        )


def is_of_dataset(name: str) -> bool:
    """True if a file of this name describes a dataset, or may be a shard without a description."""
    return name in DESCRIPTIONS or _SHARD.fullmatch(name) is not None


def find_datasets(top: Path, paths: list[Path]) -> list[DatasetFolder]:
    """The datasets among the files below a given directory; a file belongs to one at most.

    Raises DataError for one that is saved with indices.
    """
    folders: dict[Path, dict[str, Path]] = {}
    for path in paths:
        folders.setdefault(path.parent, {})[path.name] = path
    found: dict[Path, DatasetFolder] = {}
    taken: set[Path] = set()
    # Outer folders first: a card or a dictionary takes the files of the folders below it, too.
    for folder in sorted(folders, key=lambda folder: (len(folder.parts), folder)):
        names = {name: path for name, path in folders[folder].items() if path not in taken}
        whole = DatasetFolder(folder)  # and what is below it
        if (DICT in names and _add_dict(whole, names[DICT], folders)) or (
            CARD in names and _add_repository(whole, names[CARD], {*paths})
        ):
            below = [path for path in paths if path.is_relative_to(folder) and path not in taken]
            whole.close(below)
            found[folder] = whole
            taken.update(below)
        elif STATE in names and (saved := _saved(names)):
            split, files = saved
            # Splits that were saved side by side are one dataset, unless the user names one of
            # them.
            home = folder if folder == top else folder.parent
            dataset = found.setdefault(home, DatasetFolder(home))
            dataset.add(TRAIN if folder == top else split, files, str(folder))
            dataset.close(names.values())
        elif INFO in names and _add_cache(whole, names):
            whole.close(names.values())
            found[folder] = whole
        elif _add_shards(whole, names):
            found[folder] = whole
    return [*found.values()]


def _add_dict(dataset: DatasetFolder, path: Path, folders: dict[Path, dict[str, Path]]) -> bool:
    """The splits of a DatasetDict, if the file is its description."""
    splits = _content(path).get("splits")
    if not isinstance(splits, list) or not splits:
        return False
    for split in map(str, splits):
        names = folders.get(dataset.folder / split, {})
        _, files = _saved(names) or ("", list(names.values()))
        dataset.add(split, files, str(dataset.folder / split))
    return bool(dataset.splits)


def _saved(names: dict[str, Path]) -> tuple[str, list[Path]] | None:
    """The split and files of the dataset that a folder holds; None if its state is another's."""
    if STATE not in names:
        return None
    state = _content(names[STATE])
    try:
        listed = {str(file["filename"]) for file in state["_data_files"]}
    except (KeyError, TypeError):
        return None
    if state.get("_indices_data_files"):
        raise DataError(
            f"{names[STATE].parent} is a dataset saved with the indices of its rows; load it with "
            "`datasets`, call flatten_indices() and save it again"
        )
    # A part of train is written as train[:10%]; what was made in memory has no split.
    split = str(state.get("_split") or TRAIN).partition("[")[0]
    return split, [path for name, path in names.items() if name in listed]


def _add_cache(dataset: DatasetFolder, names: dict[str, Path]) -> bool:
    """The splits of a builder's cache, if the folder holds them."""
    about = _content(names[INFO])
    splits = about.get("splits")
    for split, of_split in splits.items() if isinstance(splits, dict) else ():
        known = [of_split] if isinstance(of_split, dict) else []
        name = next((it[key] for it in (*known, about) for key in _NAME_KEYS if it.get(key)), "")
        for words in _WORDS:
            name = words.sub(r"\1_\2", str(name))
        prefix = f"{name.lower()}-{split}"
        pattern = re.compile(rf"{re.escape(prefix)}(-\d{{5}}-of-\d{{5}})?\.(arrow|parquet)")
        files = [path for name, path in names.items() if pattern.fullmatch(name)]
        dataset.add(str(split), files, str(dataset.folder / f"{prefix}*"))
    return bool(dataset.splits)


def _add_shards(dataset: DatasetFolder, names: dict[str, Path]) -> bool:
    """The splits of files that are named as the Hub's shards, if one is train."""
    for name, path in names.items():
        if found := _SHARD.fullmatch(name):
            split = found[1]
            files = dataset.splits.setdefault(split, [])
            files.append(path)
            dataset.places[split] = str(dataset.folder / f"{split}-*")
    return TRAIN in dataset.splits  # else the names are other shards' by chance


# --- the card of a repository


def _add_repository(dataset: DatasetFolder, card: Path, paths: set[Path]) -> bool:
    """The splits that the header of a README names, if their files are there."""
    for split, pattern in _named_paths(card):
        try:
            files = paths.intersection(dataset.folder.glob(pattern))
        except (ValueError, NotImplementedError):  # an absolute path, or a URL
            continue
        dataset.add(split, sorted(files), str(dataset.folder / pattern))
    return bool(dataset.splits)


def _named_paths(card: Path) -> Iterator[tuple[str, str]]:
    """Splits and the globs of their files, from the YAML that `push_to_hub` and people write.

    configs:
    - config_name: default
      data_files:
      - split: train
        path: data/train-*
    """
    try:
        with card.open(encoding="utf-8") as file:
            start, header, *_ = [*file.read(_MOST_BYTES).split("---", 2), ""]
    except (OSError, UnicodeDecodeError):
        return
    if start.strip():
        return
    _, _, configs = f"\n{header}".partition("\nconfigs:")
    configs, *_ = re.split(r"\n(?=\w)", configs)  # up to the header's next key
    split, folder, key, paths = TRAIN, "", "", list[str]()
    for dash, name, value in _ITEM.findall(f"{configs}\n- end:\n"):
        if dash and name:  # another item, of either list
            yield from ((split, folder + path) for path in paths)
            split, paths = TRAIN, []
        if name in ("config_name", "end"):
            folder = ""
        key, value = name or key, value.strip("\"'")
        if key == "data_dir":
            folder = f"{value.strip('/')}/"
        elif key == "split":
            split = value
        elif key in ("data_files", "path") and value:
            paths.append(value)


def _content(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty if it is not one."""
    try:
        with path.open("rb") as file:
            content = json.loads(file.read(_MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
