"""Ids of text with added tokens against those of `transformers.AutoTokenizer`, by both engines."""

from __future__ import annotations

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
from pipeline.data.text.sentences import sentence_starts
from pipeline.data.tokenizers.document_encoder import TextEncoder
from pipeline.data.tokenizers.folders import read_vocabulary, save_vocabulary
from pipeline.data.tokenizers.token_ids import Tokens
from pipeline.data.tokenizers.vocabulary import Vocabulary, vocabulary

KINDS = ["byte-bpe", "wordpiece", "wordpiece-uncased", "unigram", "unigram-uncased"]
FLAGS = ("normalized", "lstrip", "rstrip", "single_word")
CONTENTS = (
    "[GENE]", "methylation", "<url>", "Café", "İx", "new york", "日本", "é", "``q", "a.b", "[Drug]",
    "T-cell", "ß", "p53", "#tag", "Ωmega",
)  # fmt: skip
"""One for each combination of flags."""
AROUND = (
    *"aeqxyzAEQ.,[]<>#'`", " ", " ", " ", "\n", "é", "É", "e\u0301", "\u00ad", "\u200d", "ﬁ", "中",
    "本", "ｍ", "the ", "cell", "ss", "한", "हि", "\u00a0",
)  # fmt: skip


@pytest.fixture(scope="module")
def vocabularies(
    tiny_vocabulary: Vocabulary, word_vocabularies: dict[str, Vocabulary]
) -> dict[str, Vocabulary]:
    return {"byte-bpe": tiny_vocabulary} | word_vocabularies


Extended = Callable[[str, list[AddedToken]], tuple[Any, Vocabulary]]


@pytest.fixture
def extended(vocabularies: dict[str, Vocabulary], tmp_path: Path) -> Extended:
    """A kind's tokenizer of transformers with more tokens, and our reading of what it saves."""

    def extend(kind: str, tokens: list[AddedToken]) -> tuple[Any, Vocabulary]:
        save_vocabulary(vocabularies[kind], tmp_path / "before", 128)
        tokenizer = AutoTokenizer.from_pretrained(tmp_path / "before")
        tokenizer.add_tokens(tokens)
        tokenizer.save_pretrained(tmp_path / "after")
        return AutoTokenizer.from_pretrained(tmp_path / "after"), read_vocabulary(
            tmp_path / "after"
        )

    return extend


def all_flags() -> list[AddedToken]:
    combinations = itertools.product((False, True), repeat=len(FLAGS))
    return [
        AddedToken(content, special=False, **dict(zip(FLAGS, flags)))
        for content, flags in zip(CONTENTS, combinations, strict=True)
    ]


def random_texts(count: int) -> list[str]:
    rng = random.Random(0)
    varied = [
        *CONTENTS, *(content.upper() for content in CONTENTS), *(c.lower() for c in CONTENTS)
    ]  # fmt: skip
    return [
        "".join(
            rng.choice(varied if rng.random() < 0.15 else AROUND) for _ in range(rng.randint(1, 40))
        )
        for _ in range(count)
    ]


def encode(vocabulary: Vocabulary, texts: list[str], *, fast: bool) -> Tokens:
    text = clean(texts)
    encoder = TextEncoder.create(vocabulary, fast=fast)
    assert (encoder.fast is not None) == fast
    checked = np.ones(len(texts), np.bool_)
    return encoder.encode(
        text.buffer, text.offsets, sentence_starts(text.buffer, text.offsets), checked
    )[0]


def documents(tokens: Tokens) -> list[list[int]]:
    bounds = itertools.pairwise(tokens.document_offsets.tolist())
    return [tokens.ids[start:stop].tolist() for start, stop in bounds]


@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_those_of_transformers(kind: str, extended: Extended) -> None:
    tokenizer, vocabulary = extended(kind, all_flags())
    texts = [text for text in clean(random_texts(1500)).texts() if text]
    expected = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    slow, fast = (encode(vocabulary, texts, fast=fast) for fast in (False, True))
    assert documents(slow) == expected
    assert documents(fast) == expected
    assert fast.sentence_starts.tolist() == slow.sentence_starts.tolist()
    added = {token["id"] for token in vocabulary.text_tokens}
    assert len(added) == len(CONTENTS) and added <= set(slow.ids.tolist())
    assert not vocabulary.special[[*added]].any() and vocabulary.word_starts[[*added]].all()


def test_documents_without_added_tokens_are_left_to_the_fast_engine(
    extended: Extended, sample_text: list[str]
) -> None:
    tokens = [AddedToken(content) for content in ("[GENE]", "<url>", "zyxw")]
    text = clean(sample_text[:50])
    for kind in ("byte-bpe", "wordpiece-uncased", "unigram"):
        _, vocabulary = extended(kind, tokens)
        fast = TextEncoder.create(vocabulary).fast
        assert fast is not None and fast.added is not None
        assert not fast.added(text.buffer, text.offsets).any()


@pytest.mark.parametrize("kind", ["byte-bpe", "wordpiece", "unigram"])
def test_ids_of_a_document_are_its_text(kind: str, extended: Extended) -> None:
    tokenizer, vocabulary = extended(kind, [AddedToken("[GENE]"), AddedToken("methylation")])
    texts = ["The [GENE] gene: methylation of [GENE]s.", "No methylations here"]
    for found, text in zip(documents(encode(vocabulary, texts, fast=True)), texts):
        back = tokenizer.decode(found, clean_up_tokenization_spaces=False)
        assert back.replace(" ", "") == text.replace(" ", "")
        assert vocabulary.size - 1 in found  # methylation


def test_tokens_of_the_vocabulary_that_are_listed_as_added(extended: Extended) -> None:
    """They keep their ids, wherever these are; special ones stay text, whatever their id."""
    _, plain = extended("wordpiece", [])
    content = json.loads(plain.tokenizer_json)
    ids = content["model"]["vocab"]
    flags = dict.fromkeys((*FLAGS, "special"), False)
    freed = [ids.pop(name) for name in [*ids][700:702]]
    ids |= dict(zip(("[unused7]", "[GENE]"), freed))
    content["model"]["vocab"] = ids
    content["added_tokens"] += [
        flags | {"id": ids["[unused7]"], "content": "[unused7]"},
        flags | {"id": ids["[GENE]"], "content": "[GENE]"},
        flags | {"id": len(ids), "content": "<ent>", "special": True},
        flags | {"id": len(ids) + 1, "content": "<url>"},
    ]
    found = vocabulary(json.dumps(content), "brothers")
    wanted = [ids["[unused7]"], ids["[GENE]"], len(ids) + 1]
    assert not found.special[wanted].any() and found.special[len(ids)]
    text = ["[unused7] [GENE] <url>", "<ent> [MASK] [CLS]"]
    for fast in (False, True):
        first, second = documents(encode(found, text, fast=fast))
        assert first == wanted
        assert not {len(ids), found.mask, found.bos} & {*second}


def test_an_added_token_whose_id_tokenizers_changes_is_refused(extended: Extended) -> None:
    _, plain = extended("wordpiece", [])
    content = json.loads(plain.tokenizer_json)
    flags = dict.fromkeys((*FLAGS, "special"), False)
    content["added_tokens"].append(flags | {"id": plain.size + 5, "content": "[GENE]"})
    with pytest.raises(DataError, match=r"says id 2\d+ of its added token '\[GENE\]', but"):
        vocabulary(json.dumps(content), "gaps")


@pytest.mark.parametrize("kind", ["byte-bpe", "wordpiece-uncased"])
def test_the_folder_of_shards_gives_the_same_ids(
    kind: str, extended: Extended, tmp_path: Path
) -> None:
    tokenizer, vocabulary = extended(kind, all_flags())
    save_vocabulary(vocabulary, tmp_path / "shards", 128)
    saved = AutoTokenizer.from_pretrained(tmp_path / "shards")
    for text in random_texts(100):
        assert saved(text)["input_ids"] == tokenizer(text)["input_ids"]
