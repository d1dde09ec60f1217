"""Holes: punctuation, brackets and spaces around markup that shows no text.

What removes markup writes `HOLE` in its place. `close_holes` closes what is around a mark and
leaves everything else as it was written:

1. A bracket that holds only marks, separators and words such as "or" goes, with the space before.
2. Separators and spaces between a mark and a bracket go: "(; born 1809)" becomes "(born 1809)".
3. Of the separators on both sides of a mark the one before it stays; before a full stop none does.
4. Of the spaces around a mark one stays. Before a comma or a full stop none does; before the other
   punctuation the one after the mark stays, because French and code put one there.
"""

from __future__ import annotations

import re

HOLE = "\x01"
"""Mark of removed markup. XML cannot hold it, and readers of other text remove it first."""

_SEPARATORS = ";,:；，：、،؛"
_BLANKS = " \t\u00a0\u202f"
_FILLER = f"{_SEPARATORS}{_BLANKS}{HOLE}"
_JOINING = "or|and|oder|und|ou|et|o|y|e|или|и|或|和|及"
_EMPTY = re.compile(
    rf"[{_BLANKS}]?(?:\((?:[{_FILLER}]|\b(?:{_JOINING})\b)*\)|\[[{_FILLER}]*\]|（[{_FILLER}]*）)"
)
# A whole run of filler that has a mark, from its first character, so that each run is tried once.
_RUN = re.compile(rf"(?<![{_FILLER}])(?=[{_SEPARATORS}{_BLANKS}]*{HOLE})[{_FILLER}]+")
_FULL_STOP = re.compile(rf"[.…](?:[\s\"”’»)\]{HOLE}]|$)|[。．]")
_OPENING, _CLOSING = frozenset("([（"), frozenset(")]）")
_SPACED = frozenset(";:!?")
"""Punctuation that some languages write after a space."""


def close_holes(marked: str) -> str:
    """The text without its marks, with what is around each of them closed."""
    if HOLE not in marked:
        return marked
    return "\n".join(_close(line) if HOLE in line else line for line in marked.split("\n"))


def _close(line: str) -> str:
    # 1.
    for _ in range(2):  # a bracket in a bracket
        line = _EMPTY.sub(lambda empty: HOLE if HOLE in empty[0] else empty[0], line)
    return _RUN.sub(_filler, line)


def _filler(run: re.Match[str]) -> str:
    """The filler around marks, as it is to stay."""
    line, (start, stop) = run.string, run.span()
    before, after = line[max(0, start - 1) : start], line[stop : stop + 1]
    if not before:
        return run[0].replace(HOLE, "").lstrip(_BLANKS)
    if not after:
        return run[0].replace(HOLE, "").rstrip(_BLANKS)
    # 2., and 3. before a full stop.
    if before in _OPENING or after in _CLOSING or _FULL_STOP.match(line, stop):
        return ""
    written, _, rest = run[0].partition(HOLE)
    if after in _SPACED:  # 4.
        return _space(rest.rpartition(HOLE)[2])
    if kept := written.rstrip(_BLANKS):  # 3.
        return kept + _space(written[len(kept) :] + rest)
    separator = next((one for one in rest if one in _SEPARATORS), "")
    if not separator:
        return _space(written + rest)
    gap, _, rest = rest.partition(separator)
    before = _space(gap.rpartition(HOLE)[2]) if separator in _SPACED else ""
    return before + separator + _space(rest)


def _space(blanks: str) -> str:
    """One space for those in a string; a no-break space if there is one."""
    spaces = [blank for blank in _BLANKS if blank in blanks]
    return "" if not spaces else spaces[-1].replace("\t", " ")
