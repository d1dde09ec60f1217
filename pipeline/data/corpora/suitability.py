"""Texts that a recipe cannot use, told before anything is made of them.

Copies of BookCorpus are lower-cased, one sentence a row. A cased vocabulary that learns from them
learns that books have no capitals; sentences that do not say of which book they are give no pairs,
and those beside a held-out one are trained on.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator
from pathlib import Path

from pipeline.config.run import DataSettings
from pipeline.data.corpora.catalogue import CORPORA, Hub
from pipeline.data.documents.read import cut, read
from pipeline.data.documents.records import Record, Source
from pipeline.data.extraction.extract import FORMATS
from pipeline.errors import ConfigError

LETTERS = 20_000
"""Looked at in the first file of a corpus; of fewer than a quarter nothing is said."""
SENTENCES = 200
"""Rows looked at; with fewer than half it is a file of few books."""
_SENTENCE_CHARACTERS = 300
"""The median sentence of a book has 60 to 90, the shortest book far more."""
_FIRST_BYTES = 1 << 20


def require_fit(sources: list[Source], data: DataSettings) -> None:
    """ConfigError for a named corpus that this recipe's vocabulary or format cannot use."""
    looked_at: set[str] = set()
    for source in sources:
        if source.corpus in looked_at or source.corpus not in CORPORA or not _is_quick(source):
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
    """The same for a copy on the Hub, before it is fetched."""
    if hub.lower_cased and not data.lower_case:
        raise ConfigError(_why_not(corpus, f"{hub.id} on the Hub", data, "lower-cased"))
    if hub.sentences and data.format != "full_sentences":
        raise ConfigError(_why_not(corpus, f"{hub.id} on the Hub", data, "sentences"))


def is_lower_cased(texts: Iterator[str]) -> bool:
    """Whether text of a script that has capitals has next to none."""
    lower = upper = 0
    for text in texts:
        capitals = sum(map(str.isupper, text))
        upper += capitals
        lower += sum(map(str.islower, text))
        if lower + upper >= LETTERS:
            break
    return lower + upper >= LETTERS // 4 and upper * 1000 < lower


def holds_sentences(texts: Iterator[str]) -> bool:
    """Whether documents are as short as sentences."""
    lengths = [len(text) for text in itertools.islice(texts, SENTENCES)]
    return len(lengths) >= SENTENCES // 2 and statistics.median(lengths) < _SENTENCE_CHARACTERS


def _why_not(corpus: str, where: str, data: DataSettings, what: str) -> str:
    advice = f"give another copy (--corpus {corpus} --explain: which there are)"
    if what == "lower-cased":
        return (
            f"{corpus}: {where} is lower-cased, and the recipe's {data.tokenizer} vocabulary has "
            f"capitals (data.lower_case=false); {advice}, or use an uncased recipe"
        )
    return (
        f"{corpus}: {where} has sentences where data.format={data.format} needs whole books; "
        f"{advice}, or add --set data.format=full_sentences"
    )


def _is_quick(source: Source) -> bool:
    """Whether its first records are there at once: what is extracted first is no such copy."""
    return source.format not in FORMATS


def _texts(source: Source) -> Iterator[str]:
    if not Path(source.path).stat().st_size:
        return
    first = cut(source, _FIRST_BYTES)[:1]
    for piece in first:
        for record in read(piece):
            if isinstance(record, Record):
                yield record.text
