"""WARC files made of records that a test writes itself, and pages to put in them."""

import gzip
from collections.abc import Iterable, Iterator

from pipeline.ingest.documents.records import BadRecord, Extract, Source
from pipeline.ingest.extraction.formats import format_of
from pipeline.ingest.extraction.web_pages import without_repeats

NAVIGATION = "".join(
    f'<li><a href="/{name.lower()}">{name}</a></li>'
    for name in ("World", "Politics", "Business", "Sport", "Weather", "Culture")
)
SENTENCES = (
    "The council of the town voted on Tuesday to close the bridge for the winter.",
    "Two engineers had told it in June that the arch might not last another flood.",
    "Nobody who lives on the left bank was asked, according to the mayor, and nobody will be.",
    "The ferry, which was to be sold in spring, is going to run once every hour instead.",
)


def page(title: str, paragraphs: Iterable[str] = SENTENCES, more: str = "") -> str:
    """An article as sites show it: with menus, a by-line, a box, links and a footer around it."""
    text = "".join(f"<p>{paragraph}</p>" for paragraph in paragraphs)
    return f"""<!DOCTYPE html><html lang="en"><head><title>{title} - The Paper</title>
<script>var x = "<p>not text</p>";</script></head><body class="related share-bar">
<nav><ul>{NAVIGATION}</ul></nav>
<div class="cookie-banner">We use cookies to make this site better for all of us.</div>
<div class="post tag-social-media"><h1>{title}</h1><p><a href="/by">By A. Writer</a></p>
{text}<aside>An aside that says something else in a whole sentence.</aside>{more}</div>
<h2>Related stories</h2><ul>{NAVIGATION}</ul>
<footer>All rights reserved. The Paper is published every day of the year.</footer></body></html>"""


def record(
    kind: str, block: bytes, url: str = "", number: int = 0, length: int = -1, more: str = ""
) -> bytes:
    """A record; length: a wrong length for its header."""
    size = len(block) if length < 0 else length
    return (
        f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Record-ID: <urn:uuid:{number}>\r\n"
        f"WARC-Target-URI: {url}\r\nWARC-Date: 2021-05-01T10:00:00Z\r\n{more}"
        f"Content-Length: {size}\r\n\r\n".encode()
        + block
        + b"\r\n\r\n"
    )


def response(
    body: str | bytes,
    url: str = "https://www.paper.org/1",
    status: int = 200,
    content_type: str = "text/html; charset=utf-8",
    more: str = "",
    number: int = 0,
) -> bytes:
    """A response record; more: lines of the WARC header, ending in CR LF."""
    body = body.encode() if isinstance(body, str) else body
    head = f"HTTP/1.1 {status} OK\r\nContent-Type: {content_type}\r\n\r\n".encode()
    return record("response", head + body, url, number, more=more)


def conversion(text: str, url: str = "https://www.paper.org/1") -> bytes:
    """A record of a WET file."""
    return record("conversion", text.encode(), url)


def members(records: Iterable[bytes]) -> bytes:
    """As crawlers compress: each record a gzip member."""
    return b"".join(gzip.compress(item, mtime=0) for item in records)


def articles(count: int, site: str = "www.paper.org", more: str = "") -> list[bytes]:
    """Pages of a site, each with its own sentences."""
    return [
        response(
            page(f"Title {n}", [f"{text[:-1]}, says page {n}." for text in SENTENCES], more),
            f"https://{site}/{n}",
            number=n,
        )
        for n in range(count)
    ]


def whole_web_file(source: Source) -> Iterator[Extract | BadRecord]:
    """The documents of a WARC or WET file, without the lines that its sites repeat."""
    pages = [*format_of(source).begin(source)]
    return without_repeats(source, lambda: iter(pages))
