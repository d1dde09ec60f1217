"""Reject texts that a recipe cannot use before any work is done.

Public copies of BookCorpus are lower-cased, with one sentence per row. A cased vocabulary trained
on them learns that books have no capitals. Sentences without their book cannot form segment pairs,
and neighbours of a held-out sentence land in the training split.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator
from pathlib import Path

from pipeline.base.errors import ConfigError
from pipeline.config.data_settings import DataSettings
from pipeline.ingest.corpora.catalogue import CORPORA, Hub
from pipeline.ingest.documents.read import cut, is_readable, read
from pipeline.ingest.documents.records import Record, Source

LETTERS = 20_000
"""Letters checked in a corpus's first file; with fewer than a quarter the text passes."""
SENTENCES = 200
"""Rows checked; with fewer than half the text passes, as a file of few books does."""
_SENTENCE_CHARACTERS = 300
"""The median sentence of a book has 60 to 90 characters, the shortest book far more."""
_FIRST_BYTES = 1 << 20


def require_fit(sources: list[Source], data: DataSettings) -> None:
    """Raises ConfigError if the recipe's vocabulary or format cannot use a named corpus."""
    looked_at: set[str] = set()
    for group in sources:
        if group.corpus in looked_at or group.corpus not in CORPORA:
            continue
        # Not what needs extraction: the check comes before any work.
        source = next(filter(is_readable, group.files), None)
        if source is None:
            continue
        looked_at.add(source.corpus)
        if not data.lower_case and is_lower_cased(_texts(source)):
            raise ConfigError(_why_not(source.corpus, source.path, data, "lower-cased"))
        if (
            source.corpus == "bookcorpus"
            and data.format != "full_sentences"
            and holds_sentences(_texts(source))
        ):
            raise ConfigError(_why_not(source.corpus, source.path, data, "sentences"))


def require_fit_of_hub(corpus: str, hub: Hub, data: DataSettings) -> None:
    """The same check for the Hub's copy, before it is fetched."""
    if hub.lower_cased and not data.lower_case:
        raise ConfigError(_why_not(corpus, f"{hub.id} on the Hub", data, "lower-cased"))
    if hub.sentences and data.format != "full_sentences":
        raise ConfigError(_why_not(corpus, f"{hub.id} on the Hub", data, "sentences"))


def is_lower_cased(texts: Iterator[str]) -> bool:
    """True if text in a script with capitals has almost none."""
    lower = upper = 0
    for text in texts:
        capitals = sum(map(str.isupper, text))
        upper += capitals
        lower += sum(map(str.islower, text))
        if lower + upper >= LETTERS:
            break
    # Scripts without case have neither.
    return lower + upper >= LETTERS // 4 and upper * 1000 < lower


def holds_sentences(texts: Iterator[str]) -> bool:
    """True if documents are as short as sentences."""
    lengths = [len(text) for text in itertools.islice(texts, SENTENCES)]
    return len(lengths) >= SENTENCES // 2 and statistics.median(lengths) < _SENTENCE_CHARACTERS


def _why_not(corpus: str, where: str, data: DataSettings, what: str) -> str:
    advice = "give another copy (the page on corpora lists them)"
    if what == "lower-cased":
        return (
            f"{corpus}: {where} is lower-cased, and the recipe's {data.tokenizer} vocabulary has "
            f"capitals (data.lower_case=false); {advice}, or use an uncased recipe"
        )
    return (
        f"{corpus}: {where} has sentences, but data.format={data.format} needs whole books; "
        f"{advice}, or add --set data.format=full_sentences"
    )


def _texts(source: Source) -> Iterator[str]:
    if not Path(source.path).stat().st_size:
        return
    first = cut(source, _FIRST_BYTES)[:1]
    for piece in first:
        for record in read(piece):
            if isinstance(record, Record):
                yield record.text
