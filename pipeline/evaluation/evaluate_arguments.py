"""The command line of pipeline.evaluate; it imports no torch."""

from __future__ import annotations

import argparse
from pathlib import Path

from pipeline.base.command_line import Parser, add_model_argument, example_text
from pipeline.base.errors import ConfigError
from pipeline.config.formats import PLL_NAMES


def parse_evaluate() -> argparse.Namespace:
    """The command line of pipeline.evaluate; --pseudo-perplexity is `sequences` or `text`.

    Raises ConfigError if there is nothing to score, or an option has no effect.
    """
    parser = Parser(
        prog="python -m pipeline.evaluate",
        description="Score a model without training it: loss, accuracy and perplexity on held-out "
        "sequences, grammar by minimal pairs, and words filled into sentences.",
        epilog=example_text(
            "python -m pipeline.evaluate runs/tiny --data data/shards/sample-roberta_tiny-*",
            "python -m pipeline.evaluate runs/tiny/2400 --data data/shards/sample-* --json",
            "python -m pipeline.evaluate my-model --data data/shards/news-* "
            "--pseudo-perplexity 100",
            "python -m pipeline.evaluate my-model --grammar BLiMP.zip",
        ),
    )
    add_model_argument(parser)
    parser.add_argument(
        "--data",
        type=Path,
        nargs="+",
        default=[],
        metavar="DIR",
        help="shards made by pipeline.prepare with the model's tokenizer; needed unless "
        "--grammar, --babylm, --cloze or --pseudo-perplexity FILE is given",
    )
    parser.add_argument(
        "--mask-rate",
        type=float,
        metavar="RATE",
        help="with --data: share of the held-out tokens to predict, with masks drawn at that rate; "
        "0 uses the masks stored in the shards (default: the rate that a run was validated with, "
        "validation.mask_rate; 0 for a folder)",
    )
    _add_sentences(parser)
    parser.add_argument(
        "--pseudo-perplexity",
        default="",
        metavar="N|FILE",
        help="mask each token in turn, of N held-out sequences or of each line of a text",
    )
    parser.add_argument(
        "--per-sequence",
        type=Path,
        metavar="FILE",
        help="with --data: write the sum of the loss at [MASK] and the number of such positions of "
        "each held-out sequence, as JSON",
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object; what is not finite is null"
    )
    arguments = parser.parse_args()
    arguments.sequences, arguments.text = _split_amount(arguments.pseudo_perplexity)
    _check(arguments)
    arguments.pll = arguments.pll or "token"
    if not arguments.predictions:
        model = arguments.model.absolute()
        # A checkpoint is named by its step, which other runs have too.
        name = f"{model.parent.name}-{model.name}" if model.name.isdigit() else model.stem
        arguments.predictions = Path("results", name, "main/zero_shot/mlm")
    return arguments


def _add_sentences(parser: Parser) -> None:
    """Add the options of scores that need no shards."""
    parser.add_argument(
        "--grammar",
        type=Path,
        metavar="PATH",
        help="minimal pairs: a folder, file or zip of .jsonl as in BLiMP, or of .txt as in Zorro; "
        "with --data, word frequencies are scored, too",
    )
    parser.add_argument(
        "--babylm",
        type=Path,
        metavar="FOLDER",
        help="BabyLM's evaluation data: score each folder of sentences in it as their pipeline "
        "does, and write the predictions",
    )
    parser.add_argument(
        "--predictions",
        type=Path,
        metavar="FOLDER",
        help="with --babylm: folder for TASK/SET/predictions.json (default: "
        "results/MODEL/main/zero_shot/mlm, where their scripts look)",
    )
    parser.add_argument(
        "--pll",
        choices=tuple(PLL_NAMES),
        help="with --grammar or --babylm: mask each token by itself, as published BabyLM scores "
        "are measured, or with the rest of its word (PLL-word-l2r); default: token",
    )
    parser.add_argument(
        "--cloze",
        type=Path,
        metavar="FILE",
        help="one sentence per line, with [MASK] or the model's own mask token: prints the five "
        "most probable tokens for each mask",
    )


def _split_amount(given: str) -> tuple[int, Path | None]:
    """The N or the FILE of --pseudo-perplexity."""
    try:
        sequences = int(given or 0)  # a file named 100 can be given as ./100
    except ValueError:
        return 0, Path(given)
    if sequences < 0:
        raise ConfigError(f"--pseudo-perplexity must not be negative, got {sequences}")
    return sequences, None


def _check(arguments: argparse.Namespace) -> None:
    """Raises ConfigError for options without the data that they are about, and for a rate that
    masks cannot have."""
    pairs = arguments.grammar or arguments.babylm
    rate, count = arguments.mask_rate, arguments.sequences
    if rate is not None and not 0 <= rate < 1:  # NaN, too
        raise ConfigError(f"--mask-rate must be in [0, 1), got {rate:g}")
    for option, given, about, needed in (
        (f"--pll {arguments.pll}", arguments.pll, pairs, "--grammar or --babylm"),
        ("--predictions", arguments.predictions, arguments.babylm, "--babylm"),
        (f"--pseudo-perplexity {count}", count, arguments.data, "--data"),
        ("--per-sequence", arguments.per_sequence, arguments.data, "--data"),
        (f"--mask-rate {rate}", rate is not None, arguments.data, "--data"),
    ):
        if given and not about:
            raise ConfigError(f"{option} has no effect without {needed}; give it too")
    if not (arguments.data or pairs or arguments.cloze or arguments.text):
        raise ConfigError("nothing to score; give --data, --grammar, --babylm, --cloze or a text")
