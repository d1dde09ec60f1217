"""The command line of `python -m pipeline.prepare`."""

from __future__ import annotations

import argparse
from pathlib import Path

from pipeline.command_line import (
    Parser,
    add_input_arguments,
    add_recipe_arguments,
    example_text,
)
from pipeline.data.corpora.catalogue import GROUPS
from pipeline.data.corpora.groups import group_of
from pipeline.data.selection.select import DEDUP
from pipeline.errors import ConfigError

EXAMPLES = example_text(
    "python -m pipeline.prepare --corpus sample --recipe roberta_tiny",
    "python -m pipeline.prepare --corpus news --input news/*.jsonl.zst --dedup near",
    "python -m pipeline.prepare --corpus news --input news/ --run runs/base/run.json",
    "python -m pipeline.prepare --corpus 16gb --recipe bert_base --dry-run",
)


def prepare_arguments() -> argparse.Namespace:
    """What the command line says; ConfigError for what no corpus or recipe makes right."""
    parser = Parser(
        prog="python -m pipeline.prepare",
        description="Turn raw text into Arrow shards with ten masks per sequence. The bare command "
        "is complete: `--corpus sample` works offline, and trains a tokenizer if there is none. "
        "After an interruption, run it again: it continues where it was.",
        epilog=EXAMPLES,
    )
    add_input_arguments(parser)
    _add_source_arguments(parser)
    add_recipe_arguments(parser)
    _add_selection_arguments(parser)
    parser.add_argument(
        "--tokenizer",
        type=Path,
        metavar="DIR",
        help="folder with tokenizer.json, vocab.txt, vocab.json + merges.txt, or encoder.json + "
        "vocab.bpe (+ dict.txt for RoBERTa's ids); default: the one that named corpora share, "
        "$TENFOLD_ROOT/tokenizers/<kind>-<size>, or for any other corpus one trained on its text",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="default: $TENFOLD_ROOT/shards/<corpus>-<recipe>-<fingerprint>; TENFOLD_ROOT is "
        "./data unless set",
    )
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="processes (default: all cores; under srun or mpiexec: every rank is one)",
    )
    parser.add_argument(
        "--part",
        type=_part,
        metavar="I/N",
        help="do the I-th of N shares, 1/N to N/N, beside others that do theirs, as a job array "
        "does; the last to finish puts all of it together",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="say from a small sample what will come out, in which time and room; write nothing",
    )
    parser.add_argument(
        "--compression",
        choices=["none", "zstd"],
        default="none",
        help="none maps into memory; zstd is a third smaller and needs data.order=blocks to train",
    )
    parser.add_argument(
        "--max-bad-fraction",
        type=float,
        default=0.01,
        metavar="SHARE",
        help="unusable records that are skipped and counted before it is an error (default: 0.01)",
    )
    parser.add_argument(
        "--engine",
        choices=["fast", "tokenizers"],
        default="fast",
        help="what makes ids: the fastest engine for the kind of vocabulary, checked against "
        "tokenizers, or tokenizers alone (slow)",
    )
    arguments = parser.parse_args()
    if not arguments.dedup:
        group = group_of(arguments.corpus, arguments.input)
        arguments.dedup = group.dedup if group else "none"
    if not 0 <= arguments.max_bad_fraction < 1:
        raise ConfigError(f"--max-bad-fraction {arguments.max_bad_fraction}: choose one in [0, 1)")
    if arguments.allow_short and arguments.corpus not in GROUPS:
        raise ConfigError(
            f"--allow-short is for groups ({', '.join(GROUPS)}), not {arguments.corpus}; drop it"
        )
    if arguments.workers is not None and arguments.workers < 1:
        raise ConfigError(f"--workers {arguments.workers}: at least one is needed")
    return arguments


def _add_source_arguments(parser: Parser) -> None:
    """What is asked of the source table, and of the Hub."""
    parser.add_argument(
        "--explain",
        action="store_true",
        help="say where the corpus is found, its sizes, licence and known defects; do nothing",
    )
    parser.add_argument(
        "--fetch",
        action="store_true",
        help="fetch the Hub's copy, or what --input's URLs name, to $TENFOLD_ROOT/downloads, "
        "where compute nodes without a network find it, and do no more; a group's members that "
        "have --input are left out",
    )
    parser.add_argument(
        "--allow-short",
        action="store_true",
        help="take a group that has over a tenth less text than stated (16gb, 160gb)",
    )


def _add_selection_arguments(parser: Parser) -> None:
    """Which documents go on."""
    parser.add_argument(
        "--dedup",
        choices=list(DEDUP),
        default="",
        help="leave out exact copies, or near-duplicates as well (Jaccard index of 5-word runs "
        "above about 0.75), of documents that come earlier (default: near for a group of corpora, "
        "else none)",
    )
    parser.add_argument(
        "--decontaminate",
        nargs="+",
        default=[],
        metavar="PATH",
        help="evaluation files or folders: JSON, JSON lines, Parquet, Arrow, tables and other "
        "UTF-8 text, also compressed; documents that share 13 words in a row with them are dropped",
    )
    parser.add_argument(
        "--filter",
        nargs="+",
        default=[],
        metavar="NAME=VALUE",
        help="leave out documents with fewer words than min-words=50, more than "
        "max-words=100000, a smaller share of words with letters than min-letters=0.8, a larger "
        "one of repeated lines than max-repeated=0.3, in another language than language=en "
        "(default: none)",
    )


def _part(text: str) -> tuple[int, int]:
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise ConfigError(f"--part {text}: of N parts name one, 1/N to N/N, e.g. 1/4 to 4/4")
    return int(number), int(count)
