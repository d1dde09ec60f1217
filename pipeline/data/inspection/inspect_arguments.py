"""The command line of pipeline.inspect."""

from __future__ import annotations

import argparse
from pathlib import Path

from pipeline.base.command_line import (
    Parser,
    add_reading_arguments,
    add_workers_argument,
    example_text,
)
from pipeline.base.errors import ConfigError
from pipeline.data.preparation.prepare_arguments import add_filter_argument
from pipeline.data.shards.manifest import TRAIN, VALIDATION


def parse_inspect() -> argparse.Namespace:
    """The command line of pipeline.inspect. Raises ConfigError for negative numbers."""
    parser = Parser(
        prog="python -m pipeline.inspect",
        description="Show what PATH holds. Shards: counts, mask rates, lengths, and a sequence "
        "with its masks side by side. A tokenizer: how it handles many scripts. Documents: "
        "samples kept and dropped by reason, lengths, languages, sites, copies. A run, a "
        "checkpoint or a model: what it is.",
        epilog=example_text(
            "python -m pipeline.inspect data/shards/sample-roberta_tiny-* --verify",
            "python -m pipeline.inspect data/shards/sample-roberta_tiny-* --sequence 7 --tokens 0",
            "python -m pipeline.inspect my-tokenizer",
            "python -m pipeline.inspect news.jsonl --filter gopher-quality",
        ),
    )
    parser.add_argument(
        "directory",
        type=Path,
        metavar="PATH",
        help="shards, a tokenizer, documents (raw files, or those of $TENFOLD_ROOT/documents), a "
        "run, a checkpoint or an exported model",
    )
    parser.add_argument(
        "--sequence", type=int, default=0, metavar="I", help="shards: sequence to show (default: 0)"
    )
    parser.add_argument(
        "--split",
        choices=[TRAIN, VALIDATION],
        help="the split of that sequence (default: train, if there is one)",
    )
    parser.add_argument(
        "--tokens",
        type=int,
        default=40,
        metavar="N",
        help="how many of its tokens to show with their masks, 0 for all (default: 40)",
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        help="shards: check every file's hash, redraw every mask; name all files that are wrong",
    )
    add_workers_argument(parser)
    parser.add_argument(
        "--corpus",
        default="",
        metavar="NAME",
        help="documents: read them as this corpus or group, as pipeline.prepare does",
    )
    add_reading_arguments(parser)
    add_filter_argument(parser)
    parser.add_argument(
        "--samples",
        type=int,
        default=3,
        metavar="N",
        help="documents: how many to show of those kept, and of those dropped for each reason "
        "(default: 3)",
    )
    parser.add_argument(
        "--decisions",
        nargs="?",
        const="",
        metavar="DIR",
        help="documents: also show what --dedup and --filter of pipeline.prepare dropped, and "
        "copies side by side (default: the newest in $TENFOLD_ROOT/documents/decisions); needs "
        "the --corpus and files of that command",
    )
    arguments = parser.parse_args()
    if arguments.tokens < 0:
        raise ConfigError(f"--tokens {arguments.tokens}: give a number, or 0 for all")
    if arguments.samples < 0:
        raise ConfigError(f"--samples {arguments.samples}: give a number, or 0 for none")
    return arguments
