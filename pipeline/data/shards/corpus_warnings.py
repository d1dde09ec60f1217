"""Counts of a corpus in the manifest -> what they warn of: unknown tokens."""

from __future__ import annotations

from typing import Any

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
