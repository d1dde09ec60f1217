"""Quality and language filters for documents; all are off by default.

The papers of the families use hardly any: RoBERTa's CC-News is English only (Liu et al. 2019,
sec. 3.2). Typical bounds are MassiveText's (Rae et al. 2021, "Scaling language models: methods,
analysis & insights from training Gopher", app. A.1.1, recalled): 50 to 100,000 words, a letter in
80 % of words, at most 30 % repeated lines. Its other rules (symbols, bullets, ellipses, stop words,
repeated n-grams) are not implemented.

The language is detected by resiliparse's `detect_fast`, at 150 MB/s per core. It misjudged 3 of
1,928 pieces of 1,000 characters of English books, news and articles, and about 3 % of pieces of 100
characters. A text that is too short to detect is kept. Language metadata in files is ignored: few
formats have it, and it describes a wiki or a page's template rather than the text.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version

import numpy as np
import numpy.typing as npt
from resiliparse.parse.lang import detect_fast, supported_langs

from pipeline.base.errors import ConfigError
from pipeline.config.settings import nearest
from pipeline.data.selection.words import count_words
from pipeline.data.text.cleaning import Offsets
from pipeline.kernels.bits import Bytes

Reasons = Iterator[tuple[str, npt.NDArray[np.bool_]]]

NUMBERS = {
    "min-words": (math.inf, "a number of words, e.g. min-words=50"),
    "max-words": (math.inf, "a number of words, e.g. max-words=100000"),
    "min-letters": (1, "a share from 0 to 1, e.g. min-letters=0.8"),
    "max-repeated": (1, "a share from 0 to 1, e.g. max-repeated=0.3"),
}
"""Largest value of each filter, and what to give."""
LANGUAGE = "language"


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Bounds; a document outside any of them is dropped."""

    min_words: float = 0
    """Words, see `words`."""
    max_words: float = math.inf
    min_letters: float = 0
    """Share of the words that contain a letter."""
    max_repeated: float = 1
    """Share of the lines that repeat an earlier line of the document."""
    language: str = ""
    """ISO 639-1 code; empty: any."""

    @classmethod
    def parse(cls, given: list[str]) -> Filters:
        """Parse NAME=VALUE, e.g. min-words=50. Raises ConfigError if a name or value is invalid."""
        bounds: dict[str, float] = {}
        language = ""
        for item in given:
            name, _, value = item.partition("=")
            if name == LANGUAGE:
                language = _language(item, value)
            elif name in NUMBERS:
                bounds[name.replace("-", "_")] = _bound(item, name, value)
            else:
                names = [*NUMBERS, LANGUAGE]
                raise ConfigError(
                    f"--filter {item}: unknown filter; did you mean {nearest(name, names)}? "
                    f"({', '.join(names)})"
                )
        if bounds.get("min_words", 0) > bounds.get("max_words", math.inf):
            raise ConfigError(
                f"--filter {' '.join(given)}: min-words is above max-words; lower min-words"
            )
        return cls(**bounds, language=language)

    def describe(self) -> dict[str, str]:
        """The bounds as text, for fingerprints, since JSON has no infinity."""
        detector = {"resiliparse": version("resiliparse")} if self.language else {}
        return {name: str(bound) for name, bound in asdict(self).items()} | detector

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
            found = np.array([detect_fast(text)[0] for text in _texts(buffer, offsets)])
            for language in sorted({*found.tolist()} - {self.language, "unknown"}):
                yield f"language {language}", found == language


def _bound(item: str, name: str, value: str) -> float:
    most, what = NUMBERS[name]
    try:
        bound = float(value)
    except ValueError:
        bound = math.nan
    if not 0 <= bound <= most:
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
