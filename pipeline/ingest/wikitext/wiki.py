"""The wiki that a page is from: its address, its language and the names of its namespaces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from pipeline.ingest.wikitext.names import NAMESPACES

MEDIA, FILE, CATEGORY = -2, 6, 14
"""MediaWiki's numbers of namespaces."""


@dataclass(frozen=True, slots=True)
class Wiki:
    """Properties of a wiki that decide how its wikitext is read."""

    base: str = ""
    """Address of the wiki's pages; empty if unknown."""
    language: str = ""
    """Code of its language, as MediaWiki writes it; empty if unknown."""
    own_names: tuple[tuple[int, str], ...] = ()
    """The namespaces that the dump names, by number."""

    def namespace(self, title: str) -> int:
        """FILE, CATEGORY or MEDIA if a link's title starts with a name of it, else 0.

        Names are those of the dump, MediaWiki's English ones, and the former ones of the wiki's
        language; of every language if the dump does not say which one it is in.
        """
        prefix, colon, _ = title.partition(":")
        return _names(self.language, self.own_names).get(_fold(prefix), 0) if colon else 0


def _fold(name: str) -> str:
    """Names differ neither by case nor by underscores."""
    return " ".join(name.replace("_", " ").split()).strip("\u200e\u200f").lower()


@cache
def _names(language: str, own_names: tuple[tuple[int, str], ...]) -> Mapping[str, int]:
    languages = {"en", language.lower(), language.lower().partition("-")[0]}
    names = {"media": MEDIA}
    for code, (files, categories) in NAMESPACES.items():
        if code in languages or not language:
            names |= dict.fromkeys(files.split(", "), FILE)
            names |= dict.fromkeys(categories.split(", "), CATEGORY)
    own = {_fold(name): number for number, name in own_names}
    # The dump's own names prevail.
    return names | {name: number for name, number in own.items() if name}
