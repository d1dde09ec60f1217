"""The rule sets of papers by name, each with its paper's numbers: `--filter gopher-quality`.

They look at cleaned documents, whose lines are paragraphs: cleaning joins hard-wrapped lines and
leaves no blank ones. Words are `terms`. Numbers are those of the papers; where the code of
datatrove differs, a line says so. Not implemented: rules about paragraphs between blank lines
(Gopher), lists of bad words, and personal data. The rules of C4 are in `line_rules`, as they change
the text that these look at.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numba
import numpy as np
import numpy.typing as npt

from pipeline.data.selection.terms import (
    HAS_LETTER,
    IS_SYMBOL,
    TERMS_VERSION,
    Terms,
    find_terms,
    hash_term,
)
from pipeline.kernels.bits import GOLDEN, Bytes, Offsets, U, mix

Mask = npt.NDArray[np.bool_]
Reasons = Iterator[tuple[str, Mask]]

RULES_VERSION = 1
"""Increased when a set gives another verdict on the same text."""

STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")
"""Rae et al. 2021, app. A.1.1; with this case."""
ELLIPSES, BULLETS = ("...", "…"), ("•", "-")
_ENDS = (
    "21 2E 3F 589 61D-61F 6D4 700-702 7F9 837 839 83D-83E 964-965 104A-104B 1362 1367-1368 166E "
    "1735-1736 17D4-17D5 1803 1809 1944-1945 1AA8-1AAB 1B4E-1B4F 1B5A-1B5B 1B5E-1B5F 1B7D-1B7F "
    "1C3B-1C3C 1C7E-1C7F 2024 203C-203D 2047-2049 2CF9-2CFB 2E2E 2E3C 2E53-2E54 2E60-2E61 3002 "
    "A4FF A60E-A60F A6F3 A6F7 A876-A877 A8CE-A8CF A92F A9C8-A9C9 AA5D-AA5F AAF0-AAF1 ABEB FE12 "
    "FE15-FE16 FE52 FE56-FE57 FF01 FF0E FF1F FF61 10A56-10A57 10F55-10F59 10F86-10F89 11047-11048 "
    "110BE-110C1 11141-11143 111C5-111C6 111CD 111DE-111DF 11238-11239 1123B-1123C 112A9 "
    "113D4-113D5 1144B-1144C 115C2-115C3 115C9-115D7 11641-11642 1173C-1173E 11944 11946 "
    "11A42-11A43 11A9B-11A9C 11C41-11C42 11EF7-11EF8 11F43-11F44 16A6E-16A6F 16AF5 16B37-16B38 "
    "16B44 16D6E-16D6F 16E98 1BC9F 1DA88"
)
SENTENCE_ENDS = frozenset(
    chr(code)
    for first, _, last in (span.partition("-") for span in _ENDS.split())
    for code in range(int(first, 16), int(last or first, 16) + 1)
)
"""Unicode's Sentence_Terminal (version 16), which Python's `unicodedata` lacks."""


@dataclass(frozen=True)
class Measured:
    """Documents as in `CleanText`, and what several sets measure of them."""

    buffer: Bytes
    offsets: Offsets

    @cached_property
    def terms(self) -> Terms:
        """All words and symbols."""
        return find_terms(self.buffer, self.offsets)

    @cached_property
    def texts(self) -> list[str]:
        """[documents]"""
        bounds = itertools.pairwise(self.offsets.tolist())
        return [self.buffer[start : stop - 1].tobytes().decode() for start, stop in bounds]

    @cached_property
    def lines(self) -> list[list[str]]:
        """[documents] their lines."""
        return [text.split("\n") for text in self.texts]

    def shares(self, counts: Callable[[list[str]], float]) -> npt.NDArray[np.float64]:
        """[documents] a count of lines as a share of all."""
        return np.array([counts(lines) / len(lines) for lines in self.lines])

    @cached_property
    def repeats(self) -> npt.NDArray[np.int64]:
        """[documents, 2] lines that repeat an earlier one of the document, their characters."""
        return np.array([_repeats(lines) for lines in self.lines]).reshape(-1, 2)


def _repeats(lines: list[str]) -> tuple[int, int]:
    distinct = set(lines)
    if len(distinct) == len(lines):
        return 0, 0
    return len(lines) - len(distinct), sum(map(len, lines)) - sum(map(len, distinct))


def gopher_quality(documents: Measured) -> Reasons:
    """The quality rules of MassiveText: Rae et al. 2021, app. A.1.1."""
    terms = documents.terms
    is_word = (terms.flags & IS_SYMBOL) == 0
    words = terms.add_up(is_word)
    yield "under 50 words", words < 50
    yield "over 100,000 words", words > 100_000
    mean = terms.add_up(terms.lengths * is_word) / np.maximum(words, 1)
    yield "mean word under 3 letters", mean < 3
    yield "mean word over 10 letters", mean > 10
    every = np.maximum(np.diff(terms.bounds), 1)  # symbols count among the words from here on
    hashes = np.array([text.count("#") for text in documents.texts])
    yield "over 0.1 hash signs per word", hashes / every > 0.1
    ellipses = np.array([sum(map(text.count, ELLIPSES)) for text in documents.texts])
    yield "over 0.1 ellipses per word", ellipses / every > 0.1
    bullets = documents.shares(lambda lines: sum(line.startswith(BULLETS) for line in lines))
    yield "over 90 % of lines with a bullet", bullets > 0.9
    ends = documents.shares(lambda lines: sum(line.endswith(ELLIPSES) for line in lines))
    yield "over 30 % of lines with an ellipsis", ends > 0.3
    lettered = terms.add_up(terms.flags & HAS_LETTER) / every
    yield "under 80 % of words with a letter", lettered < 0.8
    stops = sum(
        (terms.add_up(terms.hashes == np.uint64(hash_term(word))) > 0).astype(np.int64)
        for word in STOP_WORDS
    )
    yield "under 2 stop words", np.asarray(stops) < 2


TOP_RUNS = {2: 0.20, 3: 0.18, 4: 0.16}
"""Rae et al. 2021, table A1: words of a run, largest share of the characters in the commonest."""
REPEATED_RUNS = {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.10}
"""The same table: words of a run, largest share of the characters in runs that occurred before."""


def gopher_repetition(documents: Measured) -> Reasons:
    """The repetition rules of MassiveText: Rae et al. 2021, table A1, but those of paragraphs."""
    terms = documents.terms
    characters = np.array([len(text) for text in documents.texts])
    count, repeated = documents.repeats.T
    lines = np.array([len(lines) for lines in documents.lines])
    yield "over 30 % repeated lines", count / lines > 0.30
    yield "over 20 % of text in repeated lines", repeated / characters > 0.20
    runs = np.array([*TOP_RUNS, *REPEATED_RUNS])
    held = np.zeros((len(characters), len(runs)), np.int64)
    _count_runs(terms.hashes, terms.lengths, terms.bounds, runs, len(TOP_RUNS), held)
    # no document is empty here, see `read_batches`
    shares = held / characters[:, None]
    for column, (words, most) in enumerate([*TOP_RUNS.items(), *REPEATED_RUNS.items()]):
        what = "the commonest run" if column < len(TOP_RUNS) else "repeated runs"
        yield (
            f"over {round(100 * most)} % of text in {what} of {words} words",
            shares[:, column] > most,
        )


def fineweb(documents: Measured) -> Reasons:
    """FineWeb's own rules: Penedo et al. 2024, sec. 3.6, recalled.

    datatrove has 0.01 in place of the paper's 0.1 of repeated text, and drops documents with over
    0.3 new lines per word.
    """
    ends = documents.shares(lambda lines: sum(line[-1:] in SENTENCE_ENDS for line in lines))
    yield "under 12 % of lines with an end mark", ends < 0.12
    short = documents.shares(lambda lines: sum(len(line) <= 30 for line in lines))
    yield "over 67 % of lines under 30 letters", short > 0.67
    sizes = np.array([sum(map(len, lines)) for lines in documents.lines])
    yield "over 10 % of text in repeated lines", documents.repeats[:, 1] / sizes > 0.1


RULE_SETS: dict[str, Callable[[Measured], Reasons]] = {
    "gopher-repetition": gopher_repetition,
    "gopher-quality": gopher_quality,
    "fineweb": fineweb,
}
"""Sets in the order in which they give the reason of a document, which is FineWeb's."""
VERSIONS = [RULES_VERSION, TERMS_VERSION]


@numba.njit(cache=True, nogil=True)
def _count_runs(hashes, lengths, bounds, runs, tops, held):  # type: ignore[no-untyped-def]
    """Characters in runs of words, to held, int64 [documents, runs].

    runs: words of each; the first `tops` want the commonest run, of equally common ones the first,
    with its spaces; the others want runs that occurred before, without spaces, where what was
    counted is not counted again.

    1. A table of 2^k slots, at least twice the document's terms, holds the hash of each run; a slot
       is of the current run if its stamp is, so the table is not emptied in between.
    2. The hash of a run is a sum over its terms, in order.
    """
    most = 0
    for document in range(len(bounds) - 1):
        most = max(most, bounds[document + 1] - bounds[document])
    size = 16
    while size < 2 * most:
        size *= 2
    # sized for the longest document, so that memory is allocated once
    slots, stamps = np.empty(size, np.uint64), np.zeros(size, np.int64)
    counts, firsts = np.empty(size, np.int64), np.empty(size, np.int64)
    stamp = 0
    for document in range(len(bounds) - 1):
        first, stop = bounds[document], bounds[document + 1]
        mask = 16
        while mask < 2 * (stop - first):
            mask *= 2
        mask -= 1
        for column in range(len(runs)):
            words, is_top = runs[column], column < tops
            stamp += 1  # 1. empties the table
            best, best_first, total = 0, -1, 0
            at = first
            while at + words <= stop:
                # 2. computed afresh: a run has at most 10 terms, and `at` jumps over repeated ones
                run = U(0)
                for index in range(at, at + words):
                    run = (run ^ hashes[U(index)]) * GOLDEN
                run = mix(run)
                slot = np.int64(run & U(mask))
                while stamps[slot] == stamp and slots[slot] != run:
                    slot = (slot + 1) & mask
                is_new = stamps[slot] != stamp
                if is_new:
                    stamps[slot], slots[slot] = stamp, run
                    counts[slot], firsts[slot] = 0, at
                if is_top:
                    counts[slot] += 1
                    more = counts[slot] - best
                    if more > 0 or (more == 0 and firsts[slot] < best_first):
                        best, best_first = counts[slot], firsts[slot]
                    at += 1
                elif is_new:
                    at += 1
                else:
                    for index in range(at, at + words):
                        total += lengths[index]
                    at += words
            if is_top and best > 0:
                total = words - 1  # the spaces between them
                for index in range(best_first, best_first + words):
                    total += lengths[index]
                total *= best
            held[document, column] = total
