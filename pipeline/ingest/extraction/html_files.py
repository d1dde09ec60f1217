"""HTML files: the pages of a group, see `packs`, are read as those of a WARC file are.

A site is the first folder in the names of its pages, as mirrors are written, or the corpus.
"""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.ingest.compression.codecs import sniff_compression
from pipeline.ingest.documents.byte_blocks import read_blocks
from pipeline.ingest.documents.records import Extract, Source
from pipeline.ingest.extraction.places import Place
from pipeline.ingest.extraction.warc import MAX_BLOCK_BYTES
from pipeline.ingest.extraction.web_pages import page_of_body, read_limited


def find_html(source: Source, start: Place) -> Iterator[tuple[Place, tuple[str, bytes]]]:
    """Yield the name and the first bytes of every page of a group, and its number as its place."""
    for number, page in enumerate(source.files):
        path = page.path
        body = bytearray()
        for block in read_blocks(path, sniff_compression(path), 0, MAX_BLOCK_BYTES):
            body += block
            if len(body) > MAX_BLOCK_BYTES:  # enough for `page_of_body` to call it too long
                break
        if (number, 0) >= start:
            yield (number, 0), (page.name, bytes(body))


def extract_html(source: Source, page: tuple[str, bytes]) -> Iterator[Extract]:
    """The document of a page."""
    name, body = page
    found, language = read_limited(lambda: page_of_body(body, "text/html", "text/html"))
    yield Extract(
        id=name,
        url=name,
        title=found.title,
        text=found.text,
        dropped=found.dropped,
        revised="",
        language=language,
        domain=name.partition("/")[0] if "/" in name else source.corpus,
        position=len(body),
        noted=found.noted,
    )
