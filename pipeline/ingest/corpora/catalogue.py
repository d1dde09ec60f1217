"""The named corpora: where each is found, its licence, and its known defects.

Each size and date cites its source; a value without one is marked *recalled*. Commits on the Hub
were taken from public code and from the Hub's pages in 2026. A GB is 10^9 bytes.
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
    text_field: str = "text"
    documents: int
    text_bytes: float
    """Size of the text, as stated on its dataset card."""
    download_bytes: float
    """Size of the downloaded files."""
    lower_cased: bool = False
    sentences: bool = False
    """True if each row is a sentence, with no link to its document."""
    recalled: bool = False
    """True if a size has no source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Facts about a corpus that `prepare` knows before it opens a file, and `--explain` prints."""

    description: str
    plain_text: PlainText
    """Units of plain text: one document or book per file, or documents between blank lines."""
    licence: str
    """Licence of the text, as its source states it; stored in documents.parquet."""
    published: str = ""
    """Its size where it was first used, with the citation."""
    published_bytes: float = 0.0
    """Size that a group checks it against."""
    hub: Hub | None = None
    defects: tuple[str, ...] = ()
    """Known defects, and what we do about them."""
    alternatives: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Corpora that are prepared together, as in a paper."""

    description: str
    members: tuple[str, ...]
    """Corpora in order of priority: a document found in several stays in the first."""
    published: str
    published_bytes: float
    dedup: str = "near"
    """The way to detect copies across members; `--dedup` overrides it."""


CORPORA = {
    "wikipedia": Corpus(
        description="encyclopedia articles: a MediaWiki dump, or the output of wikiextractor",
        plain_text="file",
        licence="CC BY-SA",
        published="2,500 M words of text, without lists, tables and headers (BERT, section 3.1); "
        "11.4 GB are RoBERTa's 16 GB minus 4.6 GB of books",
        published_bytes=11.4e9,
        hub=Hub(
            id="wikimedia/wikipedia",
            revision="b04c8d1ceb2f5cd4588862100d08de323dccfbaa",
            files="20231101.en/train-*.parquet",
            licence="CC BY-SA 3.0 and GFDL",
            documents=6_407_814,  # the card says 6.4 million
            text_bytes=20.2e9,
            download_bytes=11.6e9,
            recalled=True,
        ),
        defects=(
            "it grows: the dump of November 2023 has about 20 GB of text, BERT's had 11 to 12. "
            "Report the date of the dump with every result.",
            "the Hub's copy was cleaned by other code, which cuts out templates and leaves holes "
            'such as "( ; born 1809)" (recalled). It is accepted; a dump read here has no holes.',
        ),
        alternatives=(
            "current dumps, in pieces that are read in parallel: --dump enwiki/YYYYMMDD fetches "
            "and checks them (https://dumps.wikimedia.org/enwiki/ lists the dates). They are kept "
            "for some months; older ones are at https://archive.org/details/wikimediadownloads "
            "(recalled).",
            "other languages: --dump dewiki/YYYYMMDD and so on; on the Hub 20231101.de and so on.",
        ),
    ),
    "bookcorpus": Corpus(
        description="books, one per file",
        plain_text="book",
        licence="as each book's",
        published="11,038 books from smashwords.com, 74,004,228 sentences (Zhu et al. 2015, "
        "recalled; the Hub's card states the same), 800 M words (BERT, section 3.1); the two files "
        "of the first release are 4.6 GB",
        published_bytes=4.6e9,
        hub=Hub(
            id="bookcorpus/bookcorpus",
            revision="d904700c5e5d69e71bcadbe182d2c5201fbbb007",  # its conversion to Parquet
            files="plain_text/train-*.parquet",
            licence="unknown",
            documents=74_004_228,  # rows, which are sentences
            text_bytes=4.85e9,
            download_bytes=1.18e9,
            lower_cased=True,
            sentences=True,
        ),
        defects=(
            "the Hub's copy is lower-cased and split into sentences, without book boundaries. It "
            "is refused for cased vocabularies (RoBERTa's, SpanBERT's), and for all formats but "
            "full_sentences, which need documents; so is the same text in your own files.",
            "the original site no longer distributes it. Only 7,185 of the 11,038 files are "
            "distinct books, some hundred are truncated, and many forbid copying (Bandy & Vincent "
            "2021).",
        ),
        alternatives=(
            "PG-19, 28,602 books of Project Gutenberg from before 1919, 11 GB: emozilla/pg19 on "
            "the Hub at c021754c8e01c5b1cc83a1f549c1f97fbbb756b8 (Parquet, `text`); deepmind/pg19 "
            "is a script, which `datasets` 4 does not run. Its English is older.",
            "Project Gutenberg itself, https://www.gutenberg.org/help/mirroring.html: one book per "
            "file; headers and licences are removed here; public domain in the US.",
        ),
    ),
    "cc-news": Corpus(
        description="news articles of Common Crawl: WARC, WET, JSON lines, Parquet",
        plain_text="blank_lines",
        licence="third-party pages",
        published="63 M English articles, September 2016 to February 2019, 76 GB after filtering "
        "(RoBERTa, section 3.2); never distributed as text",
        published_bytes=76e9,
        hub=Hub(
            id="vblagoje/cc_news",
            revision="81eb2ce0d2a9dad6ad16b68ef750ec290880fa36",
            files="plain_text/train-*.parquet",
            licence="unknown",
            documents=708_241,
            text_bytes=2.0e9,
            download_bytes=1.12e9,
            recalled=True,  # the text's size
        ),
        defects=(
            "the Hub's copy has 0.7 M of 63 M articles (January 2017 to December 2019), one in "
            "ninety. 160gb refuses it as too short; --allow-short accepts it.",
            "WARC files hold pages, not text, in all languages: the main text is extracted, "
            "without menus, cookie notices, paywalls and lines that a site repeats. RoBERTa kept "
            "English: --months does, and --language en does for your own files.",
        ),
        alternatives=(
            "the months that RoBERTa used: --months 2016-09..2019-02 fetches Common Crawl's WARC "
            "files, about 1.07 GB each, extracts and removes them. "
            "https://data.commoncrawl.org/crawl-data/CC-NEWS/2019/02/warc.paths.gz lists February "
            "2019.",
            "stanford-oval/ccnews on the Hub: the same crawl as text since 2016, one set of "
            "Parquet files per year; use --text-field plain_text and --filter language=en.",
        ),
    ),
    "openwebtext": Corpus(
        description="web pages that Reddit linked to: JSON lines, Parquet, tar.xz",
        plain_text="blank_lines",
        licence="third-party pages",
        published="8,013,769 documents, 38 GB as stated, 40 GB of 10^9 bytes (Gokaslan & Cohen "
        "2019; RoBERTa, section 3.2)",
        published_bytes=38e9,
        hub=Hub(
            id="Skylion007/openwebtext",
            revision="b4325f019c648b1641a1784748667e8b74e5e064",
            files="plain_text/train-*.parquet",
            licence="CC0 for the collection, not for the pages",
            documents=8_013_769,
            text_bytes=39.8e9,
            download_bytes=24.2e9,
        ),
        defects=(
            "documents have no URL, so a page's source and owner are unknown. What someone wants "
            "removed can only be found by its text.",
            "near-duplicates were removed at a similarity of 0.5, and pages under 128 tokens; "
            "copies across corpora remain: use --dedup when you combine it with others.",
        ),
        alternatives=(
            "the original release: https://skylion007.github.io/OpenWebTextCorpus/, a tar.xz of "
            "tars, one page per file.",
        ),
    ),
    "stories": Corpus(
        description="pages of Common Crawl that read like stories: JSON lines, Parquet",
        plain_text="blank_lines",
        licence="as each story's",
        published="31 GB (RoBERTa, section 3.2): the documents of Common Crawl that share the most "
        "n-grams with common-sense questions (Trinh & Le 2018)",
        published_bytes=31e9,
        hub=Hub(
            id="lucadiliello/STORIES",
            revision="9585988079b67ffee934cd417f3edb23c3eb5401",
            files="data/train-*.parquet",
            licence="cc, without a version",
            documents=945_354,
            text_bytes=34.1e9,
            download_bytes=15.3e9,
        ),
        defects=(
            "it was selected with the questions of PDP-60 and WSC273 and may contain them: do not "
            "report these two, WNLI or WinoGrande without decontamination.",
            "the original site no longer distributes it; the Hub's copy names no sources.",
        ),
        alternatives=(
            "spacemanidol/cc-stories on the Hub, rebuilt from a small part of the crawl: 0.86 GB, "
            "2,105,303 lines; a script, which `datasets` 4 does not run.",
        ),
    ),
}
"""Corpora whose files come from `--input` or from the Hub."""

GROUPS = {
    "16gb": Group(
        description="BERT's training text",
        members=("wikipedia", "bookcorpus"),
        published="16 GB (RoBERTa, section 3.2)",
        published_bytes=16e9,
    ),
    "160gb": Group(
        description="RoBERTa's training text",
        members=("wikipedia", "bookcorpus", "cc-news", "openwebtext", "stories"),
        published="over 160 GB: 16 + 76 + 38 + 31 (RoBERTa, section 3.2)",
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
