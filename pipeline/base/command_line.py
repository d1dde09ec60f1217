"""Arguments that commands share, and default directories."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from pipeline.base.errors import ConfigError
from pipeline.base.progress import note_loading

DEFAULT_RECIPE = "roberta_base"
HUB = "hf:"
"""Before the name of a recipe that is a model on the Hub."""
RECIPE_HELP = (
    "a recipe that `tenfold recipes` lists, the run.json of an earlier run, ./FOLDER of a "
    "transformers model to continue it, or hf:ORG/NAME on the Hub"
)


MOST_COLUMNS = 100
"""Width of help texts at most, on a wider terminal too."""


class HelpFormatter(argparse.HelpFormatter):
    """Wraps paragraphs at the terminal's width and keeps lists of lines unchanged."""

    def __init__(self, prog: str) -> None:
        """prog: name of the command."""
        columns = shutil.get_terminal_size().columns
        super().__init__(prog, width=min(columns, MOST_COLUMNS) - 2)  # 2: argparse's margin

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


class Parser(argparse.ArgumentParser):
    """A parser with examples in its help; an error is one line and exit code 2."""

    def __init__(self, **options: Any) -> None:
        """options: argparse's."""
        super().__init__(formatter_class=HelpFormatter, **options)

    def error(self, message: str) -> NoReturn:
        """Raise a ConfigError that points to --help."""
        raise ConfigError(f"{message}; see {self.prog} --help")


def example_text(*commands: str) -> str:
    """The examples at the end of a help text; each may span lines that end in a backslash."""
    lines = [line for command in commands for line in command.splitlines()]
    return "\n".join(["examples:", *(f"  {line}" for line in lines)])


def next_lines(*commands: Sequence[object]) -> list[str]:
    """`next: COMMAND`, and a line for each further one, quoted for a shell.

    commands: the name of a command and its words.
    """
    return [
        f"{'     ' if index else 'next:'} python -m pipeline.{shlex.join(map(_as_word, command))}"
        for index, command in enumerate(commands)
    ]


def _as_word(word: object) -> str:
    """A word of a command line; a path is not taken for an option."""
    return f"./{word}" if isinstance(word, Path) and str(word).startswith("-") else str(word)


def unused_path(path: Path) -> Path:
    """The path, with a number at its end if something is there: for an output that must be new."""
    names = (path, *(path.with_name(f"{path.name}-{number}") for number in range(2, 100)))
    return next((name for name in names if not name.exists()), path)


def data_root() -> Path:
    """The directory of tokenizers and shards: $TENFOLD_ROOT, or `data` in the current directory."""
    return Path(os.environ.get("TENFOLD_ROOT", "data"))


class _OneCorpus(argparse.Action):
    """Takes NAME or NAME@COMMIT, which sets `revision`, too.

    Refuses a second --corpus, for which all of --input would be read under the last name.
    """

    def __call__(
        self, parser: object, namespace: argparse.Namespace, value: Any, option: object = None
    ) -> None:
        given = value
        name, _, revision = value.partition("@")
        if revision and re.fullmatch(r"[\w-]+", name) and not Path(value).exists():
            value, namespace.revision = name, revision
        before = getattr(namespace, "given_corpus", given)
        if before != given:
            raise argparse.ArgumentError(
                self, f"{before} and {given} are both given; name a group, or see --by-folder"
            )
        namespace.given_corpus = given
        setattr(namespace, self.dest, value)


def add_input_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --corpus, --input and the options for reading them."""
    parser.add_argument(
        "--corpus",
        required=True,
        action=_OneCorpus,
        metavar="NAME",
        help="wikipedia, bookcorpus, cc-news, openwebtext, stories, 16gb (the first two), 160gb "
        "(all five), sample (shipped with the code), or a path; NAME@COMMIT for another commit of "
        "the Hub's copy",
    )
    parser.add_argument(
        "--input",
        nargs="+",
        action="extend",
        default=[],
        metavar="PATH",
        help="files, directories, globs or URLs (s3://, https://) of the corpus: JSONL, JSON "
        "arrays, CSV and TSV, plain text, books, wikiextractor output, MediaWiki dumps, WARC, WET, "
        "HTML, tars of text (all of these also compressed: .gz .zst .xz .bz2), zip, Parquet, "
        "Arrow; for a group MEMBER=PATH..., or one directory with a folder for each member "
        "(default: the Hub's copy of a named corpus)",
    )
    parser.set_defaults(revision="")
    add_reading_arguments(parser)


def add_by_folder(parser: argparse.ArgumentParser) -> None:
    """Add --by-folder, for commands that count each corpus by itself."""
    parser.add_argument(
        "--by-folder",
        action="store_true",
        help="treat every folder and file in the directory --input as a corpus of that name, such "
        "as a language: en/, sw/, yo.jsonl.gz; batch.mixture_exponent sets their weights",
    )


def add_reading_arguments(parser: argparse.ArgumentParser) -> None:
    """--text-field, --plain-text and --map."""
    parser.add_argument(
        "--text-field",
        default="",
        metavar="FIELD",
        help="field or column with the text; a.b for a nested one (default: the first of text, "
        "body and content that is a string)",
    )
    parser.add_argument(
        "--plain-text",
        default="",
        choices=["file", "book", "blank_lines", "lines"],
        help="how to split plain text files: one document per file, one book per file, documents "
        "separated by blank lines, or one document per line (default: file for wikipedia, book for "
        "bookcorpus, else blank_lines)",
    )
    parser.add_argument(
        "--map",
        default="",
        metavar="FILE.py:FUNCTION",
        help="call your function with each document before anything else reads its text; it "
        "returns the document, possibly with a new text, or None to drop it",
    )


def add_published_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --dump and how its files are fetched."""
    parser.add_argument(
        "--dump",
        nargs="+",
        action="extend",
        default=[],
        metavar="WHAT",
        help="months of Common Crawl's CC-NEWS, e.g. 2016-09..2019-02, as the files of cc-news, or "
        "a wiki's dump, e.g. enwiki/20260101, as those of wikipedia, or both: each file is "
        "downloaded, checked, extracted and removed",
    )
    parser.add_argument(
        "--skip-missing",
        action="store_true",
        help="skip files of months that are listed but do not exist (HTTP 404), and name them",
    )
    parser.add_argument(
        "--language",
        default="",
        metavar="CODE",
        help="keep only pages in this language from WARC and WET files, e.g. en; any keeps all "
        "languages (default: en for months of --dump, else any)",
    )


def add_recipe_arguments(
    parser: argparse.ArgumentParser, default: str = f" (default: {DEFAULT_RECIPE})"
) -> None:
    """Add --recipe and --set, for commands that need some settings of a run.

    default: end of the help of --recipe; empty if the command does without settings.
    """
    name = DEFAULT_RECIPE if default else ""
    parser.add_argument("--recipe", default=name, metavar="RECIPE", help=f"{RECIPE_HELP}{default}")
    _add_changes(parser, "data.sequence_length=128")


def add_training_arguments(parser: argparse.ArgumentParser) -> None:
    """Add RECIPE, --set and --ds, for commands that need a whole run."""
    parser.add_argument("recipe", metavar="RECIPE", help=RECIPE_HELP)
    _add_changes(parser, "optimizer.peak_lr=1e-3")
    parser.add_argument(
        "--ds",
        default="zero1",
        metavar="NAME",
        help="DeepSpeed file that sets how memory is used: a name in ds_configs, or a path "
        "(default: zero1)",
    )


def _add_changes(parser: argparse.ArgumentParser, example: str) -> None:
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="PATH=VALUE",
        help=f"change a setting of the recipe, e.g. {example}; may be repeated",
    )


def add_workers_argument(parser: argparse.ArgumentParser) -> None:
    """Add --workers, for a command that may also run under MPI; None without it."""
    parser.add_argument(
        "--workers",
        type=_workers,
        metavar="N",
        help="number of processes (default: one per core; under srun or mpiexec: one per rank)",
    )


def add_part_argument(parser: argparse.ArgumentParser) -> None:
    """Add --part: the share of a job in an array, from (1, N) to (N, N); None without it."""
    parser.add_argument(
        "--part",
        type=_part,
        metavar="I/N",
        help="do the I-th of N shares of the work, 1/N to N/N, e.g. in a job array, then whatever "
        "other parts have not started; the last part to finish publishes the shards",
    )


def _workers(text: str) -> int:
    if not (text.isdecimal() and int(text)):  # int() takes signs and spaces, too
        raise ConfigError(f"--workers must be positive, got {text}; omit it for all cores")
    return int(text)


def _part(text: str) -> tuple[int, int]:
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise ConfigError(f"--part {text}: name one of N parts, 1/N to N/N, e.g. 1/4 to 4/4")
    return int(number), int(count)


def add_model_argument(parser: argparse.ArgumentParser) -> None:
    """Add MODEL_OR_RUN."""
    parser.add_argument(
        "model",
        type=Path,
        metavar="MODEL_OR_RUN",
        help="directory of a run, RUN/STEP, or a folder with config.json and model.safetensors",
    )


def parse_before(package: str, parse: Callable[[], object]) -> None:
    """Read the command line before modules are imported that need a package.

    So --help and mistakes end at once, and a terminal shows what is loading. `parse` is called
    again by the command itself.
    """
    parse()
    note_loading(package)


def check_least(*counts: tuple[str, int, int]) -> None:
    """Raise ConfigError for a count below its least value; counts: option, value, least value."""
    for option, value, least in counts:
        if value < least:
            raise ConfigError(f"{option} must be {least} or more, got {value}")


def downloads() -> Path:
    """The directory of downloaded files."""
    return data_root() / "downloads"


def cores() -> int:
    """The number of cores that this process may use."""
    # A job may be bound to some cores; cpu_count counts those of the machine.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
