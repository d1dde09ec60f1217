"""Free disk space: `tenfold clean` lists, and with `--yes` removes, what no shards need.

`prepare` keeps extracted text, surveys and decisions below $TENFOLD_ROOT, so that the next recipe
need not make them again. Shards, tokenizers and raw text are never removed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from pipeline.base.command_line import Parser, data_root, example_text
from pipeline.base.errors import ConfigError, run_command
from pipeline.data.leftovers.made_shards import read_made_shards
from pipeline.data.leftovers.stored_items import StoredItem, find_items, remove_item

_MOST_LINES = 20
"""Lines printed of what goes, and of what is kept."""


def main() -> None:
    arguments, root = _parse(), data_root()
    if not root.is_dir():
        raise ConfigError(
            f"{root} is not a directory; set TENFOLD_ROOT to the one that pipeline.prepare used"
        )
    made = read_made_shards(root, arguments.data)
    # by path among equals, so that two lists of the same files are equal
    items = sorted(find_items(root, made), key=lambda item: (-item.size, item.path))
    unneeded = [item for item in items if not item.kept]
    kept = [item for item in items if item.kept]
    print(f"read what {made.count:,} complete shards in {root} were made of")
    if kept:
        print("\n".join(["kept:", *describe_items(kept)]))
    if not unneeded:
        print("nothing can be removed")
    elif arguments.yes:
        _remove(unneeded, root)
    else:
        print("\n".join(["no shards need:", *describe_items(unneeded)]))
        print(
            f"{_size(unneeded)} can go: rerun with --yes. Shards outside {root} count only if "
            "--data names them"
        )


def describe_items(items: Sequence[StoredItem]) -> list[str]:
    """A line for each item, the largest first, and one for the others if there are many."""
    lines = []
    for item in items[:_MOST_LINES]:
        day = time.strftime("%Y-%m-%d", time.localtime(item.used_at))
        reason = f"; {item.kept}" if item.kept else ""
        lines.append(f"  {_size([item])}  {day}  {item.path}: {item.what}{reason}")
    if others := items[_MOST_LINES:]:
        lines.append(f"  {_size(others)}  in {len(others):,} more")
    return lines


def _remove(items: list[StoredItem], root: Path) -> None:
    removed = []
    for item in items:
        # under its lock: a command may have started to use it since it was listed
        reason = remove_item(item, root)
        if reason:
            print(f"kept {item.path}: {reason}")
        else:
            removed.append(item)
    print("\n".join(["removed:", *describe_items(removed), f"{_size(removed)} removed"]))


def _size(items: Sequence[StoredItem]) -> str:
    return f"{sum(item.size for item in items) / 1e6:,.1f} MB"


def _parse() -> argparse.Namespace:
    parser = Parser(
        prog="python -m pipeline.clean",
        description="List what earlier commands left in $TENFOLD_ROOT (extracted text, unfinished "
        "extractions and transfers, decisions of --dedup, signatures of shards that are gone), "
        "each with its size, the day it was last used, and why it is kept or not. Without --yes "
        "nothing is removed. It always keeps raw text, the files that complete shards were made "
        "of, files used in the last day, and files that could not be made again; and everything "
        "while shards are unfinished or a command is running.",
        epilog=example_text(
            "python -m pipeline.clean",
            "python -m pipeline.clean --data scratch/shards/* --yes",
        ),
    )
    parser.add_argument("--yes", action="store_true", help="remove the files that no shards need")
    parser.add_argument(
        "--data",
        type=Path,
        nargs="+",
        default=[],
        metavar="DIR",
        help="shards outside $TENFOLD_ROOT, made with --output: keep what these need, too",
    )
    return parser.parse_args()


if __name__ == "__main__":
    run_command(main)
