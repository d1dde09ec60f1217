"""Peak memory of a prepare worker for two input sizes: below 1 GB, and independent of the size.

    python -m tests.benchmarks.bench_memory [--megabytes 100 2000] [--dedup near]

One worker prepares a JSONL file of each size with RoBERTa's vocabulary; the peak is the kernel's
figure. With --dedup the same process also joins all signatures.
"""

import re
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.text import write_jsonl
from tests.benchmarks.timing import parse, run_alone
from tests.benchmarks.vocabulary import bench_vocabulary


def main() -> None:
    arguments = parse(__doc__, megabytes=[100, 2000], dedup="none")
    peaks = []
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        bench_vocabulary(work / "tokenizer")
        for megabytes in arguments.megabytes:
            path = work / f"{megabytes}.jsonl"
            size = write_jsonl(path, megabytes * 1_000_000)
            _, peak, said = run_alone(
                sys.executable, "-m", "pipeline.prepare", "--corpus", path, "--workers", 1,
                "--tokenizer", work / "tokenizer", "--output", work / f"out-{megabytes}",
                "--dedup", arguments.dedup, TENFOLD_ROOT=str(work / "root"),
            )  # fmt: skip
            peaks.append(peak)
            print(
                f"memory: {size / 1e6:,.0f} MB of JSONL: peak {peak:,.0f} MB of one worker "
                "(goal < 1,000)",
                flush=True,
            )
            for line in re.findall(r"^selection: .*", said, re.M):
                print(f"memory: {line}")
            path.unlink()
    print(f"memory: largest / smallest peak {max(peaks) / min(peaks):.2f} (goal: flat)")


if __name__ == "__main__":
    main()
