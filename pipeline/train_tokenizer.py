"""Train a vocabulary: `python -m pipeline.train_tokenizer --corpus sample --output DIR`.

The text is a sample of the corpus with a fixed number of bytes: every split gives its share from
its start, so the sample is the same on every machine, and no more than it is read.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pipeline.command_line import (
    Parser,
    add_input_arguments,
    add_recipe_arguments,
    chosen_recipe,
    cores,
    data_root,
    downloads,
)
from pipeline.data.corpora.download import download_missing
from pipeline.data.corpora.sources import corpus_sources, describe_corpus, limit_sites
from pipeline.data.corpora.suitability import require_fit
from pipeline.data.corpora.urls import local_inputs
from pipeline.data.execution.workers import local_team
from pipeline.data.extraction.extract import extract
from pipeline.data.preparation.tokenizer import SAMPLE_BYTES, train_tokenizer
from pipeline.data.tokenizers.definitions import SPECIALS
from pipeline.errors import ConfigError, run_command


def main() -> None:
    parser = Parser(
        prog="python -m pipeline.train_tokenizer",
        description="Train a vocabulary on a corpus. The result loads with "
        "transformers.AutoTokenizer, and with pipeline.prepare --tokenizer DIR.",
    )
    add_input_arguments(parser)
    add_recipe_arguments(parser)
    parser.add_argument("--kind", choices=list(SPECIALS), help="kind of vocabulary (the recipe's)")
    parser.add_argument(
        "--vocab-size", type=int, help="tokens, special ones included (the recipe's)"
    )
    parser.add_argument(
        "--sample-bytes",
        type=float,
        default=SAMPLE_BYTES,
        metavar="N",
        help="bytes of text to train on, e.g. 2e9 (default: 1 GiB)",
    )
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="new folder")
    arguments = parser.parse_args()
    settings = [*arguments.set]
    if arguments.kind:
        settings.append(f"data.tokenizer={arguments.kind}")
    if arguments.vocab_size is not None:
        settings.append(f"data.vocab_size={arguments.vocab_size}")
    data = chosen_recipe(arguments.recipe, settings).data
    if not 1 <= arguments.sample_bytes < 2**63:
        raise ConfigError(f"--sample-bytes {arguments.sample_bytes}: choose a size, e.g. 1e9")
    if (arguments.output / "tokenizer.json").exists():
        raise ConfigError(
            f"--output {arguments.output} holds a tokenizer already; name a new folder"
        )
    inputs = local_inputs(arguments.input, downloads())
    inputs = download_missing(
        arguments.corpus, inputs, downloads(), data,
        revision=arguments.revision, allow_short=True,
    )  # fmt: skip
    _, sources = corpus_sources(
        arguments.corpus, inputs, arguments.text_field, arguments.plain_text
    )
    sources = limit_sites(sources, arguments.pages_per_domain)
    require_fit(sources, data)
    arguments.output.mkdir(parents=True, exist_ok=True)  # or fail before the work, not after
    corpus = describe_corpus(arguments.corpus, inputs, sources)
    sources = extract(sources, data_root() / "documents", local_team(cores()))
    train_tokenizer(sources, data, arguments.output, corpus, int(arguments.sample_bytes))


if __name__ == "__main__":
    run_command(main)
    sys.exit(0)
