"""Real documents that rule sets are compared on, and what datatrove says of each.

`filters.json` has its verdicts, given the words and sentences of our own splitters: `python -m
tests.benchmarks.bench_filters --peer PYTHON --record` writes it. It holds no text. The documents
are those of $TENFOLD_TEST_DATA: articles, stories, news, web pages and an archive of pages.
"""

from pathlib import Path

import numpy as np

from pipeline.data.selection.filters import Filters
from pipeline.data.text.cleaning import CleanText, clean
from pipeline.data.text.line_rules import keep_lines
from pipeline.ingest.corpora.sources import corpus_sources
from pipeline.ingest.documents.read import cut
from pipeline.ingest.documents.records import Record
from pipeline.ingest.extraction.formats import stream

VERDICTS = Path(__file__).parent / "filters.json"
PLACES = {
    "wikipedia": ("wikipedia/extracted/wiki_0*", "wikipedia/dump", "wikipedia/extracted-zh"),
    "cc-news": ("cc-news/wikinews.jsonl", "cc-news/warc", "formats/wet"),
    "stories": ("stories",),
    "openwebtext": ("openwebtext/cc_en_head-0091.jsonl", "openwebtext/cc_en_head-0174.jsonl"),
}
SETS = ("c4", "gopher-quality", "gopher-repetition", "fineweb")
REASONS = {
    "lorem_ipsum": "c4: lorem ipsum",
    "curly_bracket": "c4: curly bracket",
    "too_few_sentences": "c4: under 5 sentences",
    "gopher_short_doc": "gopher-quality: under 50 words",
    "gopher_long_doc": "gopher-quality: over 100,000 words",
    "gopher_below_avg_threshold": "gopher-quality: mean word under 3 letters",
    "gopher_above_avg_threshold": "gopher-quality: mean word over 10 letters",
    "gopher_too_many_hashes": "gopher-quality: over 0.1 hash signs per word",
    "gopher_too_many_ellipsis": "gopher-quality: over 0.1 ellipses per word",
    "gopher_too_many_bullets": "gopher-quality: over 90 % of lines with a bullet",
    "gopher_too_many_end_ellipsis": "gopher-quality: over 30 % of lines with an ellipsis",
    "gopher_below_alpha_threshold": "gopher-quality: under 80 % of words with a letter",
    "gopher_enough_stop_words": "gopher-quality: under 2 stop words",
    "dup_line_frac": "gopher-repetition: over 30 % repeated lines",
    "dup_line_char_frac": "gopher-repetition: over 20 % of text in repeated lines",
    **{
        f"top_{words}_gram": f"gopher-repetition: over {most} % of text in the commonest run of "
        f"{words} words"
        for words, most in ((2, 20), (3, 18), (4, 16))
    },
    **{
        f"duplicated_{words}_n_grams": f"gopher-repetition: over {20 - words} % of text in "
        f"repeated runs of {words} words"
        for words in range(5, 11)
    },
    "line_punct_ratio": "fineweb: under 12 % of lines with an end mark",
    "short_line_ratio": "fineweb: over 67 % of lines under 30 letters",
    "char_dup_ratio": "fineweb: over 10 % of text in repeated lines",
}
"""datatrove's names of reasons -> ours."""


def real_documents(folder: Path) -> CleanText:
    """The documents, cleaned; folder: $TENFOLD_TEST_DATA."""
    texts: list[str] = []
    for corpus, places in PLACES.items():
        for place in places:
            for source in corpus_sources(corpus, [str(folder / place)])[1]:
                for piece in cut(source, source.size):
                    texts += [
                        record.text
                        for record in stream(piece)
                        if isinstance(record, Record) and record.text.strip()
                    ]
    return clean(texts)


def reasons(documents: CleanText, name: str) -> list[str]:
    """Why a rule set drops each document; empty for kept ones."""
    if name == "c4":
        chosen = np.ones(len(documents.raw_bytes), np.bool_)
        dropped = keep_lines(documents, chosen).dropped
        return [dropped.get(index, "") for index in range(len(chosen))]
    found = Filters(sets=(name,)).first_reasons(documents.buffer, documents.offsets)
    return [reason or "" for reason in found]
