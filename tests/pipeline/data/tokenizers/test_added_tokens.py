"""Ids of text with added tokens against those of `transformers.AutoTokenizer`, by both engines."""

import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import AddedToken
from transformers import AutoTokenizer

from pipeline.base.errors import DataError
from pipeline.data.text.cleaning import clean
from pipeline.data.tokenizers.document_encoder import TextEncoder
from pipeline.data.tokenizers.folders import read_vocabulary, save_vocabulary
from pipeline.data.tokenizers.vocabulary import Vocabulary, vocabulary
from tests.pipeline.data.tokenizers.conftest import WORD_KINDS, documents, encode

FLAGS = ("normalized", "lstrip", "rstrip", "single_word")
PLAIN = dict.fromkeys((*FLAGS, "special"), False)
CONTENTS = (
    "[GENE]", "methylation", "<url>", "Café", "İx", "new york", "日本", "é", "``q", "a.b", "[Drug]",
    "T-cell", "ß", "p53", "#tag", "Ωmega",
)  # fmt: skip
"""One for each combination of flags."""
VARIED = [*CONTENTS, *(each.upper() for each in CONTENTS), *(each.lower() for each in CONTENTS)]
AROUND = (
    *"aeqxyzAEQ.,[]<>#'`", " ", " ", " ", "\n", "é", "É", "e\u0301", "\u00ad", "\u200d", "ﬁ", "中",
    "本", "ｍ", "the ", "cell", "ss", "한", "हि", "\u00a0",
)  # fmt: skip
Extended = Callable[[str, list[AddedToken]], tuple[Any, Vocabulary]]


@pytest.fixture
def extended(vocabularies: dict[str, Vocabulary], tmp_path: Path) -> Extended:
    """A kind's tokenizer of transformers with more tokens, and our reading of what it saves."""

    def extend(kind: str, tokens: list[AddedToken]) -> tuple[Any, Vocabulary]:
        save_vocabulary(vocabularies[kind], tmp_path / "before", 128)
        tokenizer = AutoTokenizer.from_pretrained(tmp_path / "before")
        tokenizer.add_tokens(tokens)
        tokenizer.save_pretrained(tmp_path / "after")
        found = read_vocabulary(tmp_path / "after")
        return AutoTokenizer.from_pretrained(tmp_path / "after"), found

    return extend


def random_texts(count: int) -> list[str]:
    rng = random.Random(0)
    return [
        "".join(
            rng.choice(VARIED if rng.random() < 0.15 else AROUND) for _ in range(rng.randint(1, 40))
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("kind", ["byte-bpe", *WORD_KINDS])
def test_ids_are_those_of_transformers(kind: str, extended: Extended, tmp_path: Path) -> None:
    """By both engines, and in transformers by the folder that is saved with shards."""
    combinations = itertools.product((False, True), repeat=len(FLAGS))
    tokenizer, vocabulary = extended(kind, [
        AddedToken(content, special=False, **dict(zip(FLAGS, flags)))
        for content, flags in zip(CONTENTS, combinations, strict=True)
    ])  # fmt: skip
    texts = [text for text in clean(random_texts(1500)).texts() if text]
    expected = tokenizer(texts, add_special_tokens=False)["input_ids"]
    slow, fast = (
        encode(TextEncoder.create(vocabulary, fast=fast), texts) for fast in (False, True)
    )
    assert documents(slow) == expected
    assert documents(fast) == expected
    assert fast.sentence_starts.tolist() == slow.sentence_starts.tolist()
    added = {token["id"] for token in vocabulary.text_tokens}
    assert len(added) == len(CONTENTS) and added <= set(slow.ids.tolist())
    assert not vocabulary.special[[*added]].any() and vocabulary.word_starts[[*added]].all()
    save_vocabulary(vocabulary, tmp_path / "shards", 128)
    saved = AutoTokenizer.from_pretrained(tmp_path / "shards")
    texts = random_texts(100)
    assert saved(texts)["input_ids"] == tokenizer(texts)["input_ids"]


@pytest.mark.parametrize("kind", ["byte-bpe", "wordpiece", "wordpiece-uncased", "unigram"])
def test_documents_without_added_tokens_are_left_to_the_fast_engine(
    kind: str, extended: Extended, sample_text: list[str]
) -> None:
    contents = ("[GENE]", "<url>", "zyxw")
    _, vocabulary = extended(kind, [AddedToken(content) for content in contents])
    encoder = TextEncoder.create(vocabulary)
    assert encoder.fast is not None and encoder.fast.added is not None
    text = clean([*sample_text[:50], "The gene: zyxw"])
    has_added = encoder.fast.added(text.buffer, text.offsets)
    assert np.flatnonzero(has_added).tolist() == [50]


def test_tokens_of_the_vocabulary_that_are_listed_as_added(
    word_vocabularies: dict[str, Vocabulary],
) -> None:
    """They keep their ids, wherever these are; special ones stay text, whatever their id."""
    content = json.loads(word_vocabularies["wordpiece"].tokenizer_json)
    ids = content["model"]["vocab"]
    freed = [ids.pop(name) for name in [*ids][700:702]]
    ids |= dict(zip(("[unused7]", "[GENE]"), freed))
    content["added_tokens"] += [
        PLAIN | {"id": freed[0], "content": "[unused7]"},
        PLAIN | {"id": freed[1], "content": "[GENE]"},
        PLAIN | {"id": len(ids), "content": "<ent>", "special": True},
        PLAIN | {"id": len(ids) + 1, "content": "<url>"},
    ]
    found = vocabulary(json.dumps(content), "brothers")
    wanted = [*freed, len(ids) + 1]
    assert not found.special[wanted].any() and found.special[len(ids)]
    text = ["[unused7] [GENE] <url>", "<ent> [MASK] [CLS]"]
    for fast in (False, True):
        first, second = documents(encode(TextEncoder.create(found, fast=fast), text))
        assert first == wanted
        assert not {len(ids), found.mask, found.bos} & {*second}


def test_an_added_token_whose_id_tokenizers_changes_is_refused(
    word_vocabularies: dict[str, Vocabulary],
) -> None:
    plain = word_vocabularies["wordpiece"]
    content = json.loads(plain.tokenizer_json)
    content["added_tokens"].append(PLAIN | {"id": plain.size + 5, "content": "[GENE]"})
    with pytest.raises(DataError, match=r"id 2005 of its added token '\[GENE\]'"):
        vocabulary(json.dumps(content), "gaps")
