"""README's speed table from one run, in five minutes: the two sides of each row take turns.

    python -m tests.benchmarks.speed_table [--peer PYTHON] [--busy]

Each row is measured by its benchmark, in a process of its own. The table goes between the markers
in README.md and RESULTS.md, under a line with date, processor and versions. The row of web pages
needs the WARC files of $TENFOLD_TEST_DATA and PYTHON, an environment as bench_web describes it; it
is dropped without them.
"""

import argparse
import datetime
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from pipeline.base.command_line import cores
from pipeline.base.errors import ConfigError, run_command

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "tests" / "benchmarks" / "RESULTS.md")
START, END = "<!-- written by tests/benchmarks/speed_table.py -->", "<!-- end of the table -->"
HEAD = "| what | Tenfold | the usual way | ratio |\n|---|---|---|---|"
COLUMNS = 120
IDLE = 1.0
"""Most load (a minute's mean) at which the table is measured."""
VERSIONS = ("torch", "transformers", "tokenizers", "datasets", "numpy", "numba", "pyarrow")
WARC = (
    "cc-news/warc/sample-0000.warc.gz", "cc-news/warc/sample-0001.warc.gz",
    "formats/warc/warcfile.warc.gz",
)  # fmt: skip


class Row(NamedTuple):
    """Two speeds and what they are of."""

    what: str
    unit: str
    """MB/s, or a noun per second, which gets a prefix."""
    peer: str
    """What the other side is."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", default="", metavar="PYTHON", help="with datatrove: web pages")
    parser.add_argument("--busy", action="store_true", help="measure although others compute")
    parser.add_argument("--row", choices=ROWS, help="print one row's speeds as JSON, write nothing")
    options = parser.parse_args()
    if options.row:
        print(json.dumps(measure(options.row, options.peer)), flush=True)
        return
    load = os.getloadavg()[0]
    if load > IDLE and not options.busy:
        raise ConfigError(f"load {load:.1f}: speeds need an idle machine; wait, or add --busy")
    started, lines = time.monotonic(), []
    for name, row in ROWS.items():
        if name == "web" and not (options.peer and all(path.exists() for path in warc_files())):
            print("web: dropped, needs --peer and the WARC files of $TENFOLD_TEST_DATA")
            continue
        lines.append(row_line(row, *_measure_alone(name, options.peer)))
        print(lines[-1], flush=True)
    machine = caption(load, time.monotonic() - started)
    for page in PAGES:
        page.write_text(with_table(page.read_text("utf-8"), machine, lines), "utf-8")


def _measure_alone(name: str, peer: str) -> tuple[float, float]:
    """A row's speeds, from a process that does nothing else."""
    command = [sys.executable, "-m", "tests.benchmarks.speed_table", "--row", name, "--peer", peer]
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    ours, theirs = json.loads(result.stdout.splitlines()[-1])
    return ours, theirs


def row_line(row: Row, ours: float, theirs: float) -> str:
    """A row of the table."""
    peer = f"{shown(theirs, row.unit)}: {row.peer}"
    return f"| {row.what} | {shown(ours, row.unit)} | {peer} | {_three_digits(ours / theirs)}x |"


def shown(value: float, unit: str) -> str:
    """`58.3 MB/s`, `1.67 G masks/s`: three digits and the unit."""
    if unit == "MB/s":
        return f"{_three_digits(value / 1e6)} {unit}"
    prefixes = ((1e9, "G "), (1e6, "M "), (1e3, "k "), (0.0, ""))
    size, prefix = next(item for item in prefixes if value >= item[0])
    return f"{_three_digits(value / (size or 1))} {prefix}{unit}"


def _three_digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.3g}"


def caption(load: float, seconds: float) -> str:
    """When, where and with which versions the table was measured."""
    versions = ", ".join(f"{name} {version(name)}" for name in VERSIONS)
    text = (
        f"Measured on {datetime.date.today()} in one run of {seconds / 60:.0f} minutes, load "
        f"{load:.1f} before: {_processor()}, {cores()} cores; Python {platform.python_version()}, "
        f"{versions}."
    )
    return textwrap.fill(text, COLUMNS, break_long_words=False, break_on_hyphens=False)


def _processor() -> str:
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return found[1] if found else platform.machine()


def with_table(text: str, machine: str, lines: Sequence[str]) -> str:
    """The page with this table between its markers. Raises ConfigError if it has none."""
    before, start, rest = text.partition(f"{START}\n")
    _, end, after = rest.partition(END)
    if not (start and end):
        raise ConfigError(f"a page has no lines {START} and {END}; add them around the table")
    return before + "\n".join([START, machine, "", HEAD, *lines, END]) + after


def warc_files() -> list[Path]:
    """Those of the labelled pages, whether they exist or not."""
    folder = Path(os.environ.get("TENFOLD_TEST_DATA", "/nonexistent"))
    return [folder / path for path in WARC]


def measure(name: str, peer: str) -> tuple[float, float]:
    """Speeds of a row, ours first, in bytes or nouns per second.

    Imports the benchmark here, in a process of its own: importing one sets threads and variables.
    """
    if name == "prepare":
        from tests.benchmarks import bench_prepare
        from tests.benchmarks.text import write_jsonl

        with tempfile.TemporaryDirectory() as folder:
            size = write_jsonl(Path(folder) / "large.jsonl", 70_000_000)
            found = bench_prepare.measure(Path(folder), size)
        return found["none"] * 1e6, found["usual"] * 1e6
    if name == "ids":
        from tests.benchmarks import bench_tokens

        kind, ours, theirs, _ = next(bench_tokens.measure(20))
        assert kind.startswith("byte-bpe")
        return ours * 1e6, theirs * 1e6
    if name == "masks":
        from tests.benchmarks import bench_masking

        speeds, _, _ = bench_masking.measure(("token",))
        return speeds["token"], speeds["collator"]
    if name == "loader":
        from tests.benchmarks import bench_loader

        speeds = bench_loader.main()
        return speeds["ours"], speeds["memmap"]
    if name == "web":
        from tests.benchmarks import bench_web

        size, seconds, _ = bench_web.measure([*map(str, warc_files())], peer, 3)
        return size / seconds["ours"], size / seconds["datatrove"]
    from tests.benchmarks import bench_training

    return bench_training.bench_micro_step()


ROWS = {
    "prepare": Row(
        "JSON lines to shards with ten masks, one core", "MB/s",
        "`group_texts`, ten collator passes",
    ),
    "ids": Row("token ids, byte-level BPE, one core", "MB/s", "`tokenizers`"),
    "masks": Row("masks drawn, one core", "tokens x masks/s", "transformers' data collator"),
    "loader": Row(
        "loader, batches of 64 x 512, one core", "tokens/s", "memory map and masking in torch",
    ),
    "web": Row("main text of web pages, one core", "MB/s", "datatrove with Trafilatura"),
    "training": Row(
        "RoBERTa-base, forward and backward, all cores", "sequences/s", "transformers"
    ),
}  # fmt: skip
"""The rows of the table, in order."""

if __name__ == "__main__":
    run_command(main)
