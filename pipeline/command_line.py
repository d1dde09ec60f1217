"""What the commands share: their common arguments and where results go by default."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import NoReturn

from pipeline.config.run import Run
from pipeline.config.settings import override
from pipeline.errors import ConfigError
from pipeline.recipes import RECIPES, recipe

DEFAULT_RECIPE = "roberta_base"


class Parser(argparse.ArgumentParser):
    """Arguments whose mistakes end as every other one: one line, exit code 2."""

    def error(self, message: str) -> NoReturn:
        """Say the mistake and where help is."""
        raise ConfigError(f"{message}; {self.prog} --help shows what there is")


def data_root() -> Path:
    """Where tokenizers and shards go: $TENFOLD_ROOT, or `data` in the current directory."""
    return Path(os.environ.get("TENFOLD_ROOT", "data"))


def add_input_arguments(parser: argparse.ArgumentParser) -> None:
    """--corpus, --input and how to read plain text and JSON."""
    parser.add_argument(
        "--corpus",
        required=True,
        metavar="NAME",
        help="wikipedia, bookcorpus, cc-news, openwebtext, stories, 16gb (the first two), 160gb "
        "(all five), sample (comes with the code), or a path",
    )
    parser.add_argument(
        "--input",
        nargs="+",
        action="extend",
        default=[],
        metavar="PATH",
        help="the corpus's files, directories or globs, or URLs of such (s3://, https://): JSONL, "
        "plain text, books, TEI, wikiextractor output, MediaWiki dumps, WARC and WET, tars of text "
        "(all also .gz .zst .xz .bz2 .lz4), Parquet; of a group MEMBER=PATH..., or one directory "
        "with a folder for each member (default: the Hub's copy of a named corpus)",
    )
    parser.add_argument(
        "--revision",
        default="",
        metavar="COMMIT",
        help="of the Hub's copy (default: the one that --explain names)",
    )
    parser.add_argument(
        "--text-field",
        default="",
        metavar="FIELD",
        help="field or column that holds the text (default: the first of text, body, content)",
    )
    parser.add_argument(
        "--plain-text",
        default="",
        choices=["file", "book", "blank_lines"],
        help="plain text files: one document a file, one book a file, or documents parted by blank "
        "lines (default: file for wikipedia, book for bookcorpus, else blank_lines)",
    )
    parser.add_argument(
        "--pages-per-domain",
        type=int,
        default=0,
        metavar="N",
        help="of each WARC or WET file by itself keep no more than N pages of a site, chosen by "
        "the hash of their urls (default: all)",
    )


def add_recipe_arguments(parser: argparse.ArgumentParser) -> None:
    """--recipe and --set."""
    parser.add_argument(
        "--recipe",
        default=DEFAULT_RECIPE,
        metavar="NAME",
        help=f"{', '.join(RECIPES)} (default: %(default)s)",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="PATH=VALUE",
        help="change a setting of the recipe, e.g. data.sequence_length=128; may be repeated",
    )


def chosen_recipe(name: str, settings: list[str]) -> Run:
    """The recipe with its settings changed; ConfigError for unknown names and illegal values."""
    return override(recipe(name), settings)


def downloads() -> Path:
    """Where copies from the Hub go."""
    return data_root() / "downloads"


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
