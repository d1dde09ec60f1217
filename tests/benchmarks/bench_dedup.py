"""Near-duplicates among a million documents: recall, precision, memory, time; and other libraries.

    python -m tests.benchmarks.bench_dedup [--documents 1000000]

Documents of random words, 60 to 400 long; three in ten are copies whose Jaccard index is spread
evenly over 0.3 to 1 (computed from all shingles). A document is found if it is dropped, and
wrongly if its index is below 0.7. Ours reads, cleans, signs, joins and writes its decisions,
with one worker; the peak is the kernel's figure. The other libraries, if installed, get the texts
of the first size, and sign and join them.
"""

import json
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from tests.benchmarks.planted import copy_of, document, jaccard, shingle_set
from tests.benchmarks.timing import parse, run_alone

STAGE = """
import sys, time
from pathlib import Path
from pipeline.ingest.corpora.sources import corpus_sources
from pipeline.data.text.text_tasks import cut_tasks
from pipeline.execution.workers import local_executor
from pipeline.data.selection.select import decide, plan_selection
began_at = time.process_time()
_, sources = corpus_sources("web", [sys.argv[1]])
decided = plan_selection(cut_tasks(sources), "near", [], [], Path(sys.argv[2]))
decide(decided, local_executor(1))
print("seconds", time.process_time() - began_at)
print("decisions", decided.directory)
"""


class Copy(NamedTuple):
    """A planted copy: the line of its original, which has no other, and their Jaccard index."""

    original: int
    alike: float


def write_corpus(path: Path, count: int) -> dict[int, Copy]:
    """Write documents as JSON lines; returns the copies by their lines."""
    rng = np.random.default_rng(0)
    copies: dict[int, Copy] = {}
    recent: list[tuple[int, list[str]]] = []
    with path.open("w") as file:
        for line in range(count):
            words = document(rng, int(rng.integers(60, 400)))
            if recent and rng.random() < 0.3:
                first, original = recent.pop(int(rng.integers(len(recent))))  # copied once
                words = copy_of(original, rng.uniform(0.3, 1), rng)
                copies[line] = Copy(first, jaccard(" ".join(original), " ".join(words)))
            elif len(recent) < 100_000:
                recent.append((line, words))
            file.write(json.dumps({"id": str(line), "text": " ".join(words)}) + "\n")
    return copies


def find(path: Path, folder: Path) -> tuple[set[int], float, float]:
    """Lines that the stage drops, CPU seconds, peak in MB."""
    _, peak, said = run_alone(sys.executable, "-c", STAGE, path, folder)
    return dropped_lines(said), float(re.search(r"seconds (\S+)", said)[1]), peak


def dropped_lines(said: str) -> set[int]:
    """Those that STAGE drops; said: its output."""
    directory = Path(re.search(r"decisions (.+)", said)[1])
    tables = (pq.read_table(file)["dropped"] for file in sorted(directory.iterdir()))
    reasons = [reason for table in tables for reason in table.to_pylist()]
    return {line for line, reason in enumerate(reasons) if reason is not None}


def print_peers(path: Path, copies: dict[int, Copy]) -> None:
    """The same with libraries for it, if installed: 256 permutations, 32 bands of 8, at 0.75."""
    with path.open() as file:
        texts = [json.loads(line)["text"] for line in file]
    size = sum(map(len, texts))
    for name, prepared in (("datasketch", datasketch), ("rensa", rensa)):
        began_at = time.process_time()
        try:
            sketch_of, index = prepared()
        except ImportError:
            print(f"{name}: not installed")
            continue
        sketches, found = [], set()
        for line, text in enumerate(texts):
            sketch = sketch_of([" ".join(words) for words in shingle_set(text)])
            if any(sketches[other].jaccard(sketch) >= 0.75 for other in index.query(sketch)):
                found.add(line)
            index.insert(line, sketch)
            sketches.append(sketch)
        seconds = time.process_time() - began_at
        print(f"{name}: {size / seconds / 1e6:.1f} MB/s, {seconds:.1f} s; {judged(found, copies)}")


Sketched = tuple[Callable[[list[str]], Any], Any]
"""What sketches shingles, and an empty index."""


def datasketch() -> Sketched:
    from datasketch import MinHash, MinHashLSH

    def sketch_of(shingles: list[str]) -> Any:
        sketch = MinHash(num_perm=256)
        sketch.update_batch([shingle.encode() for shingle in shingles])
        return sketch

    return sketch_of, MinHashLSH(num_perm=256, params=(32, 8))


def rensa() -> Sketched:
    from rensa import RMinHash, RMinHashLSH

    def sketch_of(shingles: list[str]) -> Any:
        sketch = RMinHash(num_perm=256, seed=0)
        sketch.update(shingles)
        return sketch

    return sketch_of, RMinHashLSH(threshold=0.75, num_perm=256, num_bands=32)


def judged(found: set[int], copies: dict[int, Copy]) -> str:
    """Recall and precision of the dropped lines; of a pair, either one may be dropped."""
    copy_by_original = {copy.original: line for line, copy in copies.items()}
    found = {copy_by_original.get(line, line) for line in found}
    index = np.array([copy.alike for copy in copies.values()])
    taken = np.array([line in found for line in copies])
    at, over = abs(index - 0.8) < 0.01, index >= 0.8
    right, surely = ((taken & (index >= least)).sum() / len(found) for least in (0.7, 0.75))
    return (
        f"recall {taken[at].mean():.4f} of {at.sum():,} at 0.79-0.81, {taken[over].mean():.4f} of "
        f"{over.sum():,} at 0.8 and more; precision {right:.4f} of {len(found):,} (with 0.75 for "
        f"0.7 {surely:.4f}), {len(found - copies.keys())} of them no copies"
    )


def main() -> None:
    counts = parse(__doc__, documents=[20_000, 300_000, 1_000_000]).documents
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "in.jsonl"
        write_corpus(path, 100)
        find(path, Path(folder) / "compiled")
        for count in counts:
            copies = write_corpus(path, count)
            found, seconds, peak = find(path, Path(folder) / f"documents-{count}")
            size = path.stat().st_size / 1e6
            print(
                f"ours: {count:,} documents, {size:,.0f} MB: {size / seconds:.1f} MB/s, "
                f"{seconds:.1f} s of CPU, peak {peak:,.0f} MB; {judged(found, copies)}",
                flush=True,
            )
            if count == counts[0]:
                print_peers(path, copies)


if __name__ == "__main__":
    main()
