"""Notes on plain text that may be split in the wrong places, with the option to change it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pipeline.ingest.documents.byte_blocks import read_blocks, with_newlines
from pipeline.ingest.documents.plain_text import GAP
from pipeline.ingest.documents.records import PLAIN_TEXT_FORMATS, PlainText, Source
from pipeline.ingest.documents.sniff import DATA_NAME

MOST_DOCUMENTS = 10
"""Documents per plain text file; more are reported."""
LONG_DOCUMENT = 4 << 20
"""Bytes of a document of plain text; a longer one is reported."""
SAMPLED_FILES = 8
"""Plain text files whose first bytes are looked at before the run; the run counts all of them."""
_SAMPLED_BYTES = LONG_DOCUMENT + 1
_EXPANSION = 3
"""Bytes of text per compressed byte, about."""
# Lines that are documents, as measured on 50 novels of several layouts, of which those with a
# paragraph in each line come closest (at least 28 % of the lines are short), and on articles of
# Wikinews and pages of Common Crawl, each in a line (at most 2 % are short).
_MANY_LINES = 100
"""Lines without a blank line between them, at least."""
_SHORT_LINE = 200
"""Bytes; a shorter line is rarely a document."""
_FEW_SHORT = 0.15
_MANY_ENDED = 0.5
"""The share of lines that end as a sentence does, at least; in a log none do."""
_LAST = frozenset(".!?\u2026\u3002\uff01\uff1f\u061f\u06d4\u0964\u1362\u0589")
_CLOSING = "\"')]}\u00bb\u2019\u201d\u300d\u300f\uff09"
_NAMED = 5
"""At most this many files are listed by name."""

_SPLIT: dict[PlainText, str] = {
    "file": "one document per file",
    "book": "one book per file",
    "blank_lines": "documents between blank lines",
    "lines": "one document per line",
}


def plain_text_notes(sources: list[Source]) -> Iterator[str]:
    """Lines about plain text that may be split in the wrong places, from a few of the files."""
    corpora: dict[str, list[Source]] = {}
    for source in sources:
        if any(format in PLAIN_TEXT_FORMATS for format, *_ in source.kinds):
            corpora.setdefault(source.corpus, []).append(source)
    for corpus, with_text in corpora.items():
        split = with_text[0].plain_text
        texts = (file for source in with_text for file in _texts(source))
        if tables := [file.name for file in texts if DATA_NAME.search(file.name)]:
            # only --plain-text, meant for their neighbours, turns these into text
            shown = ", ".join(tables[:_NAMED]) + (", ..." if len(tables) > _NAMED else "")
            yield (
                f"note: {corpus}: --plain-text reads {shown} as {_SPLIT[split]}; to read "
                "records instead, prepare such files by themselves, without --plain-text"
            )
        starts = [*map(_start, _sampled(with_text))]
        documents = [document for start in starts for document in start.documents]
        by_line = [text for text in documents if split != "lines" and looks_like_documents(text)]
        if sum(map(len, by_line)) * 2 > sum(map(len, documents)):
            size = sum(map(len, by_line)) // sum(text.count(b"\n") + 1 for text in by_line)
            yield (
                f"note: {corpus}: plain text is read as {_SPLIT[split]} (--plain-text {split}), "
                f"but its lines look like documents ({size:,} bytes on average, most end as a "
                "sentence does, no blank lines between them); if they are, give --plain-text lines"
            )
            continue
        kinds = [kind for source in with_text for kind in source.kinds]
        kinds = [kind for kind in kinds if kind[0] in PLAIN_TEXT_FORMATS]
        # by bytes: files can differ in size a thousandfold
        share = sum(start.size for start in starts) / max(sum(size for *_, size in kinds), 1)
        counts = {
            "files": sum(number for _, _, number, _ in kinds),
            "documents": round(len(documents) / max(share, 1e-12)),
            "long": sum(len(text) > LONG_DOCUMENT for text in documents),
        }
        yield from describe_plain_text(corpus, split, counts, "about ")


def _texts(source: Source) -> list[Source]:
    """The files of plain text of a file or group."""
    return [file for file in source.files if file.format in PLAIN_TEXT_FORMATS]


def _sampled(sources: list[Source]) -> list[Source]:
    """A few of the files of plain text, large and small ones."""
    chosen = _spread(sources, SAMPLED_FILES)
    each = SAMPLED_FILES // len(chosen)
    return [file for source in chosen for file in _spread(_texts(source), each)]


def _spread(sources: list[Source], most: int) -> list[Source]:
    """At most so many, evenly spaced by rank of size, the largest one included."""
    by_size = sorted(sources, key=lambda source: -source.size)
    count = min(most, len(by_size))
    return [by_size[i * (len(by_size) - 1) // max(count - 1, 1)] for i in range(count)]


def looks_like_documents(text: bytes) -> bool:
    """True if the lines of what is read as one document look like documents themselves.

    They are many and long, and end as sentences do. Lines of wrapped text, verse, lists and
    dialogue are short, and those of logs and tables do not end so.
    """
    lines = [line for line in text.split(b"\n") if line.strip()]
    short = sum(len(line) < _SHORT_LINE for line in lines)
    if len(lines) < _MANY_LINES or short > _FEW_SHORT * len(lines):
        return False
    ended = sum(_ends_sentence(line) for line in lines)
    return ended >= _MANY_ENDED * len(lines)


def _ends_sentence(line: bytes) -> bool:
    # The last bytes may begin inside a character.
    end = line[-16:].decode(errors="ignore").rstrip().rstrip(_CLOSING)
    return end[-1:] in _LAST


def describe_plain_text(
    corpus: str, split: PlainText, found: dict[str, int], about: str = ""
) -> Iterator[str]:
    """Lines on how plain text was split, if that may be wrong, and the option to change it.

    found: numbers of `files`, `documents` and `long` ones; about: a word before the documents.
    """
    files, documents, long = (found.get(name, 0) for name in ("files", "documents", "long"))
    how = f"{corpus}: plain text is read as {_SPLIT[split]} (--plain-text {split})"
    if documents > MOST_DOCUMENTS * files:
        yield (
            f"note: {how}, {about}{documents:,} documents in {files:,} file(s); if a file is one "
            "document, give --plain-text file"
        )
    if long:
        others = [f"--plain-text {other}" for other in ("blank_lines", "lines") if other != split]
        yield (
            f"note: {how}, and {long:,} document(s) have over {LONG_DOCUMENT >> 20} MB; if a file "
            f"holds many documents, give {' or '.join(others)}"
        )


class _Start(NamedTuple):
    """The first bytes of a file of plain text."""

    documents: list[bytes]
    """The last one may be cut."""
    size: float
    """Bytes on disk."""


def _start(source: Source) -> _Start:
    head = bytearray()
    for block in read_blocks(source.path, source.compression, 0, _SAMPLED_BYTES):
        head += block[: _SAMPLED_BYTES - len(head)]
        if len(head) == _SAMPLED_BYTES:
            break
    size: float = source.size
    if len(head) == _SAMPLED_BYTES:  # not the whole file
        size = min(size, len(head) / (_EXPANSION if source.compression else 1))
    content = with_newlines(bytes(head), of_text=True)
    parts = [content]
    if source.plain_text == "lines":
        parts = content.split(b"\n")
    elif source.plain_text == "blank_lines" and source.format == "text":
        parts = GAP.split(content)
    return _Start([part for part in parts if part.strip()], size)
