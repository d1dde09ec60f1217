"""Text for benchmarks: any number of bytes, from real text with changed words."""

import itertools
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

from pipeline.data.text.documents import DocumentCounts, read_batches
from pipeline.data.text.text_tasks import cut_tasks
from pipeline.ingest.corpora.sources import corpus_sources

_LETTERS = b"abcdefghijklmnopqrstuvwxyz"


def real_documents() -> list[bytes]:
    """Cleaned documents: of $TENFOLD_TEST_DATA if it is set, else of the shipped sample."""
    folder = Path(os.environ.get("TENFOLD_TEST_DATA", "/nonexistent"))
    given = {
        "wikipedia": folder / "wikipedia" / "extracted" / "wiki_0*",
        "bookcorpus": folder / "bookcorpus",
        "stories": folder / "stories",
        "cc-news": folder / "cc-news" / "wikinews.jsonl",
    }
    sources = []
    for corpus, path in given.items():
        if folder.is_dir():
            sources += corpus_sources(corpus, [str(path)])[1]
    sources = sources or corpus_sources("sample", [])[1]
    documents = []
    for task in cut_tasks(sources, 1 << 23):
        for batch in read_batches(task.pieces, 0, DocumentCounts()):
            bounds = batch.offsets.tolist()
            documents += [batch.buffer[a : b - 1].tobytes() for a, b in itertools.pairwise(bounds)]
    return documents


def documents_of_size(size: int, typical: int = 2300) -> Iterator[bytes]:
    """Documents of about `typical` bytes, `size` bytes in all.

    The first pass uses the text itself, cut at paragraphs; every later pass exchanges letters in a
    fifth of the documents, so that words that no cache has seen keep occurring.
    """
    paragraphs = [line for document in real_documents() for line in document.split(b"\n")]
    rng = random.Random(0)
    made = 0
    for copy in range(1 << 30):
        order = list(range(len(paragraphs)))
        if copy:
            rng.shuffle(order)
        document: list[bytes] = []
        length = 0
        for index in order:
            document.append(paragraphs[index])
            length += len(paragraphs[index]) + 1
            if length >= typical:
                text = b"\n".join(document)
                if copy and rng.random() < 0.2:
                    shuffled = bytes(rng.sample(_LETTERS, len(_LETTERS)))
                    text = text.translate(bytes.maketrans(_LETTERS, shuffled))
                yield text
                made += len(text)
                document, length = [], 0
                if made >= size:
                    return


def write_jsonl(path: Path, size: int) -> int:
    """A JSONL file with about `size` bytes of text; returns the file's bytes."""
    with path.open("w", encoding="utf-8") as file:
        for number, document in enumerate(documents_of_size(size)):
            record = {
                "id": number,
                "url": f"https://example.org/{number}",
                "text": document.decode(),
            }
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    return path.stat().st_size
