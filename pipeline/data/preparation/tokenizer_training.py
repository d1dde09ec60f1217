"""A sample of input files -> a new tokenizer in a folder, with a report on it."""

from __future__ import annotations

from pathlib import Path

from pipeline.base.errors import DataError
from pipeline.base.publish import whole_folder
from pipeline.config.data_settings import DataSettings
from pipeline.data.preparation.holdout import why_no_text
from pipeline.data.selection.sample import LONG_RUNS, LONGEST_RUN, sample_texts, stored_sample
from pipeline.data.text.documents import DocumentCounts
from pipeline.data.text.text_tasks import SplitTask
from pipeline.data.tokenizers.folders import save_vocabulary
from pipeline.data.tokenizers.quality import report_quality
from pipeline.data.tokenizers.trainers import train_vocabulary
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.execution.workers import Executor, local_executor
from pipeline.ingest.documents.records import Source
from pipeline.ingest.documents.where import with_line

SAMPLE_BYTES = 1 << 30
"""Cleaned text to train on: more than 50,265 tokens need; `tokenizers` takes about 5 GB for it."""
REPORT_BYTES = 1 << 20
"""Cleaned text for the report on a new vocabulary, and for doubts about a given one."""


def train_tokenizer(
    sources: list[Source],
    data: DataSettings,
    directory: Path,
    corpus: str = "the sample",
    sample_bytes: int = SAMPLE_BYTES,
    executor: Executor | None = None,
    decided: list[SplitTask] | None = None,
) -> Vocabulary:
    """Train the recipe's tokenizer on a sample of `sources`, and save it as folder `directory`.

    corpus: describes the sources, see `corpora.describe_corpus`; stored with the tokenizer;
    executor: reads the sample, None for this process; decided: as `cut_shares` takes it. Raises
    DataError if there is no text, and TakenError if the folder holds files by then.
    """
    reader = executor or local_executor(1)
    with stored_sample(sources, sample_bytes, directory, reader, decided) as (texts, counts):
        vocabulary = train_vocabulary(
            data.tokenizer, texts, data.vocab_size, lower_case=data.lower_case
        )
    if counts.documents == 0:
        raise DataError(f"no text to train a tokenizer on: {why_no_text(sources, counts)}")
    text = f"{corpus}: {counts.documents:,} documents, {counts.bytes / 1e6:,.1f} MB"
    # appears whole: a killed training must not leave a folder that others take for a tokenizer
    with whole_folder(directory) as folder:
        save_vocabulary(vocabulary, folder, data.sequence_length, trained_on=text)
    print(
        f"tokenizer: trained {vocabulary.kind} with {vocabulary.size:,} tokens on {text} -> "
        f"{directory}"
    )
    shown = sample_texts(sources, REPORT_BYTES, DocumentCounts(), decided)
    for line in report_quality(vocabulary, shown):
        print(f"tokenizer: {line}")
    if long_runs := counts.noted.get(LONG_RUNS):
        print(
            f"tokenizer: cut {long_runs:,} documents for training after {LONGEST_RUN:,} characters "
            "without white space (DNA, base64, long URLs): no token needs more"
        )
    if counts.bad:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in counts.bad.items())
        print(f"tokenizer: skipped {reasons}, first {_example(counts, sources)}")
    return vocabulary


def _example(counts: DocumentCounts, sources: list[Source]) -> str:
    return with_line(counts.bad_example, sources)
