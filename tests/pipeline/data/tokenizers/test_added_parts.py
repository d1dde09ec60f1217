"""Parts of documents between added tokens; their ids are tested in test_added_tokens."""

import json

import numpy as np

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
    assert parts_of(base, "[Gene]", "One [gene]. Two [GENE]", [0, 11]) == [
        (0, 4, -1), (4, 10, base.size), (10, 11, -1), (11, 16, -1), (16, 22, base.size)
    ]  # fmt: skip
    # left to the reference: a token inside a ligature, a sentence inside a run of letters
    base = word_vocabularies["unigram-uncased"]
    assert parts_of(base, "inq", "a \ufb01nq", [0]) is None
    assert parts_of(base, "[gene]", "what?\u56e0 [gene]", [0, 5]) is None
