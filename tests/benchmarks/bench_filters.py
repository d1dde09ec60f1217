"""Rule sets of papers: speed per core, and verdicts compared with datatrove's, on the same text.

    python -m tests.benchmarks.bench_filters --peer PYTHON [--record]

Theirs are the filters with their defaults, but for FineWeb the paper's share of repeated text and
no rule for lists; run by PYTHON, a separate environment with datatrove and spacy. The documents are
those of `tests.golden.filters`. Verdicts are compared twice: with our words and sentences given to
datatrove, which --record writes to tests/golden, and with its own, which are spaCy's. Rates are of
CPU seconds without start-up, of one core, with its own words; alternating, medians.
"""

import argparse
import json
import os
import statistics
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from pipeline.data.selection.terms import find_terms
from pipeline.data.text.cleaning import CleanText, Offsets, clean
from pipeline.data.text.line_rules import CITATION
from pipeline.data.text.scripts import SPACELESS
from pipeline.data.text.sentences import sentence_starts
from pipeline.kernels.bits import Bytes
from tests.benchmarks.timing import Seconds, peer
from tests.golden.filters import REASONS, SETS, VERDICTS, real_documents, reasons

ROUNDS, TIMES = 3, 10
EVERY = 10
"""Rates are those of every tenth document."""
PEER = """
import json, sys, time
from importlib.metadata import version
from loguru import logger
logger.remove()
from datatrove.data import Document
from datatrove.pipeline.filters import (
    C4QualityFilter, FineWebQualityFilter, GopherQualityFilter, GopherRepetitionFilter)
from datatrove.pipeline.filters import c4_filters, fineweb_quality_filter
from datatrove.pipeline.filters import gopher_quality_filter, gopher_repetition_filter
from datatrove.utils import text as their_text

documents = [json.loads(line) for line in open(sys.argv[1])]
filters = {
    "c4": C4QualityFilter(),
    "gopher-quality": GopherQualityFilter(),
    "gopher-repetition": GopherRepetitionFilter(),
    "fineweb": FineWebQualityFilter(char_duplicates_ratio=0.1, new_line_ratio=float("inf")),
}
words, sentences = their_text.split_into_words, their_text.split_into_sentences
modules = (c4_filters, fineweb_quality_filter, gopher_quality_filter, gopher_repetition_filter)

def use_words(given):
    for module in modules:
        if hasattr(module, "split_into_words"):
            module.split_into_words = (
                (lambda text, language: current["document"]["words"]) if given else words)
        if hasattr(module, "split_into_sentences"):
            module.split_into_sentences = (
                (lambda text, language: [0] * current["document"]["sentences"][text])
                if given else sentences)

def verdict(name, document):
    current["document"] = document
    kept = filters[name].filter(Document(document["text"], ""))
    return "" if kept is True else kept[1]

current = {}
for line in sys.stdin:
    request = json.loads(line)
    use_words(request.get("given", False))
    if "version" in request:
        found = version("datatrove")
    elif "given" in request:  # document by document, as the words of the last few are kept
        found = [[verdict(name, document) for name in filters] for document in documents]
    else:
        their_text.split_into_parts.cache_clear()
        began_at = time.process_time()
        for document in documents[::request["every"]]:
            verdict(request["set"], document)
        found = time.process_time() - began_at
    print(json.dumps(found), flush=True)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", required=True, help="Python with datatrove and spacy")
    parser.add_argument("--record", action="store_true", help="write tests/golden/filters.json")
    arguments = parser.parse_args()
    documents = real_documents(Path(os.environ["TENFOLD_TEST_DATA"]))
    texts = documents.texts()
    print(f"{len(texts):,} documents, {len(documents.buffer) / 1e6:.1f} MB")
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        for text in texts:
            file.write(json.dumps(with_parts(text)) + "\n")
        file.flush()
        with peer(arguments.peer, PEER, file.name) as ask:
            given = by_set(ask(given=True))
            compare(documents, given, "our words")
            if arguments.record:
                record(documents, given, ask(version=True))
            compare(documents, by_set(ask(given=False)), "its own words")
            measure(clean(texts[::EVERY]), ask)


def by_set(found: list[list[str]]) -> dict[str, list[str]]:
    """Set -> our names of the reasons of the peer, which gives them document by document."""
    named = [[REASONS[reason] if reason else "" for reason in row] for row in found]
    return {name: [*column] for name, column in zip(SETS, zip(*named), strict=True)}


def with_parts(text: str) -> dict[str, Any]:
    """A document with its words, and the number of sentences of each line, as C4 sees it."""
    content, bounds = as_document(text)
    spans = find_terms(content, bounds).spans.tolist()
    lines = [CITATION.sub("", line) for line in text.split("\n")]
    return {
        "text": text,
        "words": [content[start:stop].tobytes().decode() for start, stop in spans],
        "sentences": {line: len(sentence_starts(*as_document(line))) for line in lines},
    }


def as_document(text: str) -> tuple[Bytes, Offsets]:
    """A buffer of one document, and its offsets."""
    content = np.frombuffer(text.encode() + b"\0", np.uint8)
    return content, np.array([0, len(content)])


def compare(documents: CleanText, theirs: dict[str, list[str]], words: str) -> None:
    """Print how many verdicts differ, and in which scripts: datatrove's words are English ones."""
    points = (np.frombuffer(text.encode("utf-32-le"), np.uint32) for text in documents.texts())
    spaceless = [SPACELESS[each].mean() > 0.2 for each in points]
    for name in SETS:
        ours = reasons(documents, name)
        pairs = [*zip(ours, theirs[name], strict=True)]
        differ = [pair for pair in pairs if bool(pair[0]) != bool(pair[1])]
        spaced = [pair for pair, is_so in zip(pairs, spaceless) if not is_so and pair in differ]
        print(
            f"{name} with {words}: {len(differ)} verdicts differ, {len(spaced)} of them among the "
            f"{spaceless.count(False):,} documents in scripts with spaces; "
            f"{sum(one != two for one, two in pairs)} reasons; "
            f"{len(ours) - ours.count(''):,} dropped"
        )
        for (one, two), count in Counter(spaced).most_common(5):
            print(f"  {count}: ours {one or 'kept'!r}, theirs {two or 'kept'!r}")


def measure(documents: CleanText, ask: Callable[..., float]) -> None:
    """Print rates of all sets on a share of the documents; ask: the peer for its CPU seconds."""
    size = len(documents.buffer) / 1e6

    def judge(name: str) -> None:
        for _ in range(TIMES):
            reasons(documents, name)

    for name in SETS:
        rates: tuple[list[float], list[float]] = ([], [])
        for _ in range(ROUNDS):
            seconds = Seconds.of(partial(judge, name))
            rates[0].append(TIMES * size / seconds.cpu)
            rates[1].append(size / ask(set=name, every=EVERY))
        mine, other = map(statistics.median, rates)
        print(f"{name}: ours {mine:.1f} MB/s, datatrove {other:.2f} MB/s, {mine / other:.0f}x")


def record(documents: CleanText, found: dict[str, list[str]], version: str) -> None:
    """Write the verdicts, as the indices of the documents of each reason."""
    chosen = {
        name: {
            reason: [index for index, other in enumerate(verdicts) if other == reason]
            for reason in sorted({*verdicts} - {""})
        }
        for name, verdicts in found.items()
    }
    content = {
        "datatrove": version,
        "documents": len(documents.raw_bytes),
        "xxh3_64": xxhash.xxh3_64_hexdigest(documents.buffer),
        "verdicts": chosen,
    }
    VERDICTS.write_text(json.dumps(content) + "\n")


if __name__ == "__main__":
    main()
