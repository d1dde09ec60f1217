"""The named corpora: where each is found, its licence and its size.

SOURCES.md has the sources of these numbers, and known defects. A GB is 10^9 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.ingest.documents.records import PlainText


@dataclass(frozen=True, slots=True, kw_only=True)
class Hub:
    """A copy on the Hugging Face Hub, pinned."""

    id: str
    revision: str
    """Commit, so that every user gets the same files."""
    files: str
    """Glob of its Parquet files."""
    licence: str
    """The licence that its dataset card states."""
    text_bytes: float
    """Size of the text, as stated on its dataset card."""
    download_bytes: float
    """Size of the downloaded files."""
    lower_cased: bool = False
    sentences: bool = False
    """True if each row is a sentence, with no link to its document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Facts about a corpus that `prepare` knows before it opens a file."""

    description: str
    plain_text: PlainText
    """Units of plain text: one document or book per file, or documents between blank lines."""
    licence: str
    """Licence of the text, as its source states it; stored in documents.parquet."""
    published_bytes: float = 0.0
    """Size that a group checks it against, see SOURCES.md."""
    hub: Hub | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Corpora that are prepared together, as in a paper."""

    members: tuple[str, ...]
    """Corpora in order of priority: a document found in several stays in the first."""
    published_bytes: float
    dedup: str = "near"
    """The way to detect copies across members; `--dedup` overrides it."""


CORPORA = {
    "wikipedia": Corpus(
        description="encyclopedia articles: a MediaWiki dump, or the output of wikiextractor",
        plain_text="file",
        licence="CC BY-SA",
        published_bytes=11.4e9,
        hub=Hub(
            id="wikimedia/wikipedia",
            revision="b04c8d1ceb2f5cd4588862100d08de323dccfbaa",
            files="20231101.en/train-*.parquet",
            licence="CC BY-SA 3.0 and GFDL",
            text_bytes=20.2e9,
            download_bytes=11.6e9,
        ),
    ),
    "bookcorpus": Corpus(
        description="books, one per file",
        plain_text="book",
        licence="as each book's",
        published_bytes=4.6e9,
        hub=Hub(
            id="bookcorpus/bookcorpus",
            revision="d904700c5e5d69e71bcadbe182d2c5201fbbb007",  # its conversion to Parquet
            files="plain_text/train-*.parquet",
            licence="unknown",
            text_bytes=4.85e9,
            download_bytes=1.18e9,
            lower_cased=True,
            sentences=True,
        ),
    ),
    "cc-news": Corpus(
        description="news articles of Common Crawl: WARC, WET, JSON lines, Parquet",
        plain_text="blank_lines",
        licence="third-party pages",
        published_bytes=76e9,
        hub=Hub(
            id="vblagoje/cc_news",
            revision="81eb2ce0d2a9dad6ad16b68ef750ec290880fa36",
            files="plain_text/train-*.parquet",
            licence="unknown",
            text_bytes=2.0e9,
            download_bytes=1.12e9,
        ),
    ),
    "openwebtext": Corpus(
        description="web pages that Reddit linked to: JSON lines, Parquet, tar.xz",
        plain_text="blank_lines",
        licence="third-party pages",
        published_bytes=38e9,
        hub=Hub(
            id="Skylion007/openwebtext",
            revision="b4325f019c648b1641a1784748667e8b74e5e064",
            files="plain_text/train-*.parquet",
            licence="CC0 for the collection, not for the pages",
            text_bytes=39.8e9,
            download_bytes=24.2e9,
        ),
    ),
    "stories": Corpus(
        description="pages of Common Crawl that read like stories: JSON lines, Parquet",
        plain_text="blank_lines",
        licence="as each story's",
        published_bytes=31e9,
        hub=Hub(
            id="lucadiliello/STORIES",
            revision="9585988079b67ffee934cd417f3edb23c3eb5401",
            files="data/train-*.parquet",
            licence="cc, without a version",
            text_bytes=34.1e9,
            download_bytes=15.3e9,
        ),
    ),
}
"""Corpora whose files come from `--input` or from the Hub."""

GROUPS = {
    "16gb": Group(
        members=("wikipedia", "bookcorpus"),
        published_bytes=16e9,
    ),
    "160gb": Group(
        members=("wikipedia", "bookcorpus", "cc-news", "openwebtext", "stories"),
        published_bytes=161e9,
    ),
}

SAMPLE_CORPORA = {
    "articles": Corpus(description="Wikipedia articles", plain_text="file", licence="CC BY-SA 3.0"),
    "books": Corpus(description="novels", plain_text="file", licence="public domain"),
    "news": Corpus(description="Wikinews articles", plain_text="blank_lines", licence="CC BY 2.5"),
    "web": Corpus(
        description="encyclopedia pages in the format of a crawl",
        plain_text="blank_lines",
        licence="CC BY-SA 3.0",
    ),
    "stories": Corpus(
        description="short stories", plain_text="blank_lines", licence="public domain"
    ),
}
"""The members of `sample`, the text that ships with the code (sample/CREDITS.md)."""
