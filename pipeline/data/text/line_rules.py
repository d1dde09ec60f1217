"""The rules of C4, which keep some lines of a document and change its text: `--filter c4`.

Raffel et al. 2020, "Exploring the limits of transfer learning with a unified text-to-text
transformer", sec. 2.2, with the details of its code as datatrove has them:

* a line is kept if it ends in a period, question mark, exclamation mark or quotation mark, though
  not in an ellipsis, has at least 3 words, none of over 1,000 letters (code), and names neither
  JavaScript nor terms of use, privacy or cookies (code)
* a page is dropped if a line of it has "lorem ipsum" or a curly bracket, or if fewer than 5
  sentences are left
* citation marks of Wikipedia are removed: [1], [edit], [citation needed] (code)

The paper's code has 5 words and 3 sentences. Not implemented: the list of bad words, one copy of
each three sentences, and langdetect, for which there are other filters.

These rules come after cleaning: a line is a paragraph, and has single spaces.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pipeline.data.text.cleaning import CleanText, replace_documents
from pipeline.data.text.sentences import sentence_starts

C4 = "c4"
"""Name of the rules."""
LINES_VERSION = 1
"""Increased when the same text is kept otherwise."""

LEAST_WORDS, LEAST_SENTENCES, MOST_LETTERS = 3, 5, 1000
_END_MARKS = (".", "?", "!", '"', "'")
CITATION = re.compile(r"\[(?:\d*|edit|citation needed)\]")
_LOREM, _SCRIPT = "lorem ipsum", "javascript"
_POLICIES = (
    "terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies",
    "use cookies",
)  # fmt: skip


@dataclass(slots=True)
class KeptLines:
    """The documents that the rules leave."""

    text: CleanText
    """All documents; those that are dropped are not meant to be used."""
    dropped: dict[int, str] = field(default_factory=dict)
    """Reasons of dropped documents, by index."""
    cut: Counter[str] = field(default_factory=Counter)
    """Bytes of the lines that were cut from the others, by reason."""


def keep_lines(text: CleanText, chosen: npt.NDArray[np.bool_]) -> KeptLines:
    """Apply the rules to the chosen documents."""
    made = KeptLines(text)
    changed: dict[int, bytes] = {}
    cuts: dict[int, Counter[str]] = {}
    for index in np.flatnonzero(chosen).tolist():
        document = text.document(index)
        lines, reason, cut = _kept(document)
        if reason:
            made.dropped[index] = reason
        elif cut or lines != document:
            changed[index], cuts[index] = lines.encode(), cut
    if changed:
        made.text = replace_documents(text, changed)
    # after the lines are cut: only sentences that are left count
    starts = sentence_starts(made.text.buffer, made.text.offsets)
    sentences = np.diff(np.searchsorted(starts, made.text.offsets))
    for index in np.flatnonzero(chosen & (sentences < LEAST_SENTENCES)).tolist():
        made.dropped.setdefault(index, f"{C4}: under {LEAST_SENTENCES} sentences")
    # documents that are dropped count as a whole, not by their lines
    made.cut = sum((cuts[index] for index in cuts.keys() - made.dropped.keys()), Counter())
    return made


def _kept(document: str) -> tuple[str, str, Counter[str]]:
    """The lines that are kept, why the whole document is dropped, bytes cut by reason."""
    kept, cut = [], Counter[str]()
    folded = document.lower()  # of all lines at once, as few documents have one of these
    has_phrase = any(phrase in folded for phrase in (_LOREM, _SCRIPT, *_POLICIES))
    for line in document.split("\n"):
        bare = CITATION.sub("", line) if "[" in line else line
        reason = _why_cut(line, bare)
        if not reason and has_phrase:
            folded = bare.lower()
            if _LOREM in folded:
                return "", f"{C4}: lorem ipsum", cut
            if _SCRIPT in folded:
                reason = "lines with JavaScript"
        if not reason and "{" in bare:
            return "", f"{C4}: curly bracket", cut
        if not reason and has_phrase and any(policy in folded for policy in _POLICIES):
            reason = "lines about policies"
        if reason:
            cut[f"{C4}: {reason}"] += len(line.encode()) + 1  # its newline
        else:
            # a removed citation can leave two spaces, or one at the end
            kept.append(" ".join(bare.split()) if bare is not line else line)
    return "\n".join(kept), "", cut


def _why_cut(line: str, bare: str) -> str:
    """The reason to cut a line by its form, or ""; bare: without citation marks."""
    if len(line) > MOST_LETTERS and max(map(len, line.split(" "))) > MOST_LETTERS:
        return f"lines with a word over {MOST_LETTERS:,} letters"
    if not bare.endswith(_END_MARKS) or bare.endswith("..."):
        return "lines without an end mark"
    if line.count(" ") < LEAST_WORDS - 1:
        return f"lines under {LEAST_WORDS} words"
    return ""
