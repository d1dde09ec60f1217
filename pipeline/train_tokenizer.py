"""Train a vocabulary: `python -m pipeline.train_tokenizer --corpus sample --output DIR`.

The text is a sample of the corpus with a fixed number of bytes: every split gives its share from
its start, so the sample is the same on every machine, and no more than it is read.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

from tqdm import tqdm

from pipeline.command_line import (
    Parser,
    add_input_arguments,
    add_recipe_arguments,
    chosen_recipe,
    cores,
    data_root,
    downloads,
)
from pipeline.config.run import Data
from pipeline.data.corpora.download import obtained
from pipeline.data.corpora.sources import corpus_sources, describe_corpus, limit_sites
from pipeline.data.corpora.suitability import require_fit
from pipeline.data.corpora.urls import local_inputs
from pipeline.data.documents.records import Source
from pipeline.data.execution.tasks import cut_tasks
from pipeline.data.execution.workers import local_team
from pipeline.data.extraction.extract import extracted
from pipeline.data.text_batches import Counts, read_batches
from pipeline.data.tokenizer_folders import save_vocabulary
from pipeline.data.tokenizer_json import SPECIALS
from pipeline.data.tokenizer_training import train
from pipeline.data.vocabulary import Vocabulary
from pipeline.data.vocabulary_report import report
from pipeline.errors import ConfigError, DataError, run_command

SAMPLE_BYTES = 1 << 30
"""Of cleaned text. 50,265 tokens are settled well before; `tokenizers` needs about 5 GB for it."""

REPORT_BYTES = 1 << 20
"""Of cleaned text, to try the vocabulary on."""


def train_tokenizer(
    sources: list[Source],
    data: Data,
    directory: Path,
    corpus: str = "the sample",
    sample_bytes: int = SAMPLE_BYTES,
) -> Vocabulary:
    """Train what `data` asks for on a sample of `sources`; DataError when there is no text.

    corpus: what the sources are, see `corpora.describe_corpus`; kept in the folder.
    """
    counts = Counts()

    def texts() -> Iterator[str]:
        nonlocal counts
        counts = Counts()
        return sample_texts(sources, sample_bytes, counts)

    vocabulary = train(data.tokenizer, texts, data.vocab_size, lower_case=data.lower_case)
    if counts.documents == 0:
        example = f" (first bad record: {counts.bad_example})" if counts.bad else ""
        raise DataError(f"the input holds no text to train a tokenizer on{example}")
    text = f"{corpus}: {counts.documents:,} documents, {counts.bytes / 1e6:,.1f} MB"
    save_vocabulary(vocabulary, directory, data.sequence_length, trained_on=text)
    print(
        f"tokenizer: trained {vocabulary.kind} with {vocabulary.size:,} tokens on {text} -> "
        f"{directory}"
    )
    for line in report(vocabulary, sample_texts(sources, REPORT_BYTES, Counts())):
        print(f"tokenizer: {line}")
    if counts.bad:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in counts.bad.items())
        print(f"tokenizer: left out {reasons}, first {counts.bad_example}")
    return vocabulary


def sample_texts(sources: list[Source], sample_bytes: int, counts: Counts) -> Iterator[str]:
    """Cleaned documents from the start of every split, `sample_bytes` in all; counts: filled."""
    tasks = cut_tasks(sources)
    total = sum(task.weight for task in tasks)
    for task in tqdm(tasks, desc="reading text to train on", unit="split", disable=None):
        quota = max(1, sample_bytes * task.weight // max(total, 1))
        taken = 0
        for batch in read_batches(task.pieces, 0, counts):
            bounds = batch.offsets.tolist()
            for start, stop in itertools.pairwise(bounds):
                counts.documents += 1
                counts.bytes += stop - start - 1
                taken += stop - start - 1
                yield batch.buffer[start : stop - 1].tobytes().decode()
                if taken >= quota:
                    break
            if taken >= quota:
                break


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
    inputs = obtained(
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
    sources = extracted(sources, data_root() / "documents", local_team(cores()))
    train_tokenizer(sources, data, arguments.output, corpus, int(arguments.sample_bytes))


if __name__ == "__main__":
    run_command(main)
    sys.exit(0)
