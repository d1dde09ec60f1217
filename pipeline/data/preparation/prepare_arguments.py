"""The command line of `python -m pipeline.prepare`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from pipeline.base.command_line import (
    Parser,
    add_by_folder,
    add_input_arguments,
    add_part_argument,
    add_published_arguments,
    add_recipe_arguments,
    add_workers_argument,
    example_text,
)
from pipeline.base.errors import ConfigError
from pipeline.data.preparation.corpus_files import selected
from pipeline.data.selection.select import DEDUP
from pipeline.ingest.corpora.catalogue import GROUPS
from pipeline.ingest.corpora.common_crawl import LANGUAGE
from pipeline.ingest.corpora.groups import group_of
from pipeline.ingest.corpora.published_dumps import ANY_LANGUAGE

EXAMPLES = example_text(
    "python -m pipeline.prepare --corpus sample --recipe roberta_tiny",
    "python -m pipeline.prepare --corpus news --input may/*.jsonl.zst --dedup near",
    "python -m pipeline.prepare --corpus news --input news/ --recipe runs/base/run.json",
    "python -m pipeline.prepare --corpus cc-news --dump 2016-09..2019-02 --dry-run",
)


def prepare_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse `words`, by default the command line. Raises ConfigError for values that are wrong for
    every corpus."""
    parser = Parser(
        prog="python -m pipeline.prepare",
        description="Turn raw text into Arrow shards with ten masks per sequence. `--corpus "
        "sample` needs no other option and no network; a tokenizer is trained if there is none. "
        "After an interruption, run the same command again to resume.",
        epilog=EXAMPLES,
    )
    add_input_arguments(parser)
    add_by_folder(parser)
    add_published_arguments(parser)
    _add_source_arguments(parser)
    add_recipe_arguments(parser)
    _add_selection_arguments(parser)
    parser.add_argument(
        "--tokenizer",
        type=Path,
        metavar="DIR",
        help="folder with tokenizer.json, vocab.txt, vocab.json + merges.txt, encoder.json + "
        "vocab.bpe (+ dict.txt for RoBERTa's ids) or a SentencePiece .model, or one such file by "
        "its published name, e.g. bert-base-uncased-vocab.txt (default: one trained on the "
        "corpus's text, or shared by named corpora, in $TENFOLD_ROOT/tokenizers)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="directory of the shards (default: "
        "$TENFOLD_ROOT/shards/<corpus>-<recipe>-<fingerprint>; TENFOLD_ROOT is ./data unless set)",
    )
    add_workers_argument(parser)
    add_part_argument(parser)
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="estimate documents, tokens, the peak of the disks and time, extraction included, "
        "from a small sample; write nothing",
    )
    parser.add_argument(
        "--compression",
        choices=["none", "zstd"],
        default="none",
        help="none is memory-mapped; zstd is a third smaller and needs data.order=blocks to train "
        "(default: none)",
    )
    parser.add_argument(
        "--max-bad-fraction",
        type=float,
        default=0.01,
        metavar="SHARE",
        help="largest share of unusable records, by number and by bytes; they are skipped and "
        "counted (default: 0.01)",
    )
    arguments = parser.parse_args(words)
    if not arguments.dedup:
        group = group_of(arguments.corpus, arguments.input, selected(arguments).corpora())
        arguments.dedup = group.dedup if group and not arguments.by_folder else "none"
    _check(arguments)
    return arguments


def _check(arguments: argparse.Namespace) -> None:
    """Raises ConfigError for values that are wrong for every corpus."""
    if not 0 <= arguments.max_bad_fraction < 1:
        raise ConfigError(f"--max-bad-fraction {arguments.max_bad_fraction}: choose one in [0, 1)")
    words: float | None = arguments.most_words
    if words is not None and not 1 <= words < 1e18:
        raise ConfigError(f"--most-words {words:g}: give a number of words such as 10e6")
    arguments.most_words = int(words or 0)
    if arguments.allow_short and arguments.corpus not in GROUPS:
        raise ConfigError(
            f"--allow-short is for groups ({', '.join(GROUPS)}), not {arguments.corpus}; omit it"
        )
    wanted = [item for item in arguments.filter if item.startswith("language=")]
    kept = arguments.language or LANGUAGE
    wants_others = kept != ANY_LANGUAGE and wanted not in ([], [f"language={kept}"])
    if wants_others and selected(arguments).months:
        raise ConfigError(
            f"--filter {wanted[0]}: --dump of months keeps language={kept} only; add --language "
            f"{wanted[0].partition('=')[2]}"
        )


def _add_source_arguments(parser: Parser) -> None:
    """Options about where a corpus comes from."""
    parser.add_argument(
        "--fetch",
        action="store_true",
        help="only download the Hub's copy, the URLs of --input, or the files of "
        "--dump, to $TENFOLD_ROOT/downloads, for compute nodes without a network; skips a group's "
        "members that have --input",
    )
    parser.add_argument(
        "--allow-short",
        action="store_true",
        help="accept a group (16gb, 160gb) with over a tenth less text than its published size",
    )
    parser.add_argument(
        "--allow-unknown",
        action="store_true",
        help="accept a corpus of which the tokenizer knows less than 90%% of the characters",
    )


def _add_selection_arguments(parser: Parser) -> None:
    """Options about which documents are kept."""
    parser.add_argument(
        "--dedup",
        choices=list(DEDUP),
        default="",
        help="drop exact copies of earlier documents; near: also near-duplicates, with a Jaccard "
        "index of 5-word runs above about 0.75 (default: near for a group of corpora, else none)",
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
        "--most-words",
        type=float,
        metavar="N",
        help="keep whole documents with at most so many words between white space in all, chosen "
        "by a hash of their text from those that no other rule drops, e.g. 10e6; the tokenizer is "
        "trained on them (default: all)",
    )
    add_filter_argument(parser)
    parser.add_argument(
        "--exclude",
        type=Path,
        metavar="FILE",
        help="drop the documents that a line of FILE names by its id or URL, the id or origin in "
        "documents.parquet, such as those that someone wants removed",
    )


def add_filter_argument(parser: argparse.ArgumentParser) -> None:
    """Add --filter, as `filters_by_corpus` takes it."""
    parser.add_argument(
        "--filter",
        nargs="+",
        action="extend",
        default=[],
        metavar="[CORPUS=]RULE",
        help="drop documents by the rules of a paper, c4 (which also cuts lines), gopher-quality, "
        "gopher-repetition or fineweb; those with fewer words than min-words=50, more than "
        "max-words=100000, a smaller share of words with letters than min-letters=0.8, a larger "
        "share of repeated lines than max-repeated=0.3, or in another language than language=en "
        "(default: none)",
    )
