"""Rules that leave documents out for what they look like; all are off unless asked for.

The papers of the families have hardly any: RoBERTa's CC-News is English only (Liu et al. 2019,
sec. 3.2). Bounds are those of MassiveText (Rae et al. 2021, "Scaling language models: methods,
analysis & insights from training Gopher", app. A.1.1), recalled, where it has one: 50 to 100,000
words, a letter in 80 % of words, at most 30 % of lines seen before. Its other rules (symbols,
bullets, ellipses, stop words, runs of n-grams) are not implemented.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields

import numpy as np
import numpy.typing as npt

from pipeline.data.bits import Bytes
from pipeline.data.cleaning import Offsets
from pipeline.data.shingles import count_words
from pipeline.errors import ConfigError
from pipeline.settings import nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """A document outside any of these bounds is left out."""

    min_words: float = 0
    """Words, as `shingles` parts them."""
    max_words: float = math.inf
    min_letters: float = 0
    """Share of the words that have a letter."""
    max_repeated: float = 1
    """Share of the lines that the document had before."""

    @classmethod
    def parse(cls, given: list[str]) -> Filters:
        """Of NAME=NUMBER, as min-words=50; ConfigError when there is no such filter."""
        names = [field.name.replace("_", "-") for field in fields(cls)]
        bounds: dict[str, float] = {}
        for item in given:
            name, _, number = item.partition("=")
            if name not in names:
                raise ConfigError(
                    f"--filter {item}: no such filter; did you mean {nearest(name, names)}? "
                    f"({', '.join(names)})"
                )
            try:
                bounds[name.replace("-", "_")] = bound = float(number)
            except ValueError:
                bound = -1
            if not 0 <= bound <= (1 if name in ("min-letters", "max-repeated") else math.inf):
                what = "a share from 0 to 1" if "words" not in name else "a number of words"
                raise ConfigError(f"--filter {item}: {name} wants {what}, e.g. {_EXAMPLES[name]}")
        if bounds.get("min_words", 0) > bounds.get("max_words", math.inf):
            raise ConfigError(f"--filter {' '.join(given)}: no document has so many and so few")
        return cls(**bounds)

    def describe(self) -> dict[str, str]:
        """For fingerprints: JSON knows no infinity."""
        return {name: str(bound) for name, bound in asdict(self).items()}

    def reasons(
        self, buffer: Bytes, offsets: Offsets
    ) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
        """Reasons, and which of the documents [n] have them; as `cleaning.CleanText` has them."""
        if (self.min_words, self.max_words, self.min_letters) != (0, math.inf, 0):
            words, lettered = count_words(buffer, offsets).T
            yield "too few words", words < self.min_words
            yield "too many words", words > self.max_words
            yield "too few letters", lettered < self.min_letters * words
        if self.max_repeated < 1:
            yield "repeated lines", _repeated(buffer, offsets) > self.max_repeated


_EXAMPLES = {
    "min-words": "min-words=50",
    "max-words": "max-words=100000",
    "min-letters": "min-letters=0.8",
    "max-repeated": "max-repeated=0.3",
}


def _repeated(buffer: Bytes, offsets: Offsets) -> npt.NDArray[np.float64]:
    """[documents] the share of lines that an earlier one of the document is equal to."""
    shares = np.zeros(len(offsets) - 1)
    for document, (start, stop) in enumerate(itertools.pairwise(offsets)):
        lines = buffer[start : stop - 1].tobytes().split(b"\n")
        shares[document] = 1 - len(set(lines)) / len(lines)
    return shares
