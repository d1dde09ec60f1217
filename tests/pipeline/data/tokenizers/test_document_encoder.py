"""The encoder: the fast engine, `tokenizers` for unsure documents, and the checks."""

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest
from tokenizers import Tokenizer

from pipeline.base.errors import DataError
from pipeline.data.text.cleaning import clean
from pipeline.data.tokenizers.document_encoder import (
    TOKENIZERS,
    Engine,
    TextEncoder,
    choose_engine,
)
from pipeline.data.tokenizers.reference_engine import EngineMismatch
from pipeline.data.tokenizers.token_ids import Tokens, Unknown
from pipeline.data.tokenizers.vocabulary import Vocabulary, vocabulary
from tests.pipeline.data.byte_bpe import SPLITS, byte_bpe
from tests.pipeline.data.tokenizers.conftest import AWKWARD, buffers, columns, documents
from tests.pipeline.data.tokenizers.conftest import encode as encode_texts

TEXTS = ["One text. Two sentences.", "a", "Naïve 日本。 More of it! And more.", "The end. Over."]


def encode(encoder: TextEncoder, checked: list[int]) -> list[list[int]]:
    flags = np.isin(np.arange(len(TEXTS)), checked)
    return columns(encoder.encode(*buffers(TEXTS), flags)[0])


@dataclass
class Spoilt:
    """An engine that encodes document 2 wrongly and may be unsure of it; `place`: what is wrong."""

    engine: Engine
    place: str
    unsure: list[int]
    added: None = None

    def encode(self, *given: np.ndarray) -> tuple[Tokens, Unknown, np.ndarray]:
        tokens, unknown, unsure = self.engine.encode(*given)
        unsure[self.unsure] = True
        if self.place == "ids":
            tokens.ids[tokens.document_offsets[2]] += 1
        elif self.place == "sentences":
            tokens.sentence_starts[4] += 1
        return tokens, unknown, unsure


def test_documents_are_spliced(tiny_vocabulary: Vocabulary) -> None:
    """Those of which the fast engine is unsure among its own."""
    encoder = TextEncoder.create(tiny_vocabulary)
    expected = encode(replace(encoder, fast=None), [])
    for unsure in ([], [0], [2], [0, 1, 2, 3], [1, 3]):
        spoilt = Spoilt(encoder.fast, "ids" if 2 in unsure else "", unsure)
        assert encode(replace(encoder, fast=spoilt), [0, 1, 2, 3]) == expected, unsure


@pytest.mark.parametrize("place", ["ids", "sentences"])
def test_a_difference_in_a_checked_document_is_an_error(
    place: str, tiny_vocabulary: Vocabulary
) -> None:
    encoder = TextEncoder.create(tiny_vocabulary)
    spoilt = replace(encoder, fast=Spoilt(encoder.fast, place, []))
    assert encode(spoilt, [0, 1, 3]) != encode(encoder, [])
    with pytest.raises(EngineMismatch, match=r"document 2 .*Naïve"):
        encode(spoilt, [2])


@pytest.mark.parametrize("kind", ["byte-bpe", "wordpiece", "unigram"])
@pytest.mark.parametrize("fast", [True, False])
def test_ids_cover_the_text_of_checked_documents(
    kind: str, fast: bool, vocabularies: dict[str, Vocabulary]
) -> None:
    """With either engine; a truncation at either end is an error."""
    encoder = TextEncoder.create(vocabularies[kind], fast=fast)
    encode(encoder, [0, 1, 2, 3])
    if fast:  # documents that `tokenizers` encodes for the fast engine are checked as well
        encoder.fast = Spoilt(encoder.fast, "", [0, 1, 2, 3])
    whole, normalized = encoder.reference.tokenizer, encoder.reference.normalized
    for direction in ("left", "right"):
        for tokenizer in (whole, normalized):
            tokenizer.enable_truncation(3, direction=direction)
        encode(encoder, [1])
        with pytest.raises(DataError, match=r"loses text: .* starts with 'Naïve"):
            encode(encoder, [2])
        normalized.no_truncation()
        with pytest.raises(DataError, match=r"loses text: .* starts with 'Naïve"):
            encode(encoder, [2])


def test_an_engine_that_fails_the_probe_or_refuses_the_vocabulary(
    tiny_vocabulary: Vocabulary,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def differs(*given: object) -> Tokens:
        raise EngineMismatch("made up")

    def refuses(*given: object) -> None:
        raise RuntimeError("no entry\nLocation:\n    src/mod.rs:88:24")

    with monkeypatch.context() as patched:
        patched.setattr(TextEncoder, "encode", differs)
        assert choose_engine(tiny_vocabulary) == TOKENIZERS
        assert "(made up), so `tokenizers` makes the ids" in capsys.readouterr().out
    monkeypatch.setattr("pipeline.data.tokenizers.document_encoder.GigatokenEngine", refuses)
    assert choose_engine(tiny_vocabulary) == TOKENIZERS
    assert "(no entry), so `tokenizers` makes the ids" in capsys.readouterr().out


@pytest.mark.parametrize("split", SPLITS)
def test_byte_bpe_with_words_of_its_own_has_the_ids_of_tokenizers(split: str) -> None:
    """GPT-2's expression by the fast engine, others by `tokenizers` alone."""
    content = byte_bpe(SPLITS[split], nfc=split == "gpt-2")
    reference = Tokenizer.from_str(json.dumps(json.loads(content) | {"added_tokens": []}))
    encoder = TextEncoder.create(vocabulary(content, "x"))
    assert (encoder.fast is not None) == (split == "gpt-2") == encoder.vocabulary.has_fast_engine
    texts = clean(AWKWARD).texts()
    tokens = encode_texts(encoder, texts)
    assert documents(tokens) == [reference.encode(text).ids for text in texts]
    assert not encoder.vocabulary.special[tokens.ids].any()
