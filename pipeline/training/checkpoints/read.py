"""RUN/checkpoints -> the state of a run, for any ranks and ZeRO stage; saver.py writes it.

    step-00000100/                     one checkpoint: every rank's two files (fragment_files.py)
    step-00000100/index.json           all files and tensors of the ranks
    step-00000100/state.json           written last: step, settings, shapes, hash of index.json
    latest                             the name of the newest one
    .step-00000200.tmp/                a save in progress, or what a crash left of one
    .step-00000100.replaced/           an older checkpoint of a step while it is being replaced

`Checkpoint.read` returns any range of any parameter, whatever ranks and ZeRO stage wrote it. Only
rank 0 chooses the checkpoint and verifies all of it once. The other ranks open the one it chose:
state.json, index.json, and the files that hold their share. A function with `ranks` has the same
outcome on all of them, including the same CheckpointError.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from pipeline.base.errors import CheckpointError
from pipeline.base.typed_json import build, require
from pipeline.cluster.ranks import RankGroup, agreed
from pipeline.costs.disk import PARAMETER_BYTES
from pipeline.loading.dataset import ExcludedShards
from pipeline.training.checkpoints.data_position import Readings
from pipeline.training.checkpoints.fragment_files import (
    KINDS,
    OpenFiles,
    StoredFile,
    StoredTensor,
    check_file,
    in_order,
    read_merged,
    read_range,
    unseal,
)

FORMAT = 4  # state.json holds the hash of index.json, not the list of all files
CHECKPOINTS = "checkpoints"
LATEST = "latest"
STATE = "state.json"
STEP_NAME = re.compile(r"step-(\d{8,})")  # nine digits from step 100,000,000 on


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What a run needs to resume from a checkpoint, besides tensors; stored in state.json."""

    step: int
    readings: Readings
    """The position in each order of samples."""
    updates: int
    """Updates of the optimizer: `step` minus those skipped for a gradient that was not finite."""
    counters: dict[str, int]
    """The other numbers that the loop counts across a resume."""
    left_out: ExcludedShards
    """Shards that the run excludes."""
    recent_losses: tuple[float, ...]
    """Losses to compare the next ones with, see `loss_watch`; empty if spikes are off."""
    run: dict[str, Any]
    """All settings."""
    fingerprints: dict[str, str]
    """Fingerprints of the data and the tokenizer."""
    world_size: int
    stage: int
    """ZeRO stage of the run that wrote it; readers do not need it."""
    shapes: dict[str, tuple[int, ...]]
    """The shape of every logical parameter."""
    versions: dict[str, str]
    device: str
    """The device that computed the weights, as in run.json."""

    @property
    def sequences(self) -> int:
        """Sequences read so far."""
        return sum(reading.sequences for reading in self.readings)

    @property
    def tensor_bytes(self) -> int:
        """Size of the weights and both moments on disk."""
        return PARAMETER_BYTES * sum(math.prod(shape) for shape in self.shapes.values())


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A published checkpoint, open for reading."""

    directory: Path
    state: State
    files: tuple[StoredFile, ...]
    tensors: dict[tuple[str, str], list[StoredTensor]]
    """(logical parameter, kind) -> its fragments in order."""
    trusted: set[tuple[str, int]] = field(default_factory=set)
    """(file, byte) of the fragments whose hash has been checked."""

    def read(
        self, name: str, start: int, stop: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Weights, exp_avg, exp_avg_sq: fp32 elements [start, stop) of a logical parameter."""
        (found,) = self.read_each([(name, start, stop)])
        return found

    def read_each(
        self, ranges: Iterable[tuple[str, int, int]]
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """As `read`, of several ranges, one at a time; opens each file once if they are ordered."""
        with OpenFiles(self.directory) as files:
            for part in ranges:
                weight, exp_avg, exp_avg_sq = (self._read(files, kind, *part) for kind in KINDS)
                yield weight, exp_avg, exp_avg_sq

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Every logical parameter's name and whole fp32 weight, one at a time."""
        with OpenFiles(self.directory) as files:
            for name, shape in self.state.shapes.items():
                yield name, self._read(files, "weight", name, 0, math.prod(shape)).view(shape)

    def _read(self, files: OpenFiles, kind: str, name: str, start: int, stop: int) -> torch.Tensor:
        if name not in self.state.shapes:
            raise CheckpointError(f"{self.directory} has no parameter {name}")
        numel = math.prod(self.state.shapes[name])
        if not 0 <= start <= stop <= numel:
            raise CheckpointError(
                f"{self.directory} has {numel} elements of {name}, not [{start}, {stop})"
            )
        return read_range(files, self.tensors[name, kind], start, stop, self.trusted)


def step_name(step: int) -> str:
    """The name of a step's directory."""
    return f"step-{step:08d}"


def choose(run_directory: Path) -> tuple[Path | None, list[str]]:
    """The checkpoint to resume from, verified to the last byte, and messages for the user.

    It is the one that `latest` names, else the nearest before it, else the nearest after it; None
    if the run has none yet. Raises CheckpointError, with the reason for each, if none is usable.
    """
    candidates, messages = _candidates(run_directory / CHECKPOINTS)
    for directory in candidates:
        try:
            verify(directory)
        except CheckpointError as error:
            messages.append(str(error))
        else:
            if directory != candidates[0]:
                messages.append(f"resuming from {directory} instead")
            return directory, messages
    # A new run. A `latest` without any checkpoint is damage instead.
    if not candidates and not messages:
        return None, []
    raise CheckpointError(
        f"{run_directory} has no checkpoint that can be used: {'; '.join(messages)}; "
        "copy a good one there, or start again in another directory"
    )


def choose_from(path: Path) -> tuple[Path, list[str]]:
    """The checkpoint that RUN, RUN/100, RUN/step-100 or the path of a checkpoint stands for.

    For RUN as `choose`. Raises CheckpointError if the user names one checkpoint and it is damaged.
    """
    if (path / STATE).exists() or path.parent.name == CHECKPOINTS:
        directory = path
    # A run may be called 100: a directory of that name is one.
    elif (step := re.fullmatch(r"(?:step-)?(\d+)", path.name)) and not path.is_dir():
        directory = path.parent / CHECKPOINTS / step_name(int(step[1]))
    else:
        found, messages = choose(path)
        if found is None:
            raise CheckpointError(f"{path} has no checkpoint; give RUN or RUN/STEP of a saved run")
        return found, messages
    if not directory.is_dir():
        others = ", ".join(str(step) for step in saved_steps(directory.parent)) or "none"
        raise CheckpointError(f"there is no checkpoint {directory}; saved steps: {others}")
    verify(directory)
    return directory, []


def open_latest(run_directory: Path, ranks: RankGroup) -> tuple[Checkpoint | None, list[str]]:
    """Open on every rank what `choose` finds on rank 0. Collective."""
    return _open_chosen(lambda: choose(run_directory), ranks)


def open_from(path: Path, ranks: RankGroup) -> tuple[Checkpoint, list[str]]:
    """Open on every rank what `choose_from` finds on rank 0. Collective."""
    checkpoint, messages = _open_chosen(lambda: choose_from(path), ranks)
    assert checkpoint is not None
    return checkpoint, messages


def open_checkpoint(directory: Path) -> Checkpoint:
    """Open one checkpoint. Checks the content of its files as it is read."""
    path = directory / STATE
    values = unseal(path)
    # First: another format may have other entries, which would be called damage.
    if values.pop("format", None) != FORMAT:
        raise CheckpointError(f"{path} is not of format {FORMAT}; use the version that wrote it")
    try:
        stored = build(StoredFile, values.pop("index", None))
        state = build(State, values)
        require(state.fingerprints, {"tokenizer": str}, "fingerprints")
    except ValueError as error:
        raise CheckpointError(
            f"{path} has other entries than this version writes: {error}"
        ) from error
    index = read_merged(directory, stored)
    try:
        # Missing elements are found here, before a rank reads the first one.
        ordered = in_order(index.tensors, state.shapes)
    except CheckpointError as error:
        raise CheckpointError(f"{directory}: {error}") from error
    return Checkpoint(directory, state, index.files, ordered)


def verify(directory: Path) -> None:
    """Raises CheckpointError if any byte of a checkpoint has changed."""
    for file in open_checkpoint(directory).files:
        check_file(directory, file, content=True)


def _candidates(checkpoints: Path) -> tuple[list[Path], list[str]]:
    """Published directories in the order to try them, and messages about unexpected ones."""
    steps = saved_steps(checkpoints)
    newest_first = [steps[step] for step in sorted(steps, reverse=True)]
    latest = checkpoints / LATEST
    try:
        # `replace`: bytes that are not text are damage as well, not a UnicodeDecodeError.
        name = latest.read_bytes().decode(errors="replace").removesuffix("\n")
    except FileNotFoundError:
        return newest_first, [f"{latest} is missing"] if steps else []
    except OSError as error:
        return newest_first, [f"cannot read {latest}: {error.strerror}"]
    if checkpoints / name not in newest_first:
        return newest_first, [f"{latest} names {name!r}, which is not there"]
    place = newest_first.index(checkpoints / name)
    # Published by a job that was killed before it wrote `latest`: tried last, the nearest first.
    newer = newest_first[:place][::-1]
    messages = [f"{path} is newer than {latest}, which names {name}" for path in newer]
    return newest_first[place:] + newer, messages


def saved_steps(checkpoints: Path) -> dict[int, Path]:
    """Published directories by step, ascending."""
    try:
        found = {path.name: path for path in checkpoints.iterdir()}
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise CheckpointError(f"cannot read {checkpoints}: {error.strerror}") from error
    steps = {int(m[1]): found[name] for name in found if (m := STEP_NAME.fullmatch(name))}
    return dict(sorted(steps.items()))


def _open_chosen(
    chosen: Callable[[], tuple[Path | None, list[str]]], ranks: RankGroup
) -> tuple[Checkpoint | None, list[str]]:
    """Open on every rank what `chosen` finds on rank 0."""
    found: tuple[str, list[str]] = "", []
    with agreed(ranks, CheckpointError):
        if ranks.rank == 0:
            path, messages = chosen()
            found = str(path or ""), messages
    # Only rank 0's view counts: a file server may show the others an older listing.
    directory, messages = json.loads(ranks.from_first(json.dumps(found).encode()))
    if not directory:
        return None, messages
    with agreed(ranks, CheckpointError):
        checkpoint = open_checkpoint(Path(directory))
    return checkpoint, messages
