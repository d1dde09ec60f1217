"""Texts that a recipe cannot use are refused; texts that only look similar are accepted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.base.errors import ConfigError
from pipeline.ingest.corpora.catalogue import CORPORA
from pipeline.ingest.corpora.sources import SAMPLE_FILES, corpus_sources
from pipeline.ingest.corpora.suitability import (
    holds_sentences,
    is_lower_cased,
    require_fit,
    require_fit_of_hub,
)
from pipeline.recipes import recipe

SENTENCE = "It was , he thought , the coldest morning that the harbour had seen . "


def rows(path: Path, texts: list[str]) -> list[str]:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return [str(path)]


def test_the_hubs_bookcorpus(tmp_path: Path) -> None:
    """Lower-cased sentences, one per row."""
    _, sources = corpus_sources("bookcorpus", rows(tmp_path / "b.jsonl", [SENTENCE.lower()] * 400))
    cased, uncased = recipe("roberta_base").data, recipe("bert_base").data
    with pytest.raises(ConfigError, match="lower-cased, and the recipe's byte-bpe"):
        require_fit(sources, cased)
    with pytest.raises(ConfigError, match=r"data\.format=segment_pair needs whole books"):
        require_fit(sources, uncased)
    require_fit(sources, replace(uncased, format="full_sentences"))
    hub = CORPORA["bookcorpus"].hub
    assert hub
    for data in (cased, uncased):
        with pytest.raises(ConfigError, match="bookcorpus/bookcorpus on the Hub"):
            require_fit_of_hub("bookcorpus", hub, data)


def test_cased_sentences_are_refused_where_books_are_needed(tmp_path: Path) -> None:
    _, sources = corpus_sources("bookcorpus", rows(tmp_path / "b.jsonl", [SENTENCE] * 400))
    require_fit(sources, recipe("roberta_base").data)  # full_sentences
    with pytest.raises(ConfigError, match="whole books"):
        require_fit(sources, recipe("spanbert_base").data)


@pytest.mark.parametrize(("corpus", "folder"), [("bookcorpus", "books"), ("wikipedia", "articles")])
def test_real_text_is_accepted(corpus: str, folder: str) -> None:
    _, sources = corpus_sources(corpus, [str(SAMPLE_FILES / folder)])
    for name in ("roberta_base", "bert_base", "spanbert_base"):
        require_fit(sources, recipe(name).data)


def test_the_users_own_text_is_not_checked(tmp_path: Path) -> None:
    _, sources = corpus_sources("mine", rows(tmp_path / "b.jsonl", [SENTENCE.lower()] * 400))
    require_fit(sources, recipe("roberta_base").data)


def test_too_little_text_to_decide() -> None:
    assert not is_lower_cased(iter(["自然语言处理。" * 5000]))  # a script without capitals
    assert not is_lower_cased(iter(["short"]))
    assert is_lower_cased(iter(["all of it is like this. " * 400]))
    assert not holds_sentences(iter(["Short."] * 10))
