"""The command lines of pipeline.train and pipeline.export; no torch, so --help works anywhere."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from pipeline.base.command_line import (
    Parser,
    add_training_arguments,
    example_text,
)

EXAMPLES = example_text(
    "python -m pipeline.train roberta_tiny --data data/shards/sample-* --output runs/tiny",
    "python -m pipeline.train bert_base --data data/shards/16gb-* --output runs/bert \\\n"
    "    --ds zero2 --set batch.per_device=32 --dry-run --ranks 8",
    "torchrun --standalone --nproc-per-node 8 -m pipeline.train roberta_large \\\n"
    "    --data data/shards/160gb-* --output runs/large --hours 24",
)


HEADS = "heads"
NEW = ("vocabulary", "positions", "width", "generator", HEADS)
"""Choices of --new."""


def parse_train() -> argparse.Namespace:
    """The command line of pipeline.train."""
    parser = Parser(
        prog="python -m pipeline.train",
        description="Train a model from shards. Run the same command again to resume. "
        "With several processes: torchrun --nproc-per-node N -m pipeline.train ..., or "
        "deepspeed --num_gpus N --module pipeline.train ...",
        epilog=EXAMPLES,
    )
    add_training_arguments(parser)
    parser.add_argument(
        "--data",
        type=Path,
        nargs="+",
        required=True,
        metavar="DIR",
        help="shards made by pipeline.prepare; several are mixed by size",
    )
    parser.add_argument(
        "--output",
        type=Path,
        required=True,
        metavar="RUN",
        help="directory of the run, new or to resume",
    )
    parser.add_argument(
        "--stop-at",
        type=int,
        metavar="STEP",
        help="stop at this step and save; the schedule is still that of the whole run",
    )
    parser.add_argument(
        "--hours",
        type=float,
        default=math.inf,
        metavar="H",
        help="stop before H hours have passed: save, write INTERRUPTED, exit with code 75",
    )
    _add_sources(parser)
    parser.add_argument(
        "--stage",
        type=Path,
        metavar="DIR",
        help="copy shards to this directory on each node's own disk while training reads them, "
        "about 2.4 bytes per token; removed at the end of the run",
    )
    parser.add_argument(
        "--profile", action="store_true", help="trace a few steps into RUN/profile, for Perfetto"
    )
    _add_dry_run(parser)
    # deepspeed's launcher adds this; we read it from the environment
    parser.add_argument("--local_rank", help=argparse.SUPPRESS)
    return parser.parse_args()


def _add_sources(parser: Parser) -> None:
    """Options for what a run starts from."""
    parser.add_argument(
        "--from",
        dest="fork",  # `from` is a word of Python
        type=Path,
        metavar="RUN/STEP",
        help="start a new run from the weights and optimizer of another run's checkpoint",
    )
    parser.add_argument(
        "--init",
        type=Path,
        metavar="MODEL_DIR",
        help="start a new run from the weights of a transformers folder of the recipe's family",
    )
    parser.add_argument(
        "--new",
        nargs="+",
        default=[],
        choices=NEW,
        metavar="PART",
        help="parts that do not come from the folder of --init or RECIPE. vocabulary: tokens in "
        "both vocabularies keep their rows, the others get the mean of their old pieces; "
        "positions: encoder.positions is larger, and the new rows repeat the old ones; width: "
        "encoder.width, heads, feed_forward and layers may be larger, and weights are tiled, as "
        "for ModernBERT-large; generator: the recipe initializes ELECTRA's generator; "
        "heads: it initializes heads that the folder lacks (--init allows this anyway). More "
        "encoder.layers need no --new: new layers are copies",
    )


def _add_dry_run(parser: Parser) -> None:
    """--dry-run and what belongs to it."""
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print the plan, warn about doubtful settings, and write nothing",
    )
    parser.add_argument(
        "--ranks",
        type=int,
        metavar="N",
        help="with --dry-run: plan for N GPUs, here or elsewhere (default: the ranks started)",
    )
    parser.add_argument(
        "--verbose",
        action="store_true",
        help="with --dry-run: also print DeepSpeed's configuration",
    )


def parse_export() -> argparse.Namespace:
    """The command line of pipeline.export."""
    parser = Parser(
        prog="python -m pipeline.export",
        description="Write a run's newest checkpoint as a folder that transformers' "
        "AutoModelForMaskedLM and AutoTokenizer load, with a model card (README.md). Refuses if "
        "logits differ from ours. Prints the command that uploads the folder; nothing is uploaded.",
        epilog=example_text(
            "python -m pipeline.export runs/tiny --output runs/tiny-export --language en",
            "python -m pipeline.export runs/tiny --step 1200 --output runs/tiny-1200",
            "python -m pipeline.export runs/base --data /scratch/shards/16gb-* --output base",
        ),
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="directory of the run")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="new folder")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument(
        "--step", type=int, metavar="N", help="checkpoint of this step (default: the newest)"
    )
    chosen.add_argument(
        "--all",
        action="store_true",
        help="every checkpoint that the run has kept, as DIR/step-00001200 and so on",
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="shards of the run, if they have moved since the training",
    )
    parser.add_argument(
        "--language",
        nargs="+",
        default=[],
        metavar="CODE",
        help="for the model card: languages of the text, as two or three letters of ISO 639",
    )
    parser.add_argument(
        "--scores",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="for the model card: scores.json of pipeline.finetune, or what pipeline.evaluate "
        "--json printed",
    )
    return parser.parse_args()
