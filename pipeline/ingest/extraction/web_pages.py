"""Pages of WARC and WET files (CC-News, Common Crawl): one per response or conversion record.

Request, metadata and warcinfo records are skipped. Every other record is yielded with its main
text, with the reason why it has none, or as unreadable (`warc`).

HTML (also XHTML, and XML with the root html) is read for its main text, and text/plain and Markdown
are kept as they were written. A response without a type is HTML if it looks so, and text unless it
looks like data. Anything else, such as PDF, JSON or a feed, is dropped.

A line on PAGES_WITH_LINE pages of a site in the same file is boilerplate and is removed; pages with
the same title count once, because they are one article fetched again. That depends only on the
file, not on the order of its records, on other files or on workers. So the pages of a file are read
twice, after they were extracted and stored. Lines are counted in two hash tables of 4 MiB, and the
smaller count is used. Otherwise memory holds a number per page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import cast
from urllib.parse import urlsplit

import xxhash
from resiliparse.parse.lang import detect_fast

from pipeline.ingest.documents.records import BadRecord, Extract, Source
from pipeline.ingest.documents.time_limit import TOO_SLOW, TimeLimitError, limited
from pipeline.ingest.encodings.decoding import HEAD_BYTES, decode_page
from pipeline.ingest.encodings.utf import OVERRULED
from pipeline.ingest.extraction.main_text import Page, is_enough, read_page, read_plain, read_text
from pipeline.ingest.extraction.warc import (
    MAX_BLOCK_BYTES,
    Torn,
    WarcRecord,
    parse_response,
    read_records,
)

WEB_VERSION = 3
"""Increase it when the same file gives different output: here, in `warc`, in `encodings` or in
`main_text`; and `zip_archives.ZIP_VERSION` with it."""

PAGES_WITH_LINE = 5
"""A line on this many pages of a site belongs to the site, not the page."""
_SLOTS = 1 << 22  # per table of counts, one byte each
_NO_DOCUMENT = frozenset({"request", "metadata", "warcinfo"})
_HTML_TYPES = ("text/html", "application/xhtml+xml")
_XML_TYPES = ("text/xml", "application/xml")
_TEXT_TYPES = ("text/plain", "text/markdown", "text/x-markdown", "text/x-web-markdown")
_LOOKS_LIKE_HTML = re.compile(r"<(?:!doctype html|html|head|body|title|meta|div|p)\b", re.I)
_STARTS_AS_HTML = re.compile(r"\s*<(?:!doctype\s+html|html)\b", re.I)
_HTML_ROOT = re.compile(r"<html\b", re.I)
_LOOKS_LIKE_DATA = re.compile(r"\s*(?:[<{\[]|%PDF-|%!PS)")
_BINARY = re.compile("[\0-\x08\x0b\x0e-\x1a\x1c-\x1f]")  # browsers' rule for text/plain or data
_NEITHER = "neither HTML nor text"
_DETECTABLE = 500  # characters from which detection overrides the declared language
_NEAR = 1.1  # times the best rank (a distance); within it, the declared language wins


def without_repeats(
    source: Source, pages: Callable[[], Iterator[Extract | BadRecord]]
) -> Iterator[Extract | BadRecord]:
    """The pages of a whole file without repeated lines.

    pages: yields them, each time it is called.
    """
    sites = _Sites()
    for page in pages():
        if isinstance(page, Extract) and page.text:
            sites.count(page)
    for page in pages():
        yield sites.judge(page) if isinstance(page, Extract) else page


def read_web(source: Source) -> Iterator[Extract | BadRecord]:
    """Yield the documents of the records of a WARC or WET file."""
    for record in read_records(source):
        if isinstance(record, Torn):
            yield BadRecord(f"{source.name}:{record.number}", record.reason)
        elif record.headers.get("warc-type", "") not in _NO_DOCUMENT:
            yield _in_language(_extract(record), source.page_language)


def _extract(record: WarcRecord) -> Extract:
    headers = record.headers
    url = headers.get("warc-target-uri", "").strip("<>")
    page, language = read_limited(lambda: _page(record))
    return Extract(
        id=headers.get("warc-record-id", "").strip("<>"),
        url=url,
        title=page.title,
        text=page.text,
        dropped=page.dropped,
        revised=headers.get("warc-date", ""),
        language=language,
        domain=_domain(url),
        position=record.position,
        noted=page.noted,
    )


def _in_language(page: Extract, language: str) -> Extract:
    """The page, dropped if its language is known and not the wanted one."""
    if not language or page.language in ("", language):
        return page
    return replace(page, text="", dropped=f"language {page.language}")


def read_limited(read: Callable[[], Page]) -> tuple[Page, str]:
    """A page and its language; a dropped page if it takes too long."""
    try:
        with limited():
            page = read()
            return page, _language(page) if page.text else ""
    except TimeLimitError:
        return _dropped(TOO_SLOW), ""


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
    stated = record.headers.get("warc-identified-payload-type") or content_type
    return page_of_body(body, content_type, stated)


def page_of_body(body: bytes, content_type: str, stated: str) -> Page:
    """The page of a body, or why it is none; stated: its type, by the server or by detection."""
    if len(body) > MAX_BLOCK_BYTES:
        return _dropped("too long")
    if not body.strip():
        return _dropped("empty")
    if stated and not stated.lower().startswith(_HTML_TYPES + _XML_TYPES + _TEXT_TYPES):
        return _dropped(_NEITHER)
    decoded = decode_page(body, content_type)
    if decoded is None:
        return _dropped("not text")
    page = _read(decoded.text, stated.lower())
    return replace(page, noted=OVERRULED) if decoded.is_overruled and page.text else page


def _dropped(reason: str) -> Page:
    return Page("", "", "", reason)


def _read(text: str, stated: str) -> Page:
    """The page of a body that was decoded; stated: its type in lower case, of those that are read,
    or empty."""
    head = text[:HEAD_BYTES]
    if stated.startswith(_HTML_TYPES):
        is_html = True
    elif stated.startswith(_XML_TYPES):
        is_html = bool(_HTML_ROOT.search(head))
        if not is_html:
            return _dropped(_NEITHER)
    else:
        is_html = bool((_STARTS_AS_HTML.match if stated else _LOOKS_LIKE_HTML.search)(head))
    if is_html:
        return read_page(text.replace("\0", ""))
    if _BINARY.search(head) or (not stated and _LOOKS_LIKE_DATA.match(head)):
        return _dropped(_NEITHER)
    return read_text(text)


def _language(page: Page) -> str:
    """The text's language; the page's own declaration decides between near candidates."""
    # in lower case: of a text in capitals the detector makes Chinese or Korean
    best = cast("list[tuple[str, int]]", detect_fast(page.text.lower(), n_results=3))
    ranks = dict(best)
    if not ranks:
        return page.language
    nearest = min(ranks.values())
    is_near = ranks.get(page.language, 1 << 20) <= _NEAR * nearest
    if page.language in ranks and (is_near or len(page.text) < _DETECTABLE):
        return page.language
    return best[0][0]


class _Sites:
    """Line counts of every site in a file."""

    def __init__(self) -> None:
        self.tables = (bytearray(_SLOTS), bytearray(_SLOTS))
        self.seen: set[int] = set()

    def count(self, page: Extract) -> None:
        """Count a page that has text."""
        key = _hash(page.domain, page.title or page.url)
        if page.domain and key not in self.seen:
            self.seen.add(key)
            for line in set(page.text.split("\n")):  # a line counts once per page
                for table, slot in zip(self.tables, _slots(page.domain, line)):
                    # Saturates: slots are bytes.
                    table[slot] = min(table[slot] + 1, PAGES_WITH_LINE)

    def judge(self, page: Extract) -> Extract:
        """The page without repeated lines, or dropped."""
        if not page.text:
            return page
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
    # Different bits of one hash: a line counts too much only if it collides in both tables.
    return value % _SLOTS, (value >> 32) % _SLOTS


def _hash(*parts: str) -> int:
    return xxhash.xxh3_64_intdigest("\0".join(parts).encode(errors="replace"))
