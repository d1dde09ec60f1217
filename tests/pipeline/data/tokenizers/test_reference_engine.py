"""Sentence starts among the tokens, in every kind of vocabulary."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.data.text.sentences import sentence_starts
from pipeline.data.tokenizers.reference_engine import Reference
from pipeline.data.tokenizers.token_ids import Tokens
from pipeline.data.tokenizers.vocabulary import Vocabulary

KINDS = ["byte-bpe", "wordpiece", "wordpiece-uncased", "unigram", "unigram-uncased"]
SENTENCES = [
    ["The house was old.", " It stood at 3.14 Ármin Street!\n", "Nobody came."],
    ["Naïve cafés “quoted” him.", " Élan was [MASK]ed.", " Is ‘this’ it?", " Yes."],
    ["한국어 문장이다.", " ÉTÉ.", " हिन्दी वाक्य।", " Ελληνικά Σας."],
]


@pytest.fixture
def reference(
    kind: str, tiny_vocabulary: Vocabulary, word_vocabularies: dict[str, Vocabulary]
) -> Reference:
    return Reference(tiny_vocabulary if kind == "byte-bpe" else word_vocabularies[kind])


def encode(reference: Reference, texts: list[str]) -> Tokens:
    encoded = [text.encode() + b"\0" for text in texts]
    buffer = np.frombuffer(b"".join(encoded), np.uint8)
    offsets = np.cumsum([0] + [len(text) for text in encoded])
    return reference.encode(buffer, offsets, sentence_starts(buffer, offsets))[0]


@pytest.mark.parametrize("kind", KINDS)
def test_each_sentence_has_the_tokens_it_has_alone(kind: str, reference: Reference) -> None:
    documents = ["".join(sentences) for sentences in SENTENCES]
    tokens = encode(reference, documents)
    found = [part.tolist() for part in np.split(tokens.ids, tokens.sentence_starts[1:])]
    alone = [encode(reference, [part]).ids.tolist() for parts in SENTENCES for part in parts]
    assert found == alone
    assert set(tokens.document_offsets[:-1]) <= set(tokens.sentence_starts)


@pytest.mark.parametrize("kind", ["wordpiece-uncased", "unigram"])
def test_sentences_without_spaces_between(kind: str, reference: Reference) -> None:
    """In BERT every ideograph is a word; in unigram 他去。我来 is one unknown piece."""
    tokens = encode(reference, ["他去。我来！好"])
    expected = [0, 3, 6] if kind == "wordpiece-uncased" else [0, 2, 3]
    assert tokens.sentence_starts.tolist() == expected


@pytest.mark.parametrize("kind", ["wordpiece", "unigram"])
def test_a_document_whose_text_is_all_removed_has_no_tokens(
    kind: str, reference: Reference
) -> None:
    removed = "\ufffd" if kind == "wordpiece" else "\n"
    tokens = encode(reference, ["one", removed, "two"])
    assert np.diff(tokens.document_offsets).tolist()[1] == 0
    assert len(tokens.sentence_starts) == 2
