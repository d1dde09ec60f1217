"""The catalogue is complete and consistent."""

from __future__ import annotations

import re

import pytest

from pipeline.ingest.corpora.catalogue import CORPORA, GROUPS
from pipeline.ingest.corpora.groups import SHORT_SHARE


@pytest.mark.parametrize("name", CORPORA)
def test_every_corpus_is_pinned_licensed_and_has_its_defects(name: str) -> None:
    corpus = CORPORA[name]
    assert corpus.hub and re.fullmatch(r"[0-9a-f]{40}", corpus.hub.revision)
    assert corpus.licence and corpus.published and corpus.defects and corpus.alternatives
    assert corpus.hub.download_bytes < corpus.hub.text_bytes and corpus.published_bytes > 0


@pytest.mark.parametrize("name", GROUPS)
def test_sizes_of_members_add_up_to_the_groups(name: str) -> None:
    group = GROUPS[name]
    sizes = [CORPORA[member].published_bytes for member in group.members]
    assert abs(sum(sizes) - group.published_bytes) < 0.001 * group.published_bytes
    assert len(set(group.members)) == len(group.members)


def test_the_larger_group_contains_the_smaller_in_the_same_priority() -> None:
    small, large = GROUPS["16gb"].members, GROUPS["160gb"].members
    assert large[: len(small)] == small and set(large) == set(CORPORA)


def test_only_the_hubs_cc_news_is_too_short_for_a_group() -> None:
    short = [
        name
        for name, corpus in CORPORA.items()
        if corpus.hub and corpus.hub.text_bytes < (1 - SHORT_SHARE) * corpus.published_bytes
    ]
    assert short == ["cc-news"]
