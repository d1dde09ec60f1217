"""A corpus of many small splits from text to a resumed training, where every call waits.

    python -m tests.benchmarks.bench_slow_disk [--splits 200] [--workers 2]

Runs each command on the local disk, then again with a wait of 1 ms at each call for metadata and
of 5 ms at each read, as on a shared file system that others keep busy. Splits are of 8 KB, so that
what is done for each of them shows; eight are a shard, as of full size.
"""

import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from pipeline.data.shards.manifest import TRAIN, read_manifest
from tests.benchmarks.file_system_calls import FileSystemCalls, metadata
from tests.benchmarks.text import write_jsonl
from tests.benchmarks.timing import parse
from tests.launching.process import ROOT

META_US, READ_US = 1000, 5000
SPLIT_BYTES = 1 << 13
"""Of tests/end_to_end/small_splits.py."""
UNPUBLISHED = ROOT / "tests" / "benchmarks" / "unpublished_splits.py"
SMALL_SPLITS = ROOT / "tests" / "end_to_end" / "small_splits.py"
HELD_OUT = ("--set", "data.validation_fraction=0.3")
"""So that most splits have held-out rows, as splits of 32 MB do with the recipe's 0.005."""
COMMANDS = (
    "prepare, to the last split",
    "prepare, publishing",
    "train, first step",
    "train, resumed",
    "inspect --verify",
)


def write_corpus(folder: Path, splits: int) -> None:
    """Text of about so many splits, in one file."""
    folder.mkdir()
    write_jsonl(folder / "corpus.jsonl", splits * SPLIT_BYTES)


def count_splits(shards: Path) -> int:
    """Splits with rows to train on."""
    return sum(len(shard.piece_rows) for shard in read_manifest(shards).of(TRAIN))


def commands(folder: Path, workers: int) -> Iterator[Sequence[object]]:
    """The commands of COMMANDS on the corpus in a folder, whose results go there, too."""
    shards, python = folder / "shards", sys.executable
    train = (python, "-m", "pipeline.train", "roberta_tiny", "--data", shards)
    train = (*train, "--output", folder / "run", "--set", "batch.sequences=8", *HELD_OUT)
    for script in (UNPUBLISHED, SMALL_SPLITS):
        yield (
            *(python, script, "--corpus", "mine", "--input", folder / "corpus.jsonl"),
            *("--recipe", "roberta_tiny", "--workers", workers, "--output", shards),
            *HELD_OUT,
        )
    yield (*train, "--stop-at", 1)
    yield (*train, "--stop-at", 2)
    yield (python, "-m", "pipeline.inspect", shards, "--verify")


def measure(
    folder: Path, workers: int, *, meta_us: int = 0, read_us: int = 0
) -> Iterator[tuple[float, Counter[str]]]:
    """The seconds and calls of each of COMMANDS; the waits are as in `FileSystemCalls`."""
    calls = FileSystemCalls.below(folder, folder.with_name(f"{folder.name}-counter"))
    environment = calls.environment(meta_us=meta_us, read_us=read_us)
    environment |= {"TENFOLD_ROOT": str(folder), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environment["SHARD_BYTES"] = str(8 * SPLIT_BYTES)
    for command in commands(folder, workers):
        before, started_at = calls.read(), time.perf_counter()
        result = subprocess.run(
            [str(part) for part in command], env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert result.returncode == 0, result.stdout
        yield time.perf_counter() - started_at, calls.read() - before


def main() -> None:
    given = parse(__doc__, splits=200, workers=2)
    with tempfile.TemporaryDirectory() as place:
        local, slow = Path(place, "local"), Path(place, "slow")
        for folder in (local, slow):
            write_corpus(folder, given.splits)
        undisturbed = list(measure(local, given.workers))
        shards = read_manifest(local / "shards").of(TRAIN)
        splits = count_splits(local / "shards")
        print(f"{splits:,} splits, {len(shards):,} shards with ten masks, {given.workers} workers")
        print("| command | local disk, s | every call waits, s | calls for metadata | reads |")
        print("| --- | ---: | ---: | ---: | ---: |")
        waiting = measure(slow, given.workers, meta_us=META_US, read_us=READ_US)
        for what, (seconds, _), (slow_seconds, calls) in zip(COMMANDS, undisturbed, waiting):
            row = f"| {what} | {seconds:.1f} | {slow_seconds:.1f} |"
            print(f"{row} {metadata(calls):,} | {calls['read']:,} |", flush=True)


if __name__ == "__main__":
    main()
