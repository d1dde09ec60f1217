"""Sentence starts among the tokens, in every kind of vocabulary."""

from dataclasses import replace

import numpy as np
import pytest

from pipeline.data.tokenizers.reference_engine import Reference, id_type
from pipeline.data.tokenizers.vocabulary import Vocabulary
from tests.pipeline.data.tokenizers.conftest import WORD_KINDS, buffers

SENTENCES = [
    ["The house was old.", " It stood at 3.14 Ármin Street!\n", "Nobody came."],
    ["Naïve cafés “quoted” him.", " Élan was [MASK]ed.", " Is ‘this’ it?", " Yes."],
    ["한국어 문장이다.", " ÉTÉ.", " हिन्दी वाक्य।", " Ελληνικά Σας."],
]


@pytest.mark.parametrize("kind", ["byte-bpe", *WORD_KINDS])
def test_each_sentence_has_the_tokens_it_has_alone(
    kind: str, vocabularies: dict[str, Vocabulary]
) -> None:
    """In BERT every ideograph is a word; in unigram 他去。我来 is one unknown piece. A document
    whose text is all removed has no tokens."""
    reference = Reference(vocabularies[kind])
    sizes = {size: id_type(replace(reference.vocabulary, size=size)) for size in (65_536, 65_537)}
    assert sizes == {65_536: np.uint16, 65_537: np.uint32}
    tokens, *_ = reference.encode(*buffers(["".join(sentences) for sentences in SENTENCES]))
    found = [part.tolist() for part in np.split(tokens.ids, tokens.sentence_starts[1:])]
    parts = [part for sentences in SENTENCES for part in sentences]
    assert found == [reference.encode(*buffers([part]))[0].ids.tolist() for part in parts]
    assert set(tokens.document_offsets[:-1]) <= set(tokens.sentence_starts)
    if kind == "byte-bpe":
        return
    tokens, *_ = reference.encode(*buffers(["他去。我来！好"]))
    expected = [0, 3, 6] if kind.startswith("wordpiece") else [0, 2, 3]
    assert tokens.sentence_starts.tolist() == expected
    removed = "\ufffd" if kind.startswith("wordpiece") else "\n"
    tokens, *_ = reference.encode(*buffers(["one", removed, "two"]))
    assert np.diff(tokens.document_offsets).tolist()[1] == 0 and len(tokens.sentence_starts) == 2
