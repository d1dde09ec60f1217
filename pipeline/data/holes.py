"""Holes in the prose of wikis, where a template or formula stood: "( ; born 1809)", closed."""

from __future__ import annotations

import re

HOLES_VERSION = 1
"""Part of the identity of files in which holes are closed: goes up when they come out otherwise."""

_HOLES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), by)
    for pattern, by in (
        (r"[ \t\u00a0]+", " "),
        # inside brackets: separators that have nothing before or behind them
        (r"\(\s*[;,:]\s*(?:(?:[;,:]|\bor\b|\band\b)\s*)*", "("),
        (r"(?<=[\w\"”’)])(?:\s*[;,:])+\s*\)", ")"),
        (r"([;,])(?:\s*[;,])+", r"\1"),
        (r"(?: |(?<!\w))\(\s*\)", ""),  # not those of main()
        (r" ?\[\s*\]", ""),
        # the same in full width, for Chinese and Japanese
        (r"（\s*[；，：、;,:]\s*(?:[；，：、;,:]\s*)*", "（"),
        (r"(?:\s*[；，：、;,:])+\s*）", "）"),
        (r" ?（\s*）", ""),
        # and outside
        (r" +([,;.:!?])(?=[\s\"”’]|$)", r"\1"),
        (r" +\)", ")"),
        (r"\( +", "("),
        (r",(?=[.;:])", ""),
        (r"[ ]+", " "),
    )
)


def close_holes(text: str) -> str:
    """Mend what is left of a sentence around something that was taken out of it."""
    for pattern, by in _HOLES:
        text = pattern.sub(by, text)
    return text


_BRACKET = re.compile(r"[(（]\s*[;,:；，：、]|(?<!\w)\(\s*\)|（\s*）|[;,]\s*\)|[；，：、]\s*）")
"""A bracket with nothing in it, or nothing before or behind a separator."""


def mend(text: str) -> str:
    """Close the holes of those paragraphs, a line each, that have one in brackets.

    For text that others took out of wikis: what only could be a hole is left as they wrote it.
    """
    if not _BRACKET.search(text):
        return text
    return "\n".join(
        close_holes(line) if _BRACKET.search(line) else line for line in text.split("\n")
    )
