"""What a path holds that is neither shards, a tokenizer nor text, in words. Reads only JSON."""

from __future__ import annotations

from pathlib import Path

from pipeline.base.errors import ConfigError
from pipeline.base.typed_json import read_object
from pipeline.data.shards.manifest import MANIFEST
from pipeline.execution.work_directory import WORK

_MARKS: dict[str, tuple[str, ...]] = {
    "run.json": (), "state.json": ("step", "run"), "config.json": ("model_type",),
    "finetune.json": (),
}  # fmt: skip
"""File -> the keys that it must have, as folders of other programs have files of that name."""
_KINDS = {
    "run.json": "a run; tenfold status shows how far it is, tenfold report what it did",
    "state.json": "a checkpoint of a run; tenfold export takes the run and --step",
    "config.json": "a model for transformers; tenfold evaluate and finetune score it",
    "finetune.json": "a fine-tuning, whose scores are in scores.json once it is done",
}
_INSIDE = ("run.json", "finetune.json", MANIFEST, WORK, "word_starts.bin")
"""Files of runs, fine-tunings, shards and tokenizers: a folder of such folders is named as that."""


def kind_of(path: Path) -> str:
    """What a path holds; empty if it is shards, a tokenizer, text or something else.

    Raises ConfigError if nothing is there.
    """
    if not path.exists():
        raise ConfigError(f"{path}: no such directory or file; give one that a command has written")
    if not path.is_dir():
        return ""
    names = {file.name for file in path.iterdir()}
    if not names:
        raise ConfigError(
            f"{path} is an empty folder; give one that a command has written, or text"
        )
    for mark, keys in _MARKS.items():
        if mark in names and (not keys or _has(path / mark, keys)):
            return _KINDS[mark]
    if WORK in names or any((path / name).is_file() for name in names - {"latest"}):
        return ""
    inside = [name for name in sorted(names) if any((path / name / m).exists() for m in _INSIDE)]
    return f"a folder of {len(inside)} results; give one, e.g. {path / inside[0]}" if inside else ""


def _has(file: Path, keys: tuple[str, ...]) -> bool:
    try:
        return {*keys} <= read_object(file).keys()
    except (ValueError, OSError):
        return False
