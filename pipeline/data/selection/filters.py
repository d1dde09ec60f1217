"""Filters by bounds, language or the name of a paper's rule set; all are off by default.

The papers of the families use hardly any: RoBERTa's CC-News is English only (Liu et al. 2019,
sec. 3.2). Typical bounds are MassiveText's (Rae et al. 2021, "Scaling language models: methods,
analysis & insights from training Gopher", app. A.1.1, recalled): 50 to 100,000 words, a letter in
80 % of words, at most 30 % repeated lines. Its whole sets, and those of other papers, are in
`rule_sets`.

The language is detected by resiliparse's `detect_fast`, at 150 MB/s per core, in lower case: it
takes a text in capitals for Chinese or Korean. It misjudged 3 of 2,836 pieces of 1,000 characters
of English books, news and articles, and 2.3 % of pieces of 100 characters (2.5 % without lower
case). A text that is too short to detect is kept. Language metadata in files is ignored: few
formats have it, and it describes a wiki or a page's template rather than the text.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import numpy.typing as npt
from resiliparse.parse.lang import detect_fast, supported_langs

from pipeline.base.errors import ConfigError
from pipeline.config.settings import nearest
from pipeline.data.selection.rule_sets import RULE_SETS, VERSIONS, Measured, Reasons
from pipeline.data.selection.words import count_words
from pipeline.data.text.document_map import find_map
from pipeline.data.text.excluded import find_excluded
from pipeline.data.text.line_rules import C4, LINES_VERSION
from pipeline.ingest.documents.records import Rewriting, Source
from pipeline.kernels.bits import Bytes, Offsets

NUMBERS = {
    "min-words": (math.inf, "a number of words, e.g. min-words=50"),
    "max-words": (math.inf, "a number of words, e.g. max-words=100000"),
    "min-letters": (1, "a share from 0 to 1, e.g. min-letters=0.8"),
    "max-repeated": (1, "a share from 0 to 1, e.g. max-repeated=0.3"),
}
"""Largest value of each filter, and what to give."""
LANGUAGE = "language"
SETS = (*RULE_SETS, C4)
RULES = (*NUMBERS, LANGUAGE, *SETS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Rules for the documents of a corpus; one that breaks any of them is dropped."""

    min_words: float = 0
    """Words, see `words`."""
    max_words: float = math.inf
    min_letters: float = 0
    """Share of the words that contain a letter."""
    max_repeated: float = 1
    """Share of the lines that repeat an earlier line of the document."""
    language: str = ""
    """ISO 639-1 code; empty: any."""
    sets: tuple[str, ...] = ()
    """Keys of RULE_SETS, in its order."""
    c4: bool = False
    """True if text is read by the rules of C4, see `line_rules`."""

    @classmethod
    def parse(cls, given: list[str]) -> Filters:
        """Parse the name of a set, or NAME=VALUE, e.g. min-words=50; of one name the last counts.

        Raises ConfigError if a name or value is invalid.
        """
        bounds: dict[str, float] = {}
        language = ""
        named = set()
        for item in given:
            name, equals, value = item.partition("=")
            if name == LANGUAGE:
                language = _language(item, value)
            elif name in NUMBERS:
                bounds[name.replace("-", "_")] = _bound(item, name, value)
            elif name in SETS and not equals:
                named.add(name)
            elif name in SETS:
                raise ConfigError(f"--filter {item}: {name} takes no value; its paper sets them")
            else:
                raise ConfigError(
                    f"--filter {item}: unknown filter; did you mean {nearest(name, RULES)}? "
                    f"({', '.join(RULES)})"
                )
        if bounds.get("min_words", 0) > bounds.get("max_words", math.inf):
            raise ConfigError(
                f"--filter {' '.join(given)}: min-words is above max-words; lower min-words"
            )
        sets = tuple(name for name in RULE_SETS if name in named)
        return cls(**bounds, language=language, sets=sets, c4=C4 in named)

    @property
    def let_all_pass(self) -> bool:
        """True if no document that is read can be dropped."""
        return replace(self, c4=False) == Filters()

    def describe(self) -> dict[str, str]:
        """The bounds as text, for fingerprints, since JSON has no infinity.

        Without C4's rules, which are in the identity of what is read.
        """
        described = {name: str(bound) for name, bound in asdict(self).items()}
        del described["sets"], described["c4"]
        if self.language:  # another version may detect another language
            described["resiliparse"] = f"{version('resiliparse')} lower-cased"
        if self.sets:  # absent otherwise, so that fingerprints without sets stay
            described["sets"] = f"{' '.join(self.sets)} {VERSIONS}"
        return described

    def first_reasons(self, buffer: Bytes, offsets: Offsets) -> npt.NDArray[np.object_]:
        """[documents] the first drop reason of each, None: kept; see `reasons`."""
        found: npt.NDArray[np.object_] = np.full(len(offsets) - 1, None)
        for reason, held in self.reasons(buffer, offsets):
            found[held & (found == None)] = reason  # noqa: E711 (item by item)
        return found

    def reasons(self, buffer: Bytes, offsets: Offsets) -> Reasons:
        """Drop reasons, each with a mask of documents [n]; buffer and offsets as in `CleanText`."""
        if (self.min_words, self.max_words, self.min_letters) != (0, math.inf, 0):
            words, lettered = count_words(buffer, offsets).T
            yield "too few words", words < self.min_words
            yield "too many words", words > self.max_words
            yield "too few letters", lettered < self.min_letters * words
        if self.max_repeated < 1:
            yield "repeated lines", _repeated(buffer, offsets) > self.max_repeated
        if self.language:
            found = np.array([detect_fast(text.lower())[0] for text in _texts(buffer, offsets)])
            # sorted, as a set of strings has another order in every process
            for language in sorted({*found.tolist()} - {self.language, "unknown"}):
                yield f"language {language}", found == language
        measured = Measured(buffer, offsets)
        for name in self.sets:
            for reason, held in RULE_SETS[name](measured):
                yield f"{name}: {reason}", held


def filters_by_corpus(given: list[str], corpora: Iterable[str]) -> dict[str, Filters]:
    """The filters of each corpus, from RULE, which is for all, and CORPUS=RULE.

    RULE: as `Filters.parse` takes it. A corpus's own bound counts before one for all. Raises
    ConfigError for the name of another corpus.
    """
    rules: dict[str, list[str]] = {corpus: [] for corpus in corpora}
    for_all = []
    for item in given:
        corpus, _, rule = item.partition("=")
        if corpus in rules and corpus not in RULES:  # a rule of that name is meant
            rules[corpus].append(rule)
        elif rule.partition("=")[0] in RULES:
            raise ConfigError(
                f"--filter {item}: {corpus} is not a corpus of this command, which has "
                f"{', '.join(rules)}"
            )
        else:
            for_all.append(item)
    # own rules last: of equal names the last counts
    return {corpus: Filters.parse(for_all + own) for corpus, own in rules.items()}


def rewrite_texts(
    sources: list[Source], given_map: str, given: list[str], exclude: Path | None = None
) -> list[Source]:
    """The sources, whose documents pass a user's function and the rules that keep some lines.

    given_map: FILE.py:FUNCTION, empty: none; given: as for `filters_by_corpus`; exclude: file that
    names documents to drop. Raises ConfigError if one is wrong.
    """
    function = find_map(given_map) if given_map else Rewriting()
    if exclude:
        function = find_excluded(function, exclude)
    filters = filters_by_corpus(given, [source.corpus for source in sources])
    of_corpus = {
        corpus: function._replace(lines=LINES_VERSION if its.c4 else 0)
        for corpus, its in filters.items()
    }
    return [replace(source, rewriting=of_corpus[source.corpus]) for source in sources]


def _bound(item: str, name: str, value: str) -> float:
    most, what = NUMBERS[name]
    try:
        bound = float(value)
    except ValueError:
        bound = math.nan
    if not 0 <= bound <= most:  # true for NaN, too
        raise ConfigError(f"--filter {item}: {name} needs {what}")
    return bound


def _language(item: str, value: str) -> str:
    if value not in supported_langs():
        raise ConfigError(
            f"--filter {item}: unknown language; give its two-letter code, e.g. language=en"
        )
    return value


def _texts(buffer: Bytes, offsets: Offsets) -> Iterator[str]:
    for start, stop in itertools.pairwise(offsets):
        yield buffer[start : stop - 1].tobytes().decode()


def _repeated(buffer: Bytes, offsets: Offsets) -> npt.NDArray[np.float64]:
    """[documents] share of lines that repeat an earlier line of the document."""
    lines = [text.split("\n") for text in _texts(buffer, offsets)]
    return np.array([1 - len(set(its)) / len(its) for its in lines])
