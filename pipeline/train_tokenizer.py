"""Train a vocabulary: `python -m pipeline.train_tokenizer --corpus sample --output DIR`.

The text is a sample of the corpus with a fixed number of bytes: every split gives its share from
its start, so the sample is the same on every machine, and only the sample is read.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pipeline.base.command_line import (
    Parser,
    add_by_folder,
    add_input_arguments,
    add_published_arguments,
    add_recipe_arguments,
    cores,
    data_root,
    example_text,
)
from pipeline.base.errors import ConfigError, run_command
from pipeline.costs.preparation.dry_run import require_room_to_train
from pipeline.data.preparation.corpus_files import find_sources
from pipeline.data.preparation.tokenizer_training import SAMPLE_BYTES, train_tokenizer
from pipeline.data.tokenizers.definitions import SPECIALS
from pipeline.execution.workers import local_executor
from pipeline.ingest.extraction.extract import extract
from pipeline.released.choice import read_recipe


def main() -> None:
    parser = Parser(
        prog="python -m pipeline.train_tokenizer",
        description="Train a vocabulary on a corpus. The result loads with "
        "transformers.AutoTokenizer, and with pipeline.prepare --tokenizer DIR.",
        epilog=example_text(
            "python -m pipeline.train_tokenizer --corpus sample --vocab-size 4096 --output tok",
            "python -m pipeline.train_tokenizer --corpus my-corpus --input shards/*.jsonl.zst \\\n"
            "    --kind wordpiece --sample-bytes 2e9 --output my-tokenizer",
            "python -m pipeline.train_tokenizer --corpus 16gb --recipe bert_base --output bert",
        ),
    )
    add_input_arguments(parser)
    add_by_folder(parser)
    add_published_arguments(parser)
    add_recipe_arguments(parser)
    parser.add_argument(
        "--kind", choices=list(SPECIALS), help="kind of vocabulary (default: the recipe's)"
    )
    parser.add_argument(
        "--vocab-size",
        type=int,
        metavar="N",
        help="number of tokens, with the special ones (default: the recipe's)",
    )
    parser.add_argument(
        "--sample-bytes",
        type=float,
        default=SAMPLE_BYTES,
        metavar="N",
        help="bytes of text to train on, e.g. 2e9 (default: 1 GiB)",
    )
    # find_sources reads them; there are no such options here
    parser.set_defaults(filter=[], exclude=None)
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="new folder")
    arguments = parser.parse_args()
    settings = [*arguments.set]
    if arguments.kind:
        settings.append(f"data.tokenizer={arguments.kind}")
    if arguments.vocab_size is not None:
        settings.append(f"data.vocab_size={arguments.vocab_size}")
    data = read_recipe(arguments.recipe, settings).run.data
    if not 1 <= arguments.sample_bytes < 2**63:
        raise ConfigError(f"--sample-bytes {arguments.sample_bytes}: choose a size, e.g. 1e9")
    if arguments.output.is_dir() and any(arguments.output.iterdir()):
        raise ConfigError(f"--output {arguments.output} already exists; name a new folder")
    found = find_sources(arguments, data)
    require_room_to_train(found.files, arguments.output, int(arguments.sample_bytes))
    arguments.output.mkdir(parents=True, exist_ok=True)  # fails before the work, not after it
    executor = local_executor(cores())
    sources = extract(found.files, data_root() / "documents", executor)
    train_tokenizer(
        sources, data, arguments.output, found.description, int(arguments.sample_bytes), executor
    )


if __name__ == "__main__":
    run_command(main)
    sys.exit(0)
