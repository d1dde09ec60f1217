"""Books: cuts boilerplate.

A file is one book, or several of Project Gutenberg's: another one starts at each further line "***
START OF THE PROJECT GUTENBERG EBOOK" that follows an end mark, another header or the text of a
book, and at the end of a further "THE SMALL PRINT!" between two end marks.

Cut:

* Project Gutenberg's header and footer, old and new: everything up to the line "*** START OF THE
  PROJECT GUTENBERG EBOOK" or the end of "THE SMALL PRINT!", and everything from "*** END OF" or
  "End of Project Gutenberg's". In the oldest files the small print follows the book.
* Production credits at the end of a header; `[Illustration: ...]` and `[Transcriber's Note: ...]`;
  page marks such as `[Pg 12]`.

A book of over PART_BYTES gives several documents. Cuts are counted in bytes. Bare page numbers and
running heads stay, because a number on a line of its own is usually a chapter's. Lines and words
split at their ends are joined later, in cleaning.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator

from pipeline.ingest.documents.byte_blocks import parts_of
from pipeline.ingest.documents.plain_text import whole_content
from pipeline.ingest.documents.records import BadRecord, Dropped, Piece, Record
from pipeline.ingest.documents.time_limit import TOO_SLOW, TimeLimitError, limited
from pipeline.ingest.encodings.utf import OVERRULED, nearly_utf8, not_utf8

BOOK_VERSION = 3
"""Part of a file's identity: increase it when the same book gives different text."""

LICENCE = "Project Gutenberg's licence"
CREDITS = "credits of its transcribers"
NOTES = "marks of illustrations and transcribers' notes"
PAGES = "marks of pages"

_NAME = r"(?:this is )?(?:the |a )?(?:copyrighted )?project gutenberg"
_TITLE = re.compile(rf"[\s*]*{_NAME}", re.I)
_START = re.compile(
    r"^[ \t]*\*{3} ?START OF (?:THE|THIS) PROJECT GUTENBERG[^*]{0,300}(?:\*{3}[^\n]*|$)",
    re.I | re.M,
)
_SMALL_PRINT = re.compile(r"^[ \t]*\*+ ?START[* ]+THE SMALL PRINT", re.I | re.M)
_SMALL_PRINT_END = re.compile(r"^[ \t]*\*+ ?END[* ]+THE SMALL PRINT!?[^\n]*", re.I | re.M)
_END = re.compile(
    r"^[ \t]*(?:\*{3} ?)?(?:end|ende|fin|fine|einde|fim) (?:(?:of|de|di|of the|of this|dieses|"
    r"de ce|del|do|van)\b[^\n]{0,20})?project gutenberg"
    r"|^[ \t]*\*{3} ?START: FULL LICENSE",
    re.I | re.M,
)
_FURTHER_TITLE = re.compile(rf"^(?:ï»¿)?[ \t*]*{_NAME}", re.I | re.M)  # ï»¿: UTF-8's mark
_MARK = re.compile(r"\* ?(?:START OF TH|END[* ]{1,9}THE SMALL PRINT)", re.I)
_LONGEST_MARGIN = 300
_MOST_HEADER = 20_000  # characters, with the small print
_LEAST_BOOK = 1000
_CREDIT = re.compile(
    r"\s*\[?(?:(?:this )?(?:e-?text|e-?book|electronic (?:text|edition)) (?:was |were )?(?:\w+ )?"
    r"(?:produced|prepared|transcribed|scanned|typed|created|edited|provided)\b"
    r"|(?:produced|prepared|scanned|typed|proofread|digiti[sz]ed|transcribed)\b[^\n]* (?:by|from)\b"
    r"|html version by|note: (?:project gutenberg|images of))",
    re.I,
)
_PARAGRAPH = re.compile(r"\s*(?:[^\n]*\S[^\n]*\n?)+")
_NOTE = re.compile(
    r"\[\s*(?:illustrations?|frontispiece|transcriber['’]?s?['’]? notes?)\b"
    r"(?:[^\[\]]|\[[^\[\]]{0,300}\]){0,3000}\]",
    re.I,
)
_PAGE = re.compile(r"\[(?:pg|page)\.? ?[\divxlc]{1,6}\]", re.I)
_CHARSET = re.compile(
    rb"Character set encoding: *(?:(ISO.8859-1|(?:ISO )?Latin-?1)|(?:Windows|CP)-?1252)", re.I
)


def is_gutenberg(head: str) -> bool:
    """True if a text starts with Project Gutenberg's header."""
    return bool(_TITLE.match(head) or _START.search(head))


def read_book(piece: Piece) -> Iterator[Record | Dropped | BadRecord]:
    """Yield the books of a file, in UTF-8 or in the encoding that their headers declare."""
    content = whole_content(piece)
    starts = [*_starts(content), len(content)]
    declared, before = None, 0
    for start, stop in itertools.pairwise(starts):
        # The header of a further book ends the stretch of the one before.
        found = [*_CHARSET.finditer(content, before, min(stop, start + (1 << 16)))]
        declared, before = found[-1] if found else declared, start
        yield from _read(piece.source.name, content, (start, stop), declared)


def _read(
    name: str, content: bytes, span: tuple[int, int], declared: re.Match[bytes] | None
) -> Iterator[Record | Dropped | BadRecord]:
    """The documents of the book in the bytes `span` of a file."""
    begin, end = span
    is_ours = begin > 0  # further books are only looked for in files of Project Gutenberg's
    for at, part in parts_of(content[begin:end]):
        start, noted = begin + at, ""
        try:
            text = part.decode()
        except UnicodeDecodeError as error:
            if declared is None:
                line = content.count(b"\n", 0, start + error.start) + 1
                yield BadRecord(f"{name}:{line}", "invalid UTF-8", not_utf8(part) or "", len(part))
                continue
            # The header can be wrong: UTF-8 with one bad byte must not become mojibake.
            text = nearly_utf8(part) or ""
            noted = OVERRULED if text else ""
            text = text or part.decode("latin-1" if declared[1] else "cp1252", errors="replace")
        try:
            with limited():
                text, is_ours, cut = _trimmed(text, is_ours)
        except TimeLimitError:
            yield Dropped(f"{name}@{start}", TOO_SLOW)
        else:
            yield Record(f"{name}@{start}", name, text, cut, noted)


def _starts(content: bytes) -> Iterator[int]:
    """Starts of the books in a file: 0, and those of further books of Project Gutenberg's."""
    yield 0
    # One character for each byte, so positions are the file's; the marks are ASCII.
    text = content.decode("latin-1").replace("\r", "\n")
    if not is_gutenberg(text[: 1 << 16]):
        return
    last = -1  # the end of the last mark that is a header's
    for mark, following in itertools.pairwise([*_header_marks(text), None]):
        assert mark is not None
        is_after_end = bool(_END.search(text, max(last, 0), mark.start()))
        start = -1
        if mark.re is _SMALL_PRINT_END:
            stop = following.start() if following else len(text)
            if is_after_end and _END.search(text, mark.end() + _LEAST_BOOK, stop):
                start = mark.start()
        elif is_after_end:
            start = mark.start()
        elif last >= 0:
            start = _further_header(text, last, mark.start())
        if start >= 0:
            yield start
        if start >= 0 or not is_after_end:
            last = mark.end()


def _header_marks(text: str) -> Iterator[re.Match[str]]:
    """The start marks and the ends of small prints, in order."""
    for found in _MARK.finditer(text):  # ten times as fast as the patterns of whole lines
        line = text.rfind("\n", max(0, found.start() - _LONGEST_MARGIN), found.start()) + 1
        mark = _START.match(text, line) or _SMALL_PRINT_END.match(text, line)
        if mark and mark.end() > found.start():  # else another one, far before it
            yield mark


def _further_header(text: str, begin: int, mark: int) -> int:
    """Start of the next book's header, whose start mark is at `mark`, after a book without an end
    mark; -1 if the mark belongs to the header that ends at `begin`, which has two."""
    titles = [*_FURTHER_TITLE.finditer(text, max(begin, mark - _MOST_HEADER), mark)]
    if titles and titles[-1].start() - begin > _LEAST_BOOK:
        return titles[-1].start()
    return mark if mark - begin > _MOST_HEADER else -1


def trimmed(text: str) -> tuple[str, tuple[tuple[str, int], ...]]:
    """Return the book's text without boilerplate, and the bytes cut for each reason."""
    text, _, cut = _trimmed(text, False)
    return text, cut


def _trimmed(text: str, is_ours: bool) -> tuple[str, bool, tuple[tuple[str, int], ...]]:
    """`trimmed`, and whether the book is Project Gutenberg's; is_ours: known from its start."""
    cut: Counter[str] = Counter()
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    is_ours = is_ours or is_gutenberg(text[: 1 << 16])
    if is_ours:
        text = _inside(text, cut)
    for pattern, reason in ((_NOTE, NOTES), (_PAGE, PAGES)):
        cut[reason] = sum(_bytes(found[0]) for found in pattern.finditer(text))
        text = pattern.sub("", text) if cut[reason] else text
    return text.strip(), is_ours, tuple(sorted((+cut).items()))


def _inside(text: str, cut: Counter[str]) -> str:
    """The book between Project Gutenberg's header and footer."""
    first = _START.search(text)
    footer = _END.search(text, first.end() if first else 0)
    end = footer.start() if footer else len(text)
    marks = [*_START.finditer(text, 0, end), *_SMALL_PRINT_END.finditer(text, 0, end)]
    begin = max((mark.end() for mark in marks), default=0)
    small_print = _SMALL_PRINT.search(text)
    if small_print and not text[begin:end].strip():  # it follows the book
        begin, end = 0, small_print.start()
    cut[LICENCE] = _bytes(text[:begin].strip()) + _bytes(text[end:].strip())
    while begin and _CREDIT.match(text, begin, end):
        paragraph = _PARAGRAPH.match(text, begin, end)
        assert paragraph is not None  # a credit has letters
        cut[CREDITS] += _bytes(paragraph[0].strip())
        begin = paragraph.end()
    return text[begin:end]


def _bytes(text: str) -> int:
    return len(text.encode(errors="replace"))
