"""What the file system is asked where it hurts at 160 GB (7,000 shard files) on 1,024 ranks.

    python -m tests.benchmarks.bench_scale

Counts calls for metadata, which a clock on a local disk does not show, on small cases of two sizes,
and scales their differences up: calls per split, file and rank. Threads act as the ranks. Of a
tokenizer's sample, bytes are counted.
"""

import io
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import torch

from pipeline.cluster.ranks import RankGroup
from pipeline.cluster.shared_shards import open_shards
from pipeline.data.preparation import stages
from pipeline.data.preparation.corpus_files import find_sources
from pipeline.data.preparation.prepare_arguments import prepare_arguments
from pipeline.data.preparation.stages import TextSizes, make_shards
from pipeline.data.selection.sample import stored_sample
from pipeline.data.shards.manifest import TRAIN
from pipeline.data.shards.shard_assembly import SHARD_BYTES
from pipeline.data.text.text_tasks import SPLIT_BYTES
from pipeline.execution.workers import local_executor
from pipeline.ingest.corpora.sources import corpus_sources
from pipeline.loading.dataset import Dataset
from pipeline.released.choice import read_recipe
from pipeline.training.checkpoints.fragment_files import divide, write_fragments
from pipeline.training.checkpoints.publish import publish, temporary_directory
from pipeline.training.checkpoints.read import CHECKPOINTS, open_latest
from pipeline.training.optimizer.optimizer import FragmentState
from tests.benchmarks.file_system_calls import METADATA, FileSystemCalls, counted, metadata
from tests.pipeline.loading.conftest import prepare_directory
from tests.pipeline.training import toy_checkpoints
from tests.pipeline.training.toy_checkpoints import on_ranks

SPLITS, FILES, RANKS = 5_000, 7_000, 1024
"""Splits and shard files of 160 GB with ten masks, and ranks, that the counts are scaled up to."""
TOGETHER = SHARD_BYTES // SPLIT_BYTES
"""Splits of a shard."""
SAMPLE_BYTES = 1 << 30
SHARE_BYTES = SAMPLE_BYTES // SPLITS
"""What a split gives to the sample of a tokenizer."""
SMALLER, DOCUMENTS = 4096, 20
"""Splits of publishing are so many times smaller, and have so many documents."""
MASKS = 10
ROWS_PER_SHARD = 8
PARAMETERS, ELEMENTS = 24, 960


class Row(NamedTuple):
    """One row of the table; its small case is made in a folder, in which calls count."""

    what: str
    calls: Counter[str]
    """Of the smallest case."""
    each: str
    """Calls per split, file or rank."""
    at_scale: float
    """Calls at SPLITS, FILES and RANKS, over all ranks."""


class _InterruptedError(Exception):
    """All splits are finished, and none is published."""


def publish_splits(folder: Path) -> Row:
    """The last process finds all splits finished, checks and publishes them."""

    def prepare(splits: int) -> None:
        corpus, shards = folder / f"{splits}.jsonl", folder / f"published-{splits}"
        # so many that each split has some to train on and some that are held out, as at 160 GB
        lines = DOCUMENTS * splits
        corpus.write_text("".join(line_of(number, 400) for number in range(lines)))
        given = ("--corpus", "mine", "--input", corpus, "--recipe", "roberta_tiny")
        given = (*given, "--set", "data.vocab_size=300", "--output", shards)
        given = (*given, "--set", "data.validation_fraction=0.4")
        arguments = prepare_arguments([str(part) for part in given])
        run = read_recipe(arguments.recipe, arguments.set).run
        found = find_sources(arguments, run.data, allow_short=False)
        small = SPLIT_BYTES // SMALLER
        sizes = TextSizes(split=small, shard=TOGETHER * small)
        make_shards(arguments, run, found, local_executor(1), sizes=sizes)

    def published(splits: int) -> Counter[str]:
        with (
            suppress(_InterruptedError),
            patch.object(stages, "publish_shards", side_effect=_InterruptedError),
        ):
            prepare(splits)
        return counted(partial(prepare, splits))

    with redirect_stdout(io.StringIO()):
        small, more = published(2 * TOGETHER), published(4 * TOGETHER)
    per_split = (metadata(more) - metadata(small)) / (2 * TOGETHER)
    return Row("publishing", small, f"{per_split:.2f} per split", SPLITS * per_split)


def sample(folder: Path) -> Row:
    """Bytes that are read for the sample of a tokenizer."""
    corpus, splits = folder / "sampled.jsonl", 3
    lines = "".join(line_of(number, 2048) for number in range(512))
    corpus.write_text(lines * (splits * SPLIT_BYTES // len(lines)))
    _, sources = corpus_sources("mine", [str(corpus)])
    stored = folder.with_name("sample")  # what is written there and read again does not count

    def read() -> None:
        with stored_sample(sources, splits * SHARE_BYTES, stored, local_executor(1)) as (texts, _):
            assert sum(map(len, texts())) >= splits * SHARE_BYTES

    calls = counted(read)
    times = calls["bytes"] / (splits * SHARE_BYTES)
    return Row("tokenizer's sample, bytes", calls, f"{times:.2f} per byte", SAMPLE_BYTES * times)


def line_of(number: int, size: int) -> str:
    """A document of JSON lines with about `size` bytes."""
    words = (f"word{number * step % 9973}" for step in range(size // 9))
    return json.dumps({"text": " ".join(words)}) + "\n"


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
    shapes = {part.name: (ELEMENTS,) for part in fragments()}
    state = replace(toy_checkpoints.state(1, ranks), shapes=shapes)
    publish(temporary, state)


def read_share(run: Path, ranks: RankGroup) -> None:
    """Resume one rank."""
    checkpoint, _ = open_latest(run, ranks)
    assert checkpoint is not None
    share = divide(fragments(), ranks.rank, ranks.world_size)
    ranges = ((part.name, part.start, part.start + part.weight.numel()) for part in share)
    assert all(len(found) == 3 for found in checkpoint.read_each(ranges))


def main() -> None:
    if "CALLS_BELOW" not in os.environ:
        with tempfile.TemporaryDirectory() as place:
            work = Path(place)
            (work / "counted").mkdir()
            calls = FileSystemCalls.below(work / "counted", work / "counter")
            again = [sys.executable, "-m", "tests.benchmarks.bench_scale"]
            environment = calls.environment() | {"TENFOLD_ROOT": str(work / "root")}
            sys.exit(subprocess.run(again, env=environment).returncode)
    print(f"| what is asked | each | at {FILES:,} files, {RANKS:,} ranks | a small case |")
    print("| --- | --- | ---: | --- |")
    for counted_row in (publish_splits, sample, start, mapping, resume):
        row = counted_row(Path(os.environ["CALLS_BELOW"]))
        kinds = ", ".join(f"{row.calls[kind]} {kind}" for kind in METADATA if row.calls[kind])
        print(f"| {row.what} | {row.each} | {row.at_scale:,.0f} | {kinds} |", flush=True)


if __name__ == "__main__":
    main()
