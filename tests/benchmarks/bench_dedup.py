"""Near-duplicates among a million documents: recall, precision, memory, time; and other libraries.

    python -m tests.benchmarks.bench_dedup [--documents 1000000]

Documents of random words, 60 to 400 long; three in ten are copies whose Jaccard index is spread
evenly over 0.3 to 1 (computed from all shingles). A document is found if it is dropped, and
wrongly if its index is below 0.7. Ours reads, cleans, signs, joins and writes its decisions,
with one worker; the peak is the kernel's figure. The other libraries, if installed, get the texts
of the first size, and sign and join them.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq

from tests.benchmarks.planted import copy_of, document, jaccard, shingle_set

STAGE = """
import re, sys, time
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
print("peak", re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
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
    command = [sys.executable, "-c", STAGE, str(path), str(folder)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    seconds, peak, directory = (
        re.search(rf"{name} (\S+)", said)[1]  # type: ignore[index]
        for name in ("seconds", "peak", "decisions")
    )
    dropped = [
        reason is not None
        for file in sorted(Path(directory).iterdir())
        for reason in pq.read_table(file)["dropped"].to_pylist()
    ]
    return set(np.flatnonzero(dropped).tolist()), float(seconds), int(peak) / 1024


def peers(path: Path, copies: dict[int, Copy]) -> None:
    """The same with libraries for it, if installed: 256 permutations, 32 bands of 8, at 0.75."""
    with path.open() as file:
        texts = [json.loads(line)["text"] for line in file]
    size = sum(map(len, texts))
    for name, dropped_by in (("datasketch", by_datasketch), ("rensa", by_rensa)):
        began_at = time.process_time()
        try:
            found = dropped_by(texts)
        except ImportError:
            print(f"{name}: not installed")
            continue
        seconds = time.process_time() - began_at
        print(f"{name}: {size / seconds / 1e6:.1f} MB/s, {seconds:.1f} s; {judged(found, copies)}")


def by_datasketch(texts: list[str]) -> set[int]:
    """Lines with an earlier near-duplicate."""
    import datasketch

    lsh = datasketch.MinHashLSH(num_perm=256, params=(32, 8))
    made, found = [], set()
    for line, text in enumerate(texts):
        shingles = [" ".join(words).encode() for words in shingle_set(text)]
        made.append(datasketch.MinHash(num_perm=256))
        made[-1].update_batch(shingles)
        if any(made[other].jaccard(made[-1]) >= 0.75 for other in lsh.query(made[-1])):
            found.add(line)
        lsh.insert(line, made[-1])
    return found


def by_rensa(texts: list[str]) -> set[int]:
    """Lines with an earlier near-duplicate."""
    import rensa

    lsh = rensa.RMinHashLSH(threshold=0.75, num_perm=256, num_bands=32)
    made, found = [], set()
    for line, text in enumerate(texts):
        made.append(rensa.RMinHash(num_perm=256, seed=0))
        made[-1].update([" ".join(words) for words in shingle_set(text)])
        if any(made[other].jaccard(made[-1]) >= 0.75 for other in lsh.query(made[-1])):
            found.add(line)
        lsh.insert(line, made[-1])
    return found


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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, nargs="+", default=[20_000, 300_000, 1_000_000])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "in.jsonl"
        write_corpus(path, 100)
        find(path, Path(folder) / "compiled")
        for place, count in enumerate(parser.parse_args().documents):
            copies = write_corpus(path, count)
            found, seconds, peak = find(path, Path(folder) / f"documents-{count}")
            size = path.stat().st_size / 1e6
            print(
                f"ours: {count:,} documents, {size:,.0f} MB: {size / seconds:.1f} MB/s, "
                f"{seconds:.1f} s of CPU, peak {peak:,.0f} MB; {judged(found, copies)}",
                flush=True,
            )
            if place == 0:
                peers(path, copies)


if __name__ == "__main__":
    main()
