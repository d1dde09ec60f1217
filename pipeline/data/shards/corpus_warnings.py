"""Counts of a corpus in the manifest -> what they warn of: unknown tokens, held-out copies."""

from __future__ import annotations

from typing import Any

MANY_COPIES = 0.01
"""Share of held-out documents with a near-copy in train above which users are warned."""
MUCH_UNKNOWN = 0.01
"""Share of a corpus's characters in unknown tokens above which users are warned."""


def unknown_share(corpus: dict[str, Any]) -> float:
    """The share of a corpus's characters that unknown tokens stand for."""
    behind = corpus["unknown"]["characters"]
    return float(behind / corpus["characters"]) if behind else 0.0


def describe_unknown(corpus: dict[str, Any]) -> str:
    """Line about a corpus's unknown text, with a warning if it is much; empty if there is none."""
    share = unknown_share(corpus)
    if not share:
        return ""
    unknown = corpus["unknown"]
    found = (
        f"{unknown['tokens']:,} unknown tokens stand for {unknown['characters']:,} characters, "
        f"{share:.3%} of the text"
    )
    if share <= MUCH_UNKNOWN:
        return found
    return f"warning: {found}; use a tokenizer of this text's scripts"


def describe_copies(corpus: dict[str, Any]) -> str:
    """Line about held-out documents that are in train, too; empty if none is."""
    counts = corpus["held_out_copies"]
    if not counts["in_train"]:
        return ""
    share = counts["in_train"] / counts["checked"]
    found = (
        f"{counts['in_train']:,} of {counts['checked']:,} held-out documents ({share:.1%}) have a "
        "near-copy in train"
    )
    if share <= MANY_COPIES:
        return found
    return (
        f"warning: {found}, so the held-out loss is too low; --dedup near drops near-copies, "
        "except those inside a longer document"
    )
