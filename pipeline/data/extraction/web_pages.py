"""Pages of WARC and WET files (CC-News, Common Crawl), a document a response or conversion record.

Of the file's records, requests, metadata and what the crawler says of itself are no documents and
are passed over; every other one comes out: with its main text, with the reason why it has none, or
as one that cannot be read (`warc`).

What a site repeats is removed: a line on PAGES_WITH_LINE pages of a site in the same file, pages
of one title counting once, since they are one article fetched again. And of a site no more than
`Source.pages_per_domain` pages of a file are kept, those with the smallest hashes of their urls.
So both depend on the file alone, not on the order of its records, on other files or on workers.
The first reading puts the pages aside (in memory up to 64 MiB, then in a temporary file); lines
are counted in two tables of 4 MiB each, the smaller count of the two being taken. Besides, memory
holds a number or two a page.
"""

from __future__ import annotations

import heapq
import re
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from typing import IO, cast
from urllib.parse import urlsplit

import orjson
import xxhash
from resiliparse.parse.encoding import bytes_to_str, detect_encoding, map_encoding_to_html5
from resiliparse.parse.lang import detect_fast

from pipeline.data.documents.records import BadRecord, Extract, Source
from pipeline.data.extraction.main_text import Page, is_enough, read_page, read_plain
from pipeline.data.extraction.warc import (
    MAX_BLOCK_BYTES,
    Torn,
    WarcRecord,
    parse_response,
    read_records,
)
from pipeline.errors import DataError

WEB_VERSION = 1
"""Goes up when the same file comes out differently: here, in `warc` or in `main_text`."""

PAGES_WITH_LINE = 5
"""So many pages of a site, and a line on them is the site's, not the page's."""
_SLOTS = 1 << 22  # of each table of counts, a byte a slot
_IN_MEMORY = 64 << 20  # bytes of pages put aside before they go to a file
_NO_DOCUMENT = frozenset({"request", "metadata", "warcinfo"})
_HTML_TYPES = ("text/html", "application/xhtml+xml")
_LOOKS_LIKE_HTML = re.compile(rb"<(?:!doctype html|html|head|body|title|meta|div|p)\b", re.I)
_HEAD = 2048  # bytes of a body that tell what it is
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_TOLD_BY_TEXT = 500  # characters from which on the text tells its language
_NEAR = 1.1  # times the best rank (a distance), where what the page states may be right


def read_web(source: Source) -> Iterator[Extract | BadRecord]:
    """Every document of the file in order; DataError when it cannot be read at all."""
    try:
        with tempfile.SpooledTemporaryFile(_IN_MEMORY) as aside:
            sites = _put_aside(source, aside)
            aside.seek(0)
            for line in aside:
                fields = orjson.loads(line)
                if "where" in fields:
                    yield BadRecord(**fields)
                else:
                    yield sites.judge(Extract(**fields))
    except OSError as error:
        raise DataError(
            f"no room to put pages of {source.name} aside in {tempfile.gettempdir()} "
            f"({error.strerror}); set TMPDIR"
        ) from error


def _put_aside(source: Source, aside: IO[bytes]) -> _Sites:
    sites = _Sites(source.pages_per_domain)
    for record in read_pages(source):
        if isinstance(record, Extract) and record.text:
            sites.count(record)
        aside.write(orjson.dumps(record) + b"\n")
    return sites


def read_pages(source: Source) -> Iterator[Extract | BadRecord]:
    """The same documents as they come, with the lines that sites repeat, and any number of each."""
    for record in read_records(source):
        if isinstance(record, Torn):
            yield BadRecord(f"{source.name}:{record.number}", record.reason)
        elif record.headers.get("warc-type", "") not in _NO_DOCUMENT:
            yield _extract(record)


def _extract(record: WarcRecord) -> Extract:
    headers = record.headers
    url = headers.get("warc-target-uri", "").strip("<>")
    page = _page(record)
    return Extract(
        id=headers.get("warc-record-id", "").strip("<>"),
        url=url,
        title=page.title,
        text=page.text,
        dropped=page.dropped,
        revised=headers.get("warc-date", ""),
        language=_language(page) if page.text else "",
        domain=_domain(url),
        position=record.position,
    )


def _domain(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").removeprefix("www.")
    except ValueError:  # such as http://[
        return ""


def _page(record: WarcRecord) -> Page:
    kind = record.headers.get("warc-type", "")
    if kind not in ("response", "conversion"):
        return _dropped("revisit" if kind == "revisit" else "not a page")
    if not record.is_whole:
        return _dropped("too long")
    if record.headers.get("warc-truncated"):
        return _dropped("truncated by the crawler")
    if kind == "conversion":
        text = record.block.decode(errors="replace")
        return read_plain(text) if text.strip() else _dropped("empty")
    response = parse_response(record.block)
    if response.status not in (0, 200):
        return _dropped(f"HTTP status {response.status}")
    body, content_type = response.body, response.headers.get("content-type", "").lower()
    if len(body) > MAX_BLOCK_BYTES:
        return _dropped("too long")
    if not body.strip():
        return _dropped("empty")
    stated = record.headers.get("warc-identified-payload-type") or content_type
    if not _is_html(stated, body[:_HEAD]):
        return _dropped("not HTML")
    if body[:_HEAD].count(b"\0") > 8 and not body.startswith(_UTF_16):
        return _dropped("not text")
    return read_page(_decoded(body, content_type).replace("\0", ""))


def _dropped(reason: str) -> Page:
    return Page("", "", "", reason)


def _is_html(content_type: str, head: bytes) -> bool:
    if content_type:
        return content_type.lower().startswith(_HTML_TYPES)
    return bool(_LOOKS_LIKE_HTML.search(head))


def _decoded(body: bytes, content_type: str) -> str:
    """UTF-8 if it can be, else as the server says, else as the page says or as its bytes look."""
    if not body.startswith(_UTF_16):
        try:
            return body.decode("utf-8-sig")
        except UnicodeDecodeError:
            pass
        if found := re.search(r"charset=[\"']?([\w.:-]+)", content_type):
            encoding = map_encoding_to_html5(found[1])
            if encoding != "utf-8":
                return _as_text(body, encoding)
    return _as_text(body, detect_encoding(body, from_html_meta=True))


def _as_text(body: bytes, encoding: str | None) -> str:
    text = bytes_to_str(body, encoding or "utf-8", errors="replace", fallback_encodings=("utf-8",))
    return str(text)


def _language(page: Page) -> str:
    """Of a text; what the page itself states decides between those that are near."""
    best = cast("list[tuple[str, int]]", detect_fast(page.text, n_results=3))
    ranks = dict(best)
    if not ranks:
        return page.language
    nearest = min(ranks.values())
    is_near = ranks.get(page.language, 1 << 20) <= _NEAR * nearest
    if page.language in ranks and (is_near or len(page.text) < _TOLD_BY_TEXT):
        return page.language
    return best[0][0]


class _Sites:
    """What all pages of a file tell of its sites."""

    def __init__(self, pages_per_domain: int) -> None:
        self.most = pages_per_domain
        self.tables = (bytearray(_SLOTS), bytearray(_SLOTS))
        self.seen: set[int] = set()
        self.largest: dict[str, list[int]] = {}
        """By domain the negated hashes of the urls that are kept, the largest hash on top."""

    def count(self, page: Extract) -> None:
        """Take notice of a page with text."""
        if self.most:
            hashes = self.largest.setdefault(page.domain, [])
            rank = -_hash(page.url)
            if rank not in hashes:
                (heapq.heappush if len(hashes) < self.most else heapq.heappushpop)(hashes, rank)
        key = _hash(page.domain, page.title or page.url)
        if page.domain and key not in self.seen:
            self.seen.add(key)
            for line in set(page.text.split("\n")):
                for table, slot in zip(self.tables, _slots(page.domain, line)):
                    table[slot] = min(table[slot] + 1, PAGES_WITH_LINE)

    def judge(self, page: Extract) -> Extract:
        """The page as it is kept, or dropped."""
        if not page.text:
            return page
        if self.most and -_hash(page.url) not in self.largest[page.domain]:
            return replace(page, text="", dropped="over the number of pages of its site")
        lines = page.text.split("\n")
        own = [line for line in lines if not line or not self._is_repeated(page.domain, line)]
        if len(own) == len(lines):
            return page
        text = re.sub(r"\n{3,}", "\n\n", "\n".join(own)).strip("\n")
        if not is_enough(text):
            return replace(page, text="", dropped="nothing but what its site repeats")
        return replace(page, text=text)

    def _is_repeated(self, domain: str, line: str) -> bool:
        slots = zip(self.tables, _slots(domain, line))
        return all(table[slot] >= PAGES_WITH_LINE for table, slot in slots)


def _slots(domain: str, line: str) -> tuple[int, int]:
    value = _hash(domain, line)
    return value % _SLOTS, (value >> 32) % _SLOTS


def _hash(*parts: str) -> int:
    return xxhash.xxh3_64_intdigest("\0".join(parts).encode(errors="replace"))
