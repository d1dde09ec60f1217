"""Peak memory of a prepare worker for two input sizes: below 1 GB, and independent of the size.

    python -m tests.benchmarks.bench_memory [--megabytes 100 2000] [--dedup near]

One worker prepares a JSONL file of each size with RoBERTa's vocabulary; the peak is the kernel's
figure. With --dedup the same process also joins all signatures.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks.text import write_jsonl
from tests.benchmarks.vocabulary import bench_vocabulary

_PEAK = """
import re, sys
from pipeline import prepare
sys.argv[0] = "prepare"
prepare.main()
# not ru_maxrss: it includes the memory of the process that started this one
print("peak", re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[100, 2000])
    parser.add_argument("--dedup", default="none")
    arguments = parser.parse_args()
    peaks = []
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        bench_vocabulary(work / "tokenizer")
        for megabytes in arguments.megabytes:
            path = work / f"{megabytes}.jsonl"
            size = write_jsonl(path, megabytes * 1_000_000)
            started = time.perf_counter()
            result = subprocess.run(
                [
                    sys.executable, "-c", _PEAK, "--corpus", str(path), "--workers", "1",
                    "--tokenizer", str(work / "tokenizer"),
                    "--output", str(work / f"out-{megabytes}"), "--dedup", arguments.dedup,
                ],
                capture_output=True, text=True, check=True,
                env=os.environ | {"TENFOLD_ROOT": str(work / "root")},
            )  # fmt: skip
            seconds = time.perf_counter() - started
            found = re.search(r"peak (\d+)", result.stdout)
            assert found
            peaks.append(int(found[1]) / 1024)
            print(
                f"memory: {size / 1e6:,.0f} MB of JSONL: peak {peaks[-1]:,.0f} MB of one worker "
                f"(goal < 1,000), {size / 1e6 / seconds:.1f} MB/s wall",
                flush=True,
            )
            for line in re.findall(r"^selection: .*", result.stdout, re.M):
                print(f"memory: {line}")
            path.unlink()
            shutil.rmtree(work / f"out-{megabytes}")
    print(f"memory: largest / smallest peak {max(peaks) / min(peaks):.2f} (goal: flat)")


if __name__ == "__main__":
    main()
