"""Parts of documents between added tokens; their ids are tested in test_added_tokens."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pipeline.data.tokenizers.added_parts import AddedParts
from pipeline.data.tokenizers.reference_engine import Reference
from pipeline.data.tokenizers.vocabulary import Vocabulary, vocabulary


def parts_of(base: Vocabulary, content: str, text: str, sentences: list[int]) -> object:
    described = json.loads(base.tokenizer_json)
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "special"), False)
    described["added_tokens"].append(
        flags | {"id": base.size, "content": content, "normalized": True}
    )
    parts = AddedParts(Reference(vocabulary(json.dumps(described), "more")))
    return parts._parts(np.frombuffer(text.encode(), np.uint8), np.array(sentences))


def test_text_between_tokens_ends_where_sentences_start(
    word_vocabularies: dict[str, Vocabulary],
) -> None:
    base = word_vocabularies["wordpiece-uncased"]
    text = "One [gene]. Two [GENE]"
    added = base.size
    assert parts_of(base, "[Gene]", text, [0, 11]) == [
        (0, 4, -1), (4, 10, added), (10, 11, -1), (11, 16, -1), (16, 22, added)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "text", "sentences"),
    [
        ("inq", "a \ufb01nq", [0]),  # begins inside a ligature
        ("[gene]", "what?\u56e0 [gene]", [0, 5]),  # a sentence starts inside a run of letters
    ],
)
def test_documents_that_are_left_to_the_reference(
    content: str, text: str, sentences: list[int], word_vocabularies: dict[str, Vocabulary]
) -> None:
    assert parts_of(word_vocabularies["unigram-uncased"], content, text, sentences) is None
