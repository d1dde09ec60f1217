"""How busy 2,048 ranks are with 60 gzip files of 1 GB: of many members, and of one.

    python -m tests.benchmarks.bench_frames [--megabytes 128]

Measures what each kind of task takes on a small file, CPU seconds of one core with the reading and
writing of files, and deals the tasks of 60 files to the ranks as the executor does: the largest
first, each to the rank that is free first, and no stage before the one before it has ended.
"""

import gzip
import heapq
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

from pipeline.data.preparation.worker import Worker
from pipeline.data.text.text_tasks import FINER, SPLIT_BYTES, cut_tasks
from pipeline.execution.workers import local_executor
from pipeline.ingest.compression.frames import find_frames
from pipeline.ingest.documents import read
from pipeline.ingest.documents.records import PieceReading, Source
from pipeline.ingest.documents.sniff import sniff
from pipeline.ingest.extraction import units
from pipeline.ingest.extraction.extract import extract
from pipeline.recipes import recipe
from tests.benchmarks.text import write_jsonl
from tests.benchmarks.timing import Seconds, parse
from tests.benchmarks.vocabulary import bench_vocabulary
from tests.benchmarks.workers import CORPUS, new_worker

RANKS, FILES, FILE_BYTES = 2048, 60, 1 << 30
SPLITS = 8
"""Measured of each size, at most."""
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


def write_gzip(path: Path, content: bytes, member: int) -> Source:
    """A gzip file with so many bytes in a member."""
    with path.open("wb") as file:
        for start in range(0, len(content), member):
            file.write(gzip.compress(content[start : start + member], 6, mtime=0))
    return sniff(path, CORPUS, path.name)


def split_seconds(source: Source, worker: Worker, split_bytes: int, place: Path) -> float:
    """Of a split of `split_bytes` of a source, the mean; `place` gets the parts."""
    place.mkdir()
    worker.job = replace(worker.job, directory=place)
    first, *tasks = cut_tasks([source], split_bytes, finer=1)[: SPLITS + 1]
    worker.do(first)  # fills caches
    whole = [task for task in tasks if task.weight >= split_bytes // 2]
    return sum(Seconds.of(partial(worker.do, task)).cpu for task in whole) / len(whole)


def all_splits(source: Source, size: int, worker: Worker, place: Path) -> list[float]:
    """Seconds of each split of FILES files with `size` bytes of text, of which `source` has some.

    A part takes some time however short it is, so large and small ones are measured.
    """
    small_bytes = SPLIT_BYTES // FINER
    large, small = (
        split_seconds(source, worker, wanted, place / f"parts-{wanted}")
        for wanted in (SPLIT_BYTES, small_bytes)
    )
    per_byte = (large - small) / (SPLIT_BYTES - small_bytes)
    files = [
        Source(CORPUS, f"/{number}", str(number), size, "jsonl", "", "", "file", "")
        for number in range(FILES)
    ]
    return [small + per_byte * (task.weight - small_bytes) for task in cut_tasks(files)]


def stages_of(source: Source, size: int, place: Path, worker: Worker) -> Stages:
    """The tasks of FILES files like this small one of `size` bytes of content."""
    scale = FILE_BYTES / source.size
    hashing = Seconds.of(lambda: PieceReading().take_file(source.path)).cpu * scale
    made = extract([source], place / "documents", local_executor(1))
    stages = {}
    if made[0].frames:
        search = partial(find_frames, source.path, "gz", 0, source.size, is_sure=True)
        count = FILE_BYTES // units.UNIT_BYTES
        stages["find members"] = [Seconds.of(search).cpu * scale / count] * (FILES * count)
        stages["find members"] += [hashing] * FILES  # beside each other
    else:
        again = partial(extract, [source], place / "again", local_executor(1))
        stages["extract"] = [Seconds.of(again).cpu * scale] * FILES
    stages["splits"] = all_splits(made[0], round(size * scale), worker, place)
    return stages


def main() -> None:
    size = parse(__doc__, megabytes=128).megabytes << 20
    read.MOST_WHOLE_BYTES = 1 << 20
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        write_jsonl(work / "text.jsonl", size)
        content = (work / "text.jsonl").read_bytes()
        vocabulary = bench_vocabulary(work / "tokenizer")
        print("| files of | stage: tasks, seconds of the longest | seconds | ranks busy |")
        print("| --- | --- | ---: | ---: |")
        for kind, member in (("many members", MEMBER_BYTES), ("one member", len(content))):
            source = write_gzip(work / f"{kind}.jsonl.gz", content, member)
            worker = new_worker(work / kind, recipe("roberta_base").data, vocabulary)
            stages = stages_of(source, len(content), work / kind, worker)
            total, share = busy(stages)
            told = "; ".join(f"{name}: {len(t):,}, {max(t):.2f}" for name, t in stages.items())
            print(f"| {kind} | {told} | {total:.1f} | {share:.0%} |", flush=True)


if __name__ == "__main__":
    main()
