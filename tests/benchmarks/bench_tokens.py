"""Ids of the three kinds of vocabulary: speed per core compared with `tokenizers`, and to shards.

    python -m tests.benchmarks.bench_tokens [MB]

CPU seconds of one thread. Words change throughout, so that new ones keep occurring. `tokenizers`
gets the first 2 MB, in one `encode_batch_fast`, which skips offsets.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from pipeline.data.preparation.worker import PrepareJob, Worker
from pipeline.data.text.cleaning import CleanText, clean
from pipeline.data.text.sentences import sentence_starts
from pipeline.data.text.text_tasks import SPLIT_BYTES, cut_tasks
from pipeline.data.tokenizers.document_encoder import CHECKED_SHARE, TextEncoder
from pipeline.data.tokenizers.folders import read_vocabulary
from pipeline.data.tokenizers.trainers import train_vocabulary
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.ingest.corpora.sources import corpus_sources
from pipeline.recipes import recipe
from tests.benchmarks.text import documents_of_size, real_documents, write_jsonl
from tests.benchmarks.vocabulary import bench_vocabulary

PEER_BYTES = 2_000_000
ROUNDS = 3
GOAL = 10
"""Speed relative to `tokenizers`."""


def main() -> None:
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    for name, ours, theirs, shards in measure(megabytes):
        print(
            f"{name}: ids {ours:.1f} MB/s per core, JSONL to shards with ten masks "
            f"{shards:.1f}; tokenizers' ids {theirs:.2f}: {ours / theirs:.0f}x and "
            f"{shards / theirs:.0f}x (goal {GOAL}x)"
        )


def measure(megabytes: int) -> Iterator[tuple[str, float, float, float]]:
    """Of each vocabulary: name, and MB/s per core of our ids, of theirs, and to shards."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    batches = list(_batches(megabytes * 1_000_000))
    size = sum(len(batch.buffer) for batch in batches) / 1e6
    few = list(documents_of_size(PEER_BYTES))
    with tempfile.TemporaryDirectory() as folder:
        write_jsonl(Path(folder) / "text.jsonl", megabytes * 1_000_000)
        for name, vocabulary in _vocabularies(Path(folder)):
            _encode_seconds(TextEncoder.create(vocabulary), batches[:1])  # compiles
            tokenizer = Tokenizer.from_str(vocabulary.text_json())
            ours, theirs, whole = [], [], []
            for number in range(ROUNDS):
                ours.append(size / _encode_seconds(TextEncoder.create(vocabulary), batches))
                started = time.process_time()
                tokenizer.encode_batch_fast([text.decode() for text in few])
                seconds = time.process_time() - started
                theirs.append(sum(map(len, few)) / 1e6 / seconds)
                whole.append(_shard_speed(Path(folder), vocabulary, f"{name}-{number}", size))
            yield (name, *map(statistics.median, (ours, theirs, whole)))


def _vocabularies(folder: Path) -> Iterator[tuple[str, Vocabulary]]:
    """RoBERTa's and BERT's if available, else trained; unigram is trained like ALBERT's."""
    yield "byte-bpe 50,265", bench_vocabulary(folder / "byte-bpe")
    texts = [document.decode() for document in real_documents()]
    given = Path(os.environ.get("TENFOLD_TEST_DATA", "/nonexistent")) / "tokenizers" / "bert"
    for case in ("uncased", "cased"):
        lower_case = case == "uncased"
        if given.is_dir():
            (folder / case).mkdir()
            source = given / f"bert-base-{case}-vocab.txt"
            (folder / case / "vocab.txt").write_bytes(source.read_bytes())
            vocabulary = read_vocabulary(folder / case)
        else:
            vocabulary = train_vocabulary(
                "wordpiece", lambda: iter(texts), 30_000, lower_case=lower_case
            )
        yield f"wordpiece {case} {vocabulary.size:,}", vocabulary
    unigram = train_vocabulary("unigram", lambda: iter(texts), 30_000, lower_case=True)
    yield f"unigram uncased {unigram.size:,}", unigram


def _batches(size: int) -> Iterator[CleanText]:
    """Documents in batches of about four megabytes, as a worker handles them."""
    held: list[str] = []
    length = 0
    for document in documents_of_size(size):
        held.append(document.decode())
        length += len(document)
        if length >= 1 << 22:
            yield clean(held)
            held, length = [], 0
    if held:
        yield clean(held)


def _encode_seconds(encoder: TextEncoder, batches: list[CleanText]) -> float:
    """CPU seconds for ids and sentence starts, including the usual share of checks."""
    given = [(text, sentence_starts(text.buffer, text.offsets)) for text in batches]
    started = time.process_time()
    for text, sentences in given:
        checked = np.arange(len(text.offsets) - 1) % CHECKED_SHARE == 0
        encoder.encode(text.buffer, text.offsets, sentences, checked)
    return time.process_time() - started


def _shard_speed(folder: Path, vocabulary: Vocabulary, name: str, size: float) -> float:
    """Megabytes of text per CPU second, from JSONL to shards with ten masks."""
    run = recipe("roberta_base")
    data = replace(
        run.data,
        tokenizer=vocabulary.kind,  # type: ignore[arg-type]
        lower_case=vocabulary.lower_case,
        vocab_size=vocabulary.size,
    )
    work = folder / name.replace(" ", "-")
    work.mkdir()
    job = PrepareJob(work, data, ("bench",), {"bench": 0}, SPLIT_BYTES, "none", "fast")
    worker = Worker.create(job, vocabulary)
    _, sources = corpus_sources(str(folder / "text.jsonl"), [])
    sources = [replace(source, corpus="bench") for source in sources]
    started = time.process_time()
    for task in cut_tasks(sources):
        worker.do(task)
    return size / (time.process_time() - started)


if __name__ == "__main__":
    main()
