"""How busy 2,048 ranks are with 60 gzip files of 1 GB: of many members, and of one.

    python -m tests.benchmarks.bench_frames [--megabytes 128]

Measures what each kind of task takes on a small file, CPU seconds of one core with the reading and
writing of files, and deals the tasks of 60 files to the ranks as the executor does: the largest
first, each to the rank that is free first, and no stage before the one before it has ended.
"""

from __future__ import annotations

import argparse
import gzip
import heapq
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pipeline.data.preparation.worker import PrepareJob, Worker
from pipeline.data.text.text_tasks import SPLIT_BYTES, cut_tasks
from pipeline.execution.workers import local_executor
from pipeline.ingest.compression.frames import find_frames
from pipeline.ingest.documents import read
from pipeline.ingest.documents.records import PieceReading, Source
from pipeline.ingest.documents.sniff import sniff
from pipeline.ingest.extraction import units
from pipeline.ingest.extraction.extract import extract
from pipeline.recipes import recipe
from tests.benchmarks.text import write_jsonl
from tests.benchmarks.vocabulary import bench_vocabulary

RANKS, FILES, FILE_BYTES = 2048, 60, 1 << 30
MEMBER_BYTES = 1 << 20
"""Content of a member."""
Stages = dict[str, list[float]]
"""Seconds of each task, by stage."""


def busy(stages: Stages) -> tuple[float, float]:
    """Seconds that all stages take, and the share of it in which a rank works."""
    total = 0.0
    for tasks in stages.values():
        free = [0.0] * RANKS
        for seconds in sorted(tasks, reverse=True):
            heapq.heapreplace(free, free[0] + seconds)
        total += max(free)
    return total, sum(map(sum, stages.values())) / (RANKS * total)


def seconds_of(function: Callable[[], object]) -> float:
    started_at = time.process_time()
    function()
    return time.process_time() - started_at


def write_gzip(path: Path, content: bytes, member: int) -> Source:
    """A gzip file with so many bytes in a member."""
    with path.open("wb") as file:
        for start in range(0, len(content), member):
            file.write(gzip.compress(content[start : start + member], 6, mtime=0))
    return sniff(path, "news", path.name)


def split_seconds(source: Source, worker: Worker) -> Iterator[float]:
    """Of each split of SPLIT_BYTES of a source."""
    for task in cut_tasks([source]):
        if task.weight >= SPLIT_BYTES // 2:
            yield seconds_of(lambda task=task: worker.do(task))  # type: ignore[misc]


def stages_of(source: Source, size: int, place: Path, worker: Worker) -> Stages:
    """The tasks of FILES files like this small one of `size` bytes of content."""
    _, scale = place.mkdir(), FILE_BYTES / source.size
    hashing = seconds_of(lambda: PieceReading().take_file(source.path)) * scale
    stages = {"hash": [hashing] * FILES}
    made = extract([source], place / "documents", local_executor(1))
    if made[0].frames:
        found = seconds_of(lambda: find_frames(source.path, "gz", 0, source.size, is_sure=True))
        count = FILE_BYTES // units.UNIT_BYTES
        stages["find members"] = [found * scale / count] * (FILES * count)
    else:
        started_at = time.process_time()
        extract([source], place / "again", local_executor(1))
        extraction = (time.process_time() - started_at) * scale - hashing
        stages["extract"] = [extraction] * FILES
    splits = [*split_seconds(made[0], worker)]
    mean = sum(splits[1:]) / len(splits[1:])  # the first fills caches
    stages["splits"] = [mean] * math.ceil(FILES * size * scale / SPLIT_BYTES)
    return stages


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=128)
    size = parser.parse_args().megabytes << 20
    read.MOST_WHOLE_BYTES = 1 << 20
    with tempfile.TemporaryDirectory() as place:
        work = Path(place)
        write_jsonl(work / "text.jsonl", size)
        content = (work / "text.jsonl").read_bytes()
        vocabulary = bench_vocabulary(work / "tokenizer")
        print("| files of | stage: tasks, seconds each | seconds | ranks busy |")
        print("| --- | --- | ---: | ---: |")
        for kind, member in (("many members", MEMBER_BYTES), ("one member", len(content))):
            parts = work / f"{kind} parts"
            parts.mkdir()
            job = PrepareJob(
                parts, recipe("roberta_base").data, ("news",), {"news": 2**64 // 200},
                SPLIT_BYTES, "none", "fast",
            )  # fmt: skip
            source = write_gzip(work / f"{kind}.jsonl.gz", content, member)
            stages = stages_of(source, len(content), work / kind, Worker.create(job, vocabulary))
            total, share = busy(stages)
            told = "; ".join(f"{name}: {len(t):,}, {t[0]:.2f}" for name, t in stages.items())
            print(f"| {kind} | {told} | {total:.1f} | {share:.0%} |", flush=True)


if __name__ == "__main__":
    main()
