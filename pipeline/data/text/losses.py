"""Text that rules take from documents: which ones took over half of a corpus, or of a file.

A rule that takes over half of what it is given was probably given something else than it expects:
several books in one file, tables of blanks, a script without words. So these are counted in bytes:

* what a reader cuts from books as not their text: licences, credits, notes
* what cleaning removes: white space, controls, invisible characters
* unusable records: a single line may be most of a file
* documents that a filter, decontamination or deduplication drops; these were asked for, and a file
  of copies is what they are for, so they count for the whole corpus only

Markup and what surrounds the main text of a page are most of a good dump or crawl, so the bytes
that extraction leaves out say nothing, and neither do records without text; these are counted as
dropped, with the reason.

The counts of a file are those of one part of the shards: a part keeps the entries of its large
files, which may continue in other parts, and of the worst of the small ones. So neither memory nor
markers grow with the number of files, and the sums do not depend on who makes which part.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from pipeline.data.text.cleaning import with_sorted_marks

CLEANING = "white space and controls, in cleaning"
READ = "read"
"""Key of the bytes of a file's text before any rule; the other keys are rules."""
FileLosses = dict[str, dict[str, int]]
"""Per file: bytes read, and bytes taken by rule."""

LARGE_FILE = 1 << 20
MOST_FILES = 20
_NAMED = 5


def cleaned_away(text: str, cleaned: int) -> int:
    """Bytes that cleaning, which left `cleaned` bytes, removed from a text.

    What becomes a composed character (NFC) is not removed: Korean in NFD has three times the bytes.
    """
    composed = unicodedata.normalize("NFC", with_sorted_marks(text))  # or NFC takes quadratic time
    return max(0, len(composed.encode(errors="replace")) - cleaned)


def lost(counts: dict[str, int]) -> int:
    """Bytes that all rules took of a file."""
    return sum(counts.values()) - counts[READ]


def kept_entries(files: FileLosses) -> FileLosses:
    """The entries of a part's files that its marker keeps."""
    small = {name: counts for name, counts in files.items() if counts[READ] < LARGE_FILE}
    large = {name: counts for name, counts in files.items() if name not in small}
    return large | dict(_worst(small)[:MOST_FILES])


def _worst(files: FileLosses) -> list[tuple[str, dict[str, int]]]:
    """Files that lost over half of their text, those that lost most first."""
    halved = [(name, counts) for name, counts in files.items() if lost(counts) * 2 > counts[READ]]
    # names break ties, so the same files are kept on every machine
    return sorted(halved, key=lambda item: (-lost(item[1]), item[0]))


def describe_losses(
    corpus: str, kept: int, taken: dict[str, int], files: FileLosses
) -> Iterator[str]:
    """Warnings about a corpus: the rules that took over half of it, and the worst files.

    kept: bytes of cleaned text; taken: bytes by rule.
    """
    total = kept + sum(taken.values())
    if sum(taken.values()) * 2 > total:
        yield (
            f"warning: {corpus}: over half of the text was taken, of {total:,} bytes "
            f"{_by_rule(taken)}; look at its documents with pipeline.inspect"
        )
    if worst := _worst(files):
        named = [f"{name} (of {counts[READ]:,} bytes {_by_rule(counts)})" for name, counts in worst]
        more = " and others" if len(named) > _NAMED else ""
        yield (
            f"warning: {corpus}: over half was cut from {', '.join(named[:_NAMED])}{more}; look at "
            "these documents with pipeline.inspect"
        )


def _by_rule(counts: dict[str, int]) -> str:
    rules = sorted((-size, rule) for rule, size in counts.items() if rule != READ and size)
    return ", ".join(f"{-size:,} by {rule!r}" for size, rule in rules[:3])
