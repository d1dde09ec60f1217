"""What the file system is asked where it hurts at 160 GB (55,000 shard files) on 1,024 ranks.

    python -m tests.benchmarks.bench_scale [--rows start mapping resume]

Counts calls for metadata, which a clock on a local disk does not show, on small cases of two sizes,
and scales their differences up: calls per file and per rank. Threads act as the ranks.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from pipeline.cluster.ranks import RankGroup
from pipeline.cluster.shared_shards import open_shards
from pipeline.data.shards.manifest import TRAIN
from pipeline.loading.dataset import Dataset
from pipeline.training.checkpoints.fragment_files import divide, write_fragments
from pipeline.training.checkpoints.publish import publish, temporary_directory
from pipeline.training.checkpoints.read import CHECKPOINTS, State, open_latest
from pipeline.training.optimizer.optimizer import FragmentState
from tests.benchmarks.file_system_calls import METADATA, FileSystemCalls, counted, metadata
from tests.pipeline.loading.conftest import prepare_directory
from tests.pipeline.training.toy_checkpoints import on_ranks

FILES, RANKS = 55_000, 1024
"""Shard files of 160 GB with ten masks, and ranks, of the run that the counts are scaled up to."""
MASKS = 10
ROWS_PER_SHARD = 8
PARAMETERS, ELEMENTS = 24, 960


@dataclass(frozen=True)
class Row:
    """One row of the table."""

    what: str
    calls: Counter[str]
    """Of the smallest case."""
    each: str
    """Calls per file or per rank."""
    at_scale: float
    """Calls at FILES and RANKS, over all ranks."""


def start(folder: Path) -> Row:
    """Every rank opens the training split of the shards."""

    def opened(shards: int, ranks: int) -> Counter[str]:
        directory = shards_of(folder, shards)
        return counted(lambda: on_ranks(ranks, lambda own: open_shards([directory], (TRAIN,), own)))

    small, more, wide = opened(10, 4), opened(20, 4), opened(10, 8)
    per_file = (metadata(more) - metadata(small)) / (10 * (1 + MASKS))
    per_rank = (metadata(wide) - metadata(small)) / 4
    each = f"{per_file:.2f} per file, {per_rank:.2f} per rank"
    return Row("start or requeue", small, each, FILES * per_file + RANKS * per_rank)


def mapping(folder: Path) -> Row:
    """One rank maps the rows and masks of each shard for the first time."""
    dataset = Dataset.open(shards_of(folder, 20))
    rows = ROWS_PER_SHARD * np.arange(20)
    calls = counted(lambda: [dataset.records(rows[[shard]], 0) for shard in range(20)])
    per_file = metadata(calls) / 40
    files = FILES * 2 / (1 + MASKS)  # rows and one mask of each shard, in the first pass
    return Row("mapping in a pass", calls, f"{per_file:.2f} per file", RANKS * files * per_file)


def resume(folder: Path) -> Row:
    """Every rank opens the latest checkpoint and reads its share of it."""

    def resumed(ranks: int) -> Counter[str]:
        run = folder / f"run-{ranks}"
        save(run, ranks)
        return counted(lambda: on_ranks(ranks, partial(read_share, run)))

    sizes = (4, 8, 16)
    calls = [resumed(ranks) for ranks in sizes]
    # what each rank asks of the others' files grows with the square of the ranks
    square, single, _ = law = np.polyfit(sizes, [metadata(found) for found in calls], 2).round(3)
    each = f"{single:.2f} + {square + 0.0:.2f} x ranks per rank"
    return Row("resume", calls[0], each, float(np.polyval(law, RANKS)))


def shards_of(folder: Path, shards: int) -> Path:
    """A directory of so many small shards with ten masks each."""
    directory = folder / f"shards-{shards}"
    if not directory.exists():
        prepare_directory(directory, (ROWS_PER_SHARD,) * shards, duplicates=MASKS)
    return directory


def fragments() -> list[FragmentState]:
    """Of all parameters, whole."""
    return [
        FragmentState(f"layer.{number}", 0, *(torch.zeros(ELEMENTS) for _ in range(3)))
        for number in range(PARAMETERS)
    ]


def save(run: Path, ranks: int) -> None:
    """Publish a checkpoint that so many ranks wrote."""
    temporary = temporary_directory(run / CHECKPOINTS, 1)
    temporary.mkdir(parents=True)
    for rank in range(ranks):
        write_fragments(temporary, rank, divide(fragments(), rank, ranks))
    state = State(
        step=1, readings=(), updates=1, counters={}, left_out=(), recent_losses=(), run={},
        fingerprints={"tokenizer": ""}, world_size=ranks, stage=1,
        shapes={part.name: (ELEMENTS,) for part in fragments()}, versions={}, device="",
    )  # fmt: skip
    publish(temporary, state, keep=1, keep_every=0)


def read_share(run: Path, ranks: RankGroup) -> None:
    """Resume one rank."""
    checkpoint, _ = open_latest(run, ranks)
    assert checkpoint is not None
    share = divide(fragments(), ranks.rank, ranks.world_size)
    ranges = ((part.name, part.start, part.start + part.weight.numel()) for part in share)
    assert all(len(found) == 3 for found in checkpoint.read_each(ranges))


ROWS: dict[str, Callable[[Path], Row]] = {"start": start, "mapping": mapping, "resume": resume}
"""Each makes what it needs in a folder, in which calls count."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    names = parser.parse_args().rows
    if "CALLS_BELOW" not in os.environ:
        with tempfile.TemporaryDirectory() as place:
            work = Path(place)
            (work / "counted").mkdir()
            calls = FileSystemCalls.below(work / "counted", work / "counter")
            again = [sys.executable, "-m", "tests.benchmarks.bench_scale", "--rows", *names]
            sys.exit(subprocess.run(again, env=calls.environment()).returncode)
    print(f"| calls for metadata | each | at {FILES:,} files, {RANKS:,} ranks | a small case |")
    print("| --- | --- | ---: | --- |")
    for name in names:
        row = ROWS[name](Path(os.environ["CALLS_BELOW"]))
        kinds = ", ".join(f"{row.calls[kind]} {kind}" for kind in METADATA if row.calls[kind])
        print(f"| {row.what} | {row.each} | {row.at_scale:,.0f} | {kinds} |", flush=True)


if __name__ == "__main__":
    main()
