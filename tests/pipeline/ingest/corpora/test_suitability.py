"""Texts that a recipe cannot use are refused; texts that only look similar are accepted."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.base.errors import ConfigError
from pipeline.ingest.corpora.sources import SAMPLE_FILES, corpus_sources
from pipeline.ingest.corpora.suitability import holds_sentences, is_lower_cased, require_fit
from pipeline.ingest.documents.records import Source
from pipeline.recipes import recipe
from tests.pipeline.preparing import write_jsonl

SENTENCE = "It was , he thought , the coldest morning that the harbour had seen . "
CASED, UNCASED = recipe("roberta_base").data, recipe("bert_base").data


def rows(folder: Path, text: str, corpus: str = "bookcorpus") -> list[Source]:
    """A corpus of 400 rows of a sentence."""
    return corpus_sources(corpus, [str(write_jsonl(folder / "b.jsonl", [text] * 400))])[1]


def test_sentences_are_refused_where_books_are_needed(tmp_path: Path) -> None:
    """Nothing is asked of the users' own text; the Hub's copies are refused in test_download."""
    sources = rows(tmp_path, SENTENCE.lower())
    with pytest.raises(ConfigError, match=r"lower-cased, .* byte-bpe"):
        require_fit(sources, CASED)
    with pytest.raises(ConfigError, match=r"data\.format=segment_pair needs whole books"):
        require_fit(sources, UNCASED)
    require_fit(sources, replace(UNCASED, format="full_sentences"))
    sources = rows(tmp_path, SENTENCE)
    require_fit(sources, CASED)  # full_sentences
    with pytest.raises(ConfigError, match="whole books"):
        require_fit(sources, recipe("spanbert_base").data)
    require_fit(rows(tmp_path, SENTENCE.lower(), "mine"), CASED)


def test_real_text_and_too_little_text_are_accepted() -> None:
    for corpus, folder in (("bookcorpus", "books"), ("wikipedia", "articles")):
        _, sources = corpus_sources(corpus, [str(SAMPLE_FILES / folder)])
        for name in ("roberta_base", "bert_base", "spanbert_base"):
            require_fit(sources, recipe(name).data)
    assert not is_lower_cased(iter(["自然语言处理。" * 5000]))  # a script without capitals
    assert not is_lower_cased(iter(["short"]))
    assert is_lower_cased(iter(["all of it is like this. " * 400]))
    assert not holds_sentences(iter(["Short."] * 10))
