"""Ids of the three kinds of vocabulary: speed per core compared with `tokenizers`, and to shards.

    python -m tests.benchmarks.bench_tokens [MB]

CPU seconds of one thread. Words change throughout, so that new ones keep occurring. `tokenizers`
gets the first 2 MB, in one `encode_batch_fast`, which skips offsets.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from pipeline.data.text.cleaning import CleanText, Offsets, clean
from pipeline.data.text.sentences import sentence_starts
from pipeline.data.tokenizers.document_encoder import CHECKED_SHARE, TextEncoder
from pipeline.data.tokenizers.folders import read_vocabulary
from pipeline.data.tokenizers.trainers import train_vocabulary
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.recipes import recipe
from tests.benchmarks.text import documents_of_size, real_documents, write_jsonl
from tests.benchmarks.timing import in_turn, median
from tests.benchmarks.vocabulary import bench_vocabulary, given_vocabularies
from tests.benchmarks.workers import do_next, new_worker

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
    texts = _batches(megabytes * 1_000_000)
    batches = [(text, sentence_starts(text.buffer, text.offsets)) for text in texts]
    size = sum(len(text.buffer) for text, _ in batches) / 1e6
    few = [document.decode() for document in documents_of_size(PEER_BYTES)]
    few_size = sum(len(document.encode()) for document in few) / 1e6
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_jsonl(folder / "text.jsonl", megabytes * 1_000_000)
        for name, vocabulary in _vocabularies(folder):
            tokenizer = Tokenizer.from_str(vocabulary.text_json())
            data = replace(
                recipe("roberta_base").data,
                tokenizer=vocabulary.kind,  # type: ignore[arg-type]
                lower_case=vocabulary.lower_case,
                vocab_size=vocabulary.size,
            )
            # a new one for each round, which knows no words yet
            encoders = [TextEncoder.create(vocabulary) for _ in range(ROUNDS + 1)]
            workers = [
                new_worker(folder / f"{name}-{n}", data, vocabulary) for n in range(ROUNDS + 1)
            ]
            works = {
                "ours": partial(_encode, encoders, batches),
                "theirs": partial(tokenizer.encode_batch_fast, few),
                "shards": partial(do_next, workers, folder / "text.jsonl"),
            }
            found = in_turn(works, ROUNDS)
            ours, theirs, shards = (median(each).cpu for each in found.values())
            yield name, size / ours, few_size / theirs, size / shards


def _encode(unused: list[TextEncoder], batches: list[tuple[CleanText, Offsets]]) -> None:
    """Ids by an encoder that has not seen a word yet, including the usual share of checks."""
    encoder = unused.pop()
    for text, sentences in batches:
        checked = np.arange(len(text.offsets) - 1) % CHECKED_SHARE == 0
        encoder.encode(text.buffer, text.offsets, sentences, checked)


def _vocabularies(folder: Path) -> Iterator[tuple[str, Vocabulary]]:
    """RoBERTa's and BERT's if available, else trained; unigram is trained like ALBERT's."""
    yield "byte-bpe 50,265", bench_vocabulary(folder / "byte-bpe")
    texts = [document.decode() for document in real_documents()]
    for case in ("uncased", "cased"):
        if given := given_vocabularies():
            (folder / case).mkdir()
            source = given / "bert" / f"bert-base-{case}-vocab.txt"
            (folder / case / "vocab.txt").write_bytes(source.read_bytes())
            vocabulary = read_vocabulary(folder / case)
        else:
            is_lower = case == "uncased"
            vocabulary = train_vocabulary(
                "wordpiece", lambda: iter(texts), 30_000, lower_case=is_lower
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


if __name__ == "__main__":
    main()
