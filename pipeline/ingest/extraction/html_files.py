"""HTML files: the pages of a group, see `packs`, are read as those of a WARC file are.

A site is the first folder in the names of its pages, as mirrors are written, or the corpus.
"""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.ingest.compression.codecs import sniff_compression
from pipeline.ingest.documents.byte_blocks import read_blocks
from pipeline.ingest.documents.records import Extract, Source
from pipeline.ingest.extraction.warc import MAX_BLOCK_BYTES
from pipeline.ingest.extraction.web_pages import page_of_body, read_limited


def read_html(source: Source) -> Iterator[Extract]:
    """Yield the document of every page of a group."""
    for page in source.files:
        path = page.path
        body = bytearray()
        for block in read_blocks(path, sniff_compression(path), 0, MAX_BLOCK_BYTES):
            body += block
            if len(body) > MAX_BLOCK_BYTES:  # enough for `page_of_body` to call it too long
                break
        yield extract_html(source, page.name, bytes(body))


def extract_html(source: Source, name: str, body: bytes) -> Extract:
    """The document of a page, given its first bytes."""
    found, language = read_limited(lambda: page_of_body(body, "text/html", "text/html"))
    return Extract(
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
