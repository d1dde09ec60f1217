"""Show how runs are doing: `tenfold status RUN...`, one in full, several in a table.

Reads the files in RUN, which may be training meanwhile on any machine. Needs no torch.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path

from pipeline.base.command_line import Parser, example_text
from pipeline.base.errors import ConfigError, run_command
from pipeline.base.typed_json import as_json
from pipeline.data.inspection.path_kinds import kind_of
from pipeline.data.shards.manifest import MANIFEST
from pipeline.training.run_directory.run_status import is_run, read_status
from pipeline.training.run_directory.status_words import describe_run, tabulate_runs


def main() -> None:
    arguments = _parse()
    for path in arguments.runs:
        check_run(path)
    found = [read_status(path) for path in arguments.runs]
    if arguments.json:
        print(as_json([asdict(status) for status in found], indent=1))
    elif len(found) == 1:
        print("\n".join(describe_run(found[0])))
    else:
        print("\n".join(tabulate_runs(found)))


def check_run(path: Path) -> None:
    """Raises ConfigError that says what a path is, unless it is a run."""
    if is_run(path):
        return
    outer = next((folder for folder in path.resolve().parents if is_run(folder)), None)
    if outer and path.exists():
        raise ConfigError(f"{path} is inside a run; give {outer}")
    kind = kind_of(path)
    inside = [folder for folder in path.iterdir() if is_run(folder)] if path.is_dir() else []
    if inside:
        raise ConfigError(f"{path} is a folder of {len(inside)} run(s); give {path}/*")
    if kind:
        kind = kind.partition(";")[0]
    elif (path / MANIFEST).exists():
        kind = "shards"
    elif (path / "tokenizer.json").exists():
        kind = "a tokenizer"
    else:
        kind = "a file" if path.is_file() else "a folder without a run"
    raise ConfigError(f"{path} is not a run but {kind}; give the --output of pipeline.train")


def _parse() -> argparse.Namespace:
    parser = Parser(
        prog="python -m pipeline.status",
        description="Show how a run is doing: whether it is running, waiting for a restart, "
        "interrupted, finished or failed; step, speed, time left, last checkpoint, restarts with "
        "their reasons, and the log of what failed. Reads files only, so it works on a login node "
        "and needs no torch.",
        epilog=example_text(
            "python -m pipeline.status data/runs/roberta_large",
            "python -m pipeline.status data/runs/*",
            "python -m pipeline.status data/runs/* --json",
        ),
    )
    parser.add_argument(
        "runs",
        type=Path,
        nargs="+",
        metavar="RUN",
        help="run directories: one is shown in full, several with a line each",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print a list with an object for each run; unknown values are null",
    )
    return parser.parse_args()


if __name__ == "__main__":
    run_command(main)
    sys.exit(0)
