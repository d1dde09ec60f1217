"""The corpora that have a name: where each is found, its licence, and what is wrong with it.

Sizes and dates are those of the sources that stand beside them; what no source was read for is
marked *recalled*. Commits of the Hub were read in public code and on the Hub's own pages as these
were in 2026. GB are 10^9 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.data.documents.records import PlainText


@dataclass(frozen=True, slots=True, kw_only=True)
class Hub:
    """A copy on the Hugging Face Hub, pinned."""

    id: str
    revision: str
    """Commit, so that everybody gets the same files."""
    files: str
    """Its Parquet files."""
    licence: str
    """As its card says."""
    text_field: str = "text"
    documents: int
    text_bytes: float
    """Of text, as its card says."""
    download_bytes: float
    """Of the files that are fetched."""
    lower_cased: bool = False
    sentences: bool = False
    """Whether a row is a sentence, and nothing says which document it is of."""
    recalled: bool = False
    """Whether no source was read for a size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """What `prepare` must know of a corpus before it opens a file, and `--explain` says of it."""

    description: str
    plain_text: PlainText
    """In plain text files: one document or book a file, or documents parted by blank lines."""
    licence: str
    """Of the text, as its source states it; goes into documents.parquet."""
    published: str = ""
    """Its size where it was first used, and who says so."""
    published_bytes: float = 0.0
    """What a group holds it to."""
    hub: Hub | None = None
    defects: tuple[str, ...] = ()
    """What is known to be wrong with it, and what we do about that."""
    alternatives: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Corpora that are prepared together, as a paper did."""

    description: str
    members: tuple[str, ...]
    """By priority: of a document that is in several, the first one keeps it."""
    published: str
    published_bytes: float
    dedup: str = "near"
    """How copies are told, across members, unless the command says otherwise (`--dedup`)."""


CORPORA = {
    "wikipedia": Corpus(
        description="encyclopedia articles: a MediaWiki dump, or as wikiextractor writes them",
        plain_text="file",
        licence="CC BY-SA",
        published="2,500 M words of text, without lists, tables and headers (BERT, section 3.1); "
        "11.4 GB are what 4.6 GB of books leave of RoBERTa's 16 GB",
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
            "it grows: the dump of November 2023 has about 20 GB of text, that of BERT had 11 to "
            "12. A result that is to be compared needs the date of the dump beside it.",
            "the Hub's copy was cleaned by code of its own: templates are cut out and leave holes "
            'such as "( ; born 1809)" (recalled). Nothing is refused; a dump read here has none.',
        ),
        alternatives=(
            "dumps of the day, in pieces that are read in parallel: "
            "https://dumps.wikimedia.org/enwiki/YYYYMMDD/ "
            "(enwiki-YYYYMMDD-pages-articles1.xml-p1p41242.bz2 and so on). Those of some months "
            "are kept; older ones are at https://archive.org/details/wikimediadownloads "
            "(recalled).",
            "other languages: https://dumps.wikimedia.org/dewiki/ and so on; on the Hub "
            "20231101.de and so on.",
        ),
    ),
    "bookcorpus": Corpus(
        description="books, one a file",
        plain_text="book",
        licence="as each book's",
        published="11,038 books of smashwords.com, 74,004,228 sentences (Zhu et al. 2015, "
        "recalled; the Hub's card has as many), 800 M words (BERT, section 3.1); the two files of "
        "the first release are 4.6 GB",
        published_bytes=4.6e9,
        hub=Hub(
            id="bookcorpus/bookcorpus",
            revision="d904700c5e5d69e71bcadbe182d2c5201fbbb007",  # its conversion to Parquet
            files="plain_text/train-*.parquet",
            licence="unknown",
            documents=74_004_228,
            text_bytes=4.85e9,
            download_bytes=1.18e9,
            lower_cased=True,
            sentences=True,
        ),
        defects=(
            "the Hub's copy is lower-cased and cut into sentences, with nothing to say where a "
            "book begins. It is refused for cased vocabularies (RoBERTa's, SpanBERT's), and for "
            "all formats but full_sentences, since they need documents; so is the same text in "
            "your own files.",
            "its first home gives it out no more. Of 11,038 files 7,185 are different books, some "
            "hundred are cut short, and many forbid copies (Bandy & Vincent 2021).",
        ),
        alternatives=(
            "PG-19, 28,602 books of Project Gutenberg from before 1919, 11 GB: emozilla/pg19 on "
            "the Hub at c021754c8e01c5b1cc83a1f549c1f97fbbb756b8 (Parquet, `text`); deepmind/pg19 "
            "is a script, which `datasets` 4 does not run. Older English than that of 2015.",
            "Project Gutenberg itself, https://www.gutenberg.org/help/mirroring.html: one book a "
            "file, whose headers and licences are cut off here; public domain in the US.",
        ),
    ),
    "cc-news": Corpus(
        description="news articles of Common Crawl: WARC, WET, JSON lines, Parquet",
        plain_text="blank_lines",
        licence="third-party pages",
        published="63 M English articles of September 2016 to February 2019, 76 GB after filtering "
        "(RoBERTa, section 3.2); never given out as text",
        published_bytes=76e9,
        hub=Hub(
            id="vblagoje/cc_news",
            revision="81eb2ce0d2a9dad6ad16b68ef750ec290880fa36",
            files="plain_text/train-*.parquet",
            licence="unknown",
            documents=708_241,
            text_bytes=2.0e9,
            download_bytes=1.12e9,
            recalled=True,  # of the text
        ),
        defects=(
            "the Hub's copy is 0.7 M of 63 M articles (January 2017 to December 2019): a "
            "ninetieth. 160gb refuses it as too short; --allow-short takes it all the same.",
            "WARC files are pages, not text, and in all languages: the main text is taken out, "
            "without menus, cookie notices, paywalls and lines that a site repeats. RoBERTa kept "
            "English: --filter language=en.",
        ),
        alternatives=(
            "WARC files by month, about 1 GB each (recalled): "
            "https://data.commoncrawl.org/crawl-data/CC-NEWS/2019/02/warc.paths.gz lists those of "
            "February 2019; put https://data.commoncrawl.org/ before each line. RoBERTa's are "
            "those of 2016/09 to 2019/02.",
            "stanford-oval/ccnews on the Hub: the same crawl as text from 2016 on, Parquet by "
            "year; --text-field plain_text and --filter language=en.",
        ),
    ),
    "openwebtext": Corpus(
        description="web pages that Reddit linked to: JSON lines, Parquet, tar.xz",
        plain_text="blank_lines",
        licence="third-party pages",
        published="8,013,769 documents, 38 GB, which are 40 of 10^9 bytes (Gokaslan & Cohen 2019; "
        "RoBERTa, section 3.2)",
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
            "documents have no address: where a page is from, and whose it is, is not known. A "
            "request to take one down can only be met by its text.",
            "near duplicates were removed at a similarity of 0.5, short pages below 128 tokens: a "
            "corpus that is joined to it has to be compared with it here.",
        ),
        alternatives=(
            "the first release: https://skylion007.github.io/OpenWebTextCorpus/, a tar.xz of tars, "
            "one page a file.",
        ),
    ),
    "stories": Corpus(
        description="pages of Common Crawl that read like stories: JSON lines, Parquet",
        plain_text="blank_lines",
        licence="as each story's",
        published="31 GB (RoBERTa, section 3.2): the documents of Common Crawl that share most "
        "n-grams with questions of common sense (Trinh & Le 2018)",
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
            "it was chosen by the questions of PDP-60 and WSC273, and may hold them: do not report "
            "these two, nor WNLI and WinoGrande, without decontamination.",
            "its first home gives it out no more; the Hub's copy names no source for a document.",
        ),
        alternatives=(
            "spacemanidol/cc-stories on the Hub, made anew from a small part of the crawl: 0.86 "
            "GB, 2,105,303 lines; a script, which `datasets` 4 does not run.",
        ),
    ),
}
"""Corpora whose files the user brings with `--input`, or fetches from the Hub."""

GROUPS = {
    "16gb": Group(
        description="what BERT was trained on",
        members=("wikipedia", "bookcorpus"),
        published="16 GB (RoBERTa, section 3.2)",
        published_bytes=16e9,
    ),
    "160gb": Group(
        description="what RoBERTa was trained on",
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
        description="encyclopedia pages in a crawl's shape",
        plain_text="blank_lines",
        licence="CC BY-SA 3.0",
    ),
    "stories": Corpus(
        description="short stories", plain_text="blank_lines", licence="public domain"
    ),
}
"""The members of `sample`: text that comes with the code (sample/CREDITS.md)."""
