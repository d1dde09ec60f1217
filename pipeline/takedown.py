"""Takedown: `python -m pipeline.takedown --data DIR --documents IDS --output NEW`.

Writes the shards of DIR without the text of these documents: their tokens become pads, which
nothing predicts. All else stays, so a run on DIR may resume on NEW. Prints where else the text
still is. Shards are tasks of this machine's workers or of the ranks of an MPI job; several commands
with `--part i/n` divide them. Kill it at any time and run it again: finished shards are kept.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pipeline.base.command_line import (
    Parser,
    add_part_argument,
    add_workers_argument,
    data_root,
    example_text,
    next_lines,
)
from pipeline.data.selection.signature_store import clear_signatures
from pipeline.data.shards.earlier_shards import signatures_of
from pipeline.data.shards.manifest import read_manifest
from pipeline.data.takedown.publish import take_down
from pipeline.data.takedown.purge import purge
from pipeline.data.takedown.remains import extracted_files, find_remains, require_raw_texts
from pipeline.data.takedown.request import find_documents
from pipeline.execution.mpi import run_together, spread
from pipeline.execution.workers import Executor


def main() -> None:
    spread(_parse, takedown)


def takedown(arguments: argparse.Namespace, executor: Executor) -> None:
    """Find the documents and write the new shards; `executor` runs the tasks."""
    data, output = arguments.data, arguments.output
    manifest = read_manifest(data)
    if arguments.purge:  # first: it fails before hours of writing shards
        require_raw_texts(data, manifest)
    request = find_documents(data, arguments.documents)
    new = take_down(data, manifest, request, output, executor, arguments.part)
    if new is None:
        return
    taken = new.takedowns[-1]
    before = f"; {len(request.taken_before):,} were gone already" if request.taken_before else ""
    print(
        f"{output}: took down {len(request.names):,} documents, {taken['tokens']:,} tokens in "
        f"{taken['sequences']:,} sequences{before}"
    )
    # earlier ones again, as a kill may have come between their shards and their signatures
    names = request.names | request.taken_before
    if cleared := clear_signatures(signatures_of(manifest), names, new.fingerprint):
        print(f"{signatures_of(manifest)}: {cleared:,} signatures taken out")
    purged = extracted_files(data_root() / "documents", request) if arguments.purge else []
    for path in purged:
        count = purge(path, request.text_hashes, manifest.seed)
        print(f"{path}: {count:,} documents taken out")
    print("their text is still in these places:")
    for line in find_remains(data, output, data_root(), request, purged):
        print(f"  {line}")
    print("\n".join(next_lines(("inspect", output, "--verify"))))


def _parse() -> argparse.Namespace:
    parser = Parser(
        prog="python -m pipeline.takedown",
        description="Write shards without the text of some documents: their tokens become pads, "
        "which nothing predicts. All rows stay in their places, so a run on the old shards may "
        "resume on the new ones.",
        epilog=example_text(
            "python -m pipeline.takedown --data data/shards/cc-news-1 \\\n"
            "    --documents news.jsonl@1048576 --output data/shards/cc-news-2",
            "python -m pipeline.takedown --data data/shards/cc-news-2 --documents ids.txt \\\n"
            "    --output data/shards/cc-news-3",
        ),
    )
    parser.add_argument(
        "--data",
        type=Path,
        required=True,
        metavar="DIR",
        help="shards made by pipeline.prepare or by an earlier takedown",
    )
    parser.add_argument(
        "--documents",
        nargs="+",
        required=True,
        metavar="IDS",
        help="ids from the column id of DIR/documents.parquet, or files with one id per line; an "
        "id that several corpora have is written as corpus, tab, id",
    )
    parser.add_argument(
        "--output", type=Path, required=True, metavar="NEW", help="directory of the new shards"
    )
    parser.add_argument(
        "--purge",
        action="store_true",
        help="also take the text out of the Parquet files that `prepare` extracted from the input, "
        "so that shards prepared from them later do not contain it",
    )
    add_workers_argument(parser)
    add_part_argument(parser)
    return parser.parse_args()


if __name__ == "__main__":
    run_together(main)
    sys.exit(0)
