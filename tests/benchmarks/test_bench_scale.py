"""The counts of the benchmark, so that a call per file or per rank that creeps in fails here."""

import subprocess
import sys

EXPECTED = {
    # eleven files of a piece are read and removed, by all workers, and seven more, as most of these
    # on threads; eight pieces make a shard, of eleven files that are written, synced and hashed
    "publishing": "47.12 per split",
    "tokenizer's sample, bytes": "1.65 per byte",
    "start or requeue": "1.00 per file, 0.00 per rank",
    # one open; and once for all files whether there are masks of this duplicate
    "mapping in a pass": "1.02 per file",
    # state.json, index.json and two files of tensors per rank; rank 0 reads all files once more
    "resume": "6.00 + 0.00 x ranks per rank",
}
"""Calls for metadata per split, file and rank, or bytes."""


def test_the_file_system_is_asked_no_more_than_this() -> None:
    command = [sys.executable, "-m", "tests.benchmarks.bench_scale"]
    table = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    rows = [line.removeprefix("| ").split(" | ") for line in table.splitlines()[2:]]
    assert {what: each for what, each, *_ in rows} == EXPECTED, table
