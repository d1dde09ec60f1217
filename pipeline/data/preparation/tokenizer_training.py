"""A sample of input files -> a new tokenizer in a folder, with a report on it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from pipeline.base.errors import DataError
from pipeline.base.progress import tracked
from pipeline.base.publish import whole_folder
from pipeline.config.data_settings import DataSettings
from pipeline.data.text.documents import DocumentCounts, read_batches
from pipeline.data.text.text_tasks import cut_tasks
from pipeline.data.tokenizers.folders import save_vocabulary
from pipeline.data.tokenizers.quality import report_quality
from pipeline.data.tokenizers.trainers import train_vocabulary
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.ingest.documents.records import Source, with_line

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
) -> Vocabulary:
    """Train the recipe's tokenizer on a sample of `sources`, and save it as folder `directory`.

    corpus: describes the sources, see `corpora.describe_corpus`; stored with the tokenizer. Raises
    DataError if there is no text, and TakenError if the folder holds files by then.
    """
    counts = DocumentCounts()

    def texts() -> Iterator[str]:
        nonlocal counts
        counts = DocumentCounts()
        return sample_texts(sources, sample_bytes, counts)

    vocabulary = train_vocabulary(
        data.tokenizer, texts, data.vocab_size, lower_case=data.lower_case
    )
    if counts.documents == 0:
        example = f" (first bad record: {_example(counts, sources)})" if counts.bad else ""
        raise DataError(
            f"the input has no text to train a tokenizer on{example}; give other files, or name "
            "the field with --text-field"
        )
    text = f"{corpus}: {counts.documents:,} documents, {counts.bytes / 1e6:,.1f} MB"
    with whole_folder(directory) as folder:
        save_vocabulary(vocabulary, folder, data.sequence_length, trained_on=text)
    print(
        f"tokenizer: trained {vocabulary.kind} with {vocabulary.size:,} tokens on {text} -> "
        f"{directory}"
    )
    for line in report_quality(vocabulary, sample_texts(sources, REPORT_BYTES, DocumentCounts())):
        print(f"tokenizer: {line}")
    if counts.bad:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in counts.bad.items())
        print(f"tokenizer: skipped {reasons}, first {_example(counts, sources)}")
    return vocabulary


def _example(counts: DocumentCounts, sources: list[Source]) -> str:
    return with_line(counts.bad_example, sources)


def sample_texts(sources: list[Source], sample_bytes: int, counts: DocumentCounts) -> Iterator[str]:
    """Cleaned documents from the start of every split, `sample_bytes` in total.

    counts: gets what was read.
    """
    tasks = cut_tasks(sources)
    total = sum(task.weight for task in tasks)
    for task in tracked(tasks, "sampling text", "splits"):
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
