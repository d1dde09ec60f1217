"""`--explain` prints the whole catalogue entry, at any width, without a network."""

from pathlib import Path

import pytest

from pipeline.base.errors import ConfigError
from pipeline.ingest.corpora.catalogue import CORPORA, GROUPS
from pipeline.ingest.corpora.explain import explain


def test_all_of_a_corpus_or_group_is_printed_in_lines_that_fit_the_terminal() -> None:
    for name in (*CORPORA, *GROUPS, "sample"):
        for width in (20, 80, 93, 400):
            lines = explain(name, width)
            assert max(map(len, lines)) <= min(max(width, 80), 100)
            assert all(line == line.rstrip() for line in lines)
    for name, corpus in CORPORA.items():
        words = " ".join(" ".join(explain(name, 80)).split())
        assert corpus.hub
        for text in (
            corpus.description, corpus.published, corpus.licence, corpus.hub.id,
            corpus.hub.revision, corpus.hub.files, corpus.hub.licence, *corpus.defects,
            *corpus.alternatives,
        ):  # fmt: skip
            assert " ".join(text.split()) in words
    for name, group in GROUPS.items():
        words = " ".join(explain(name, 100))
        assert all(f"{member}=PATH" in words for member in group.members)
        assert "--allow-short" in words


def test_unknown_names_and_paths(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean cc-news"):
        explain("cc_news", 80)
    with pytest.raises(ConfigError, match=str(tmp_path)):
        explain(str(tmp_path), 80)
