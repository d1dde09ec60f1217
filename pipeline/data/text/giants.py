"""Giant documents, cut into several, so that memory does not grow with a document.

Ordinary documents stay whole: a cut comes after eight million characters (War and Peace has three),
or in a run of half a million characters without white space, which is not text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from pipeline.ingest.documents.records import Record

MOST_CHARACTERS = 1 << 23
"""Most characters of a document."""
RUN_CHARACTERS = 1 << 19
"""Characters without white space after which a document is cut."""

_SPACE = re.compile(r"\s")


def in_pieces(record: Record) -> Iterator[Record]:
    """Yield the record itself, or several with parts of its text, whose ids end in their number."""
    text = record.text
    if len(text) <= RUN_CHARACTERS or (stop := _stop(text, 0)) == len(text):
        yield record
        return
    start, number = 0, 0
    while start < len(text):
        yield replace(record, id=f"{record.id}:{number}", text=text[start:stop])
        start, number = stop, number + 1
        stop = _stop(text, start)


def _stop(text: str, start: int) -> int:
    """The end of the piece that begins at `start`."""
    end = min(len(text), start + MOST_CHARACTERS)
    if (run := run_end(text, start, end, RUN_CHARACTERS)) >= 0:
        return run
    if end == len(text):
        return end
    # between paragraphs if there is an end of one, else between words
    for white in ("\n", " "):
        if (last := text.rfind(white, end - RUN_CHARACTERS, end)) >= 0:
            return last + 1
    return end


def run_end(text: str, start: int, stop: int, characters: int) -> int:
    """The end of the first `characters` without white space in a part of a text; -1 if none.

    Every run of twice that length is found, and none that is shorter.
    """
    # windows side by side, one search each: any run of twice their length fills one
    for at in range(start, stop - characters + 1, characters):
        if not _SPACE.search(text, at, at + characters):
            return at + characters
    return -1
