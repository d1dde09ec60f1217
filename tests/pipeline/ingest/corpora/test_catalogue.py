"""The catalogue is complete and consistent."""

import re
from pathlib import Path

from pipeline.ingest.corpora import catalogue
from pipeline.ingest.corpora.catalogue import CORPORA, GROUPS
from pipeline.ingest.corpora.groups import SHORT_SHARE

SOURCES = Path(catalogue.__file__).with_name("SOURCES.md")
"""Where each corpus comes from, and its defects."""


def test_every_corpus_is_pinned_licensed_and_has_its_defects() -> None:
    short, text = [], SOURCES.read_text()
    for name, corpus in CORPORA.items():
        assert corpus.hub and re.fullmatch(r"[0-9a-f]{40}", corpus.hub.revision), name
        assert corpus.licence and f"`{corpus.hub.revision}`" in text, name
        assert corpus.hub.download_bytes < corpus.hub.text_bytes and corpus.published_bytes > 0
        if corpus.hub.text_bytes < (1 - SHORT_SHARE) * corpus.published_bytes:
            short.append(name)
    assert short == ["cc-news"], "too short on the Hub for a group"


def test_groups_have_the_sizes_of_their_members_and_the_larger_contains_the_smaller() -> None:
    for group in GROUPS.values():
        sizes = [CORPORA[member].published_bytes for member in group.members]
        assert abs(sum(sizes) - group.published_bytes) < 0.001 * group.published_bytes
        assert len(set(group.members)) == len(group.members)
    small, large = GROUPS["16gb"].members, GROUPS["160gb"].members
    assert large[: len(small)] == small and set(large) == set(CORPORA), "in the same priority"
