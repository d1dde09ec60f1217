"""`--explain` prints the whole catalogue entry, at any width, without a network."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.base.errors import ConfigError
from pipeline.ingest.corpora.catalogue import CORPORA, GROUPS
from pipeline.ingest.corpora.explain import explain


@pytest.mark.parametrize("width", [20, 80, 93, 400])
@pytest.mark.parametrize("name", [*CORPORA, *GROUPS, "sample"])
def test_lines_fit_the_terminal(name: str, width: int) -> None:
    lines = explain(name, width)
    assert max(map(len, lines)) <= min(max(width, 80), 100)
    assert all(line == line.rstrip() for line in lines)


@pytest.mark.parametrize("name", CORPORA)
def test_every_field_of_a_corpus_is_printed(name: str) -> None:
    corpus, words = CORPORA[name], " ".join(" ".join(explain(name, 80)).split())
    assert corpus.hub
    for text in (
        corpus.description, corpus.published, corpus.licence, corpus.hub.id, corpus.hub.revision,
        corpus.hub.files, corpus.hub.licence, *corpus.defects, *corpus.alternatives,
    ):  # fmt: skip
        assert " ".join(text.split()) in words


@pytest.mark.parametrize("name", GROUPS)
def test_a_group_names_its_members_and_how_to_give_them(name: str) -> None:
    words = " ".join(explain(name, 100))
    for member in GROUPS[name].members:
        assert f"{member}=PATH" in words
    assert "--allow-short" in words


def test_unknown_names() -> None:
    with pytest.raises(ConfigError, match="did you mean cc-news"):
        explain("cc_news", 80)


def test_a_path_is_to_be_inspected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"named corpora; .* -m pipeline.inspect {tmp_path}`"):
        explain(str(tmp_path), 80)


def test_the_command_needs_no_input_and_no_datasets() -> None:
    code = (
        "import sys; sys.modules['datasets'] = None\n"
        "sys.argv = ['prepare', '--corpus', 'cc-news', '--explain']\n"
        "from pipeline import prepare; prepare.main()"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert "https://data.commoncrawl.org/crawl-data/CC-NEWS/2019/02/warc.paths.gz" in result.stdout
