"""Wikitext to prose: speed per core beside mwparserfromhell's own `strip_code`, and holes left.

    python -m tests.benchmarks.bench_extraction DUMP.xml.bz2

CPU seconds of one thread, the two in turn, medians. The dump is the user's: none comes with the
code.
"""

from __future__ import annotations

import re
import statistics
import sys
import time
from collections.abc import Callable

import mwparserfromhell

from pipeline.data import mediawiki
from pipeline.data.documents import sniff
from pipeline.data.wikitext import prose

ROUNDS = 3
HOLE = re.compile(r"\( ?[;,:]|[;,] ?\)|\( ?\)| [,;](?= )|, ?,")


def main() -> None:
    if len(sys.argv) != 2:
        print("no dump given: nothing to measure")
        return
    pages: list[str] = []
    mediawiki.prose = lambda wikitext: pages.append(wikitext) or "x"  # type: ignore[func-returns-value]
    source = sniff(sys.argv[1], "wikipedia", "dump")
    kept = [*mediawiki.read_articles(source)]
    ways: dict[str, Callable[[str], str]] = {
        "ours": prose,
        "strip_code": lambda page: str(mwparserfromhell.parse(page).strip_code()),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    texts: dict[str, list[str]] = {}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            began_at = time.process_time()
            texts[name] = [way(page) for page in pages]
            seconds[name].append(time.process_time() - began_at)
    size = sum(len(page.encode()) for page in pages)
    print(f"{len(kept)} pages, {len(pages)} articles, {size / 1e6:.1f} MB of wikitext")
    for name in ways:
        speed = size / statistics.median(seconds[name]) / 1e6
        holes = sum(len(HOLE.findall(text)) for text in texts[name])
        prose_size = sum(map(len, texts[name])) / 1e6
        print(f"{name}: {speed:.2f} MB/s of wikitext, {prose_size:.2f} MB of text, {holes} holes")


if __name__ == "__main__":
    main()
