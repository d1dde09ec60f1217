"""Tokenizer folders: RoBERTa's and GPT-2's ids from any layout, and what training gives."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer

from pipeline.data.tokens import Encoder
from pipeline.data.vocabulary import (
    Vocabulary,
    read_vocabulary,
    save_vocabulary,
    train_byte_bpe,
)
from pipeline.errors import DataError

TEXTS = [
    "the cat sat on the mat. the cat ran.",
    "a <mask> is text, </s> too",
    "naïve café 日本",
] * 50


def folder(tmp_path: Path, files: dict[str, Path]) -> Path:
    for name, source in files.items():
        shutil.copy(source, tmp_path / name)
    return tmp_path


def encode(vocabulary: Vocabulary, texts: list[str]) -> list[list[int]]:
    """Ids of texts: by both engines, or by `tokenizers` where a NUL would part documents."""
    fast, slow = Encoder.create(vocabulary), Encoder.create(vocabulary, fast=False)
    out = []
    for text in texts:
        encoded = text.encode() + b"\0"
        engine = slow if "\0" in text else fast
        found, _ = engine.encode(
            np.frombuffer(encoded, np.uint8), np.array([0, len(encoded)]), np.ones(1, np.bool_)
        )
        out.append(found.tolist())
    return out


def ids(vocabulary: Vocabulary, text: str) -> list[int]:
    return encode(vocabulary, [text])[0]


@pytest.fixture(scope="module")
def golden(real_data: Path) -> list[dict[str, object]]:
    lines = (real_data / "golden" / "golden_tokenization.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert len(rows) == 394
    return rows


@pytest.mark.parametrize("layout", ["vocab.json", "encoder.json"])
def test_roberta_ids_equal_the_golden_rows(
    layout: str, tmp_path: Path, real_data: Path, golden: list[dict[str, object]]
) -> None:
    tokenizers = real_data / "tokenizers"
    merges = tokenizers / "gpt2" / "vocab.bpe"
    if layout == "vocab.json":
        files = {
            "vocab.json": tokenizers / "roberta" / "roberta-base-vocab.json",
            "merges.txt": merges,
        }
    else:
        files = {
            "encoder.json": tokenizers / "gpt2" / "encoder.json", "vocab.bpe": merges,
            "dict.txt": tokenizers / "roberta" / "dict.derived.txt",
        }  # fmt: skip
    vocabulary = read_vocabulary(folder(tmp_path, files))
    assert (vocabulary.bos, vocabulary.pad, vocabulary.eos, vocabulary.unk) == (0, 1, 2, 3)
    assert (vocabulary.mask, vocabulary.size) == (50264, 50265)
    rows = [row for row in golden if row["text"]]
    for row, found in zip(rows, encode(vocabulary, [str(row["text"]) for row in rows])):
        assert [0, *found, 2] == row["roberta_fairseq"], row["text"]
    assert all(row["roberta_fairseq"] == [0, 2] for row in golden if not row["text"])
    assert vocabulary.special[50261:].all() and not vocabulary.special[4:50260].all()


def test_gpt2_ids_stay_when_imported(
    tmp_path: Path, real_data: Path, golden: list[dict[str, object]]
) -> None:
    gpt2 = real_data / "tokenizers" / "gpt2"
    files = {"encoder.json": gpt2 / "encoder.json", "vocab.bpe": gpt2 / "vocab.bpe"}
    vocabulary = read_vocabulary(folder(tmp_path, files))
    assert (vocabulary.bos, vocabulary.mask, vocabulary.size) == (50257, 50261, 50262)
    rows = [row for row in golden if row["text"]]
    for row, found in zip(rows, encode(vocabulary, [str(row["text"]) for row in rows])):
        assert found == row["gpt2"], row["text"]


def test_a_trained_vocabulary_loads_in_transformers_with_the_same_ids(tmp_path: Path) -> None:
    vocabulary = train_byte_bpe(iter(TEXTS), 300)
    save_vocabulary(vocabulary, tmp_path, 128)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    text = "the naïve cat  sat\non 日本"
    inner = ids(vocabulary, text)
    assert tokenizer(text)["input_ids"] == [vocabulary.bos, *inner, vocabulary.eos]
    assert tokenizer.decode(inner) == text
    assert tokenizer.mask_token_id == vocabulary.mask and tokenizer.pad_token_id == vocabulary.pad
    assert tokenizer.model_max_length == 128
    assert read_vocabulary(tmp_path).sha256 == vocabulary.sha256


def test_literal_special_tokens_stay_text() -> None:
    vocabulary = train_byte_bpe(iter(TEXTS), 300)
    found = ids(vocabulary, "a <mask> is <s>text</s>")
    assert not vocabulary.special[found].any()
    assert vocabulary.byte_lengths[found].sum() == len("a <mask> is <s>text</s>")


def test_training_is_deterministic_and_smaller_when_the_text_is() -> None:
    first, second = train_byte_bpe(iter(TEXTS), 5000), train_byte_bpe(iter(TEXTS), 5000)
    assert first.sha256 == second.sha256
    assert 261 < first.size < 5000


def test_word_starts() -> None:
    vocabulary = train_byte_bpe(iter(TEXTS), 320)
    names = dict(json.loads(vocabulary.tokenizer_json)["model"]["vocab"].items())
    assert vocabulary.word_starts[names["Ġthe"]] and vocabulary.word_starts[names["Ċ"]]
    assert not vocabulary.word_starts[names["t"]] and not vocabulary.word_starts[names["."]]
    assert vocabulary.word_starts[[vocabulary.bos, vocabulary.mask]].all()


def test_word_starts_are_saved_one_byte_an_id(tmp_path: Path) -> None:
    vocabulary = train_byte_bpe(iter(TEXTS), 300)
    save_vocabulary(vocabulary, tmp_path, 128)
    saved = np.frombuffer((tmp_path / "word_starts.bin").read_bytes(), np.uint8)
    assert saved.tolist() == vocabulary.word_starts.astype(int).tolist()


BROKEN: dict[str, Callable[[dict[str, Any]], object]] = {
    "lacks 1 of the 256 byte symbols": lambda c: c["model"]["vocab"].pop("Ã"),
    "sets model.dropout": lambda c: c["model"].update(dropout=0.1),
    "two tokens one id": lambda c: c["model"]["vocab"].update({"!": 40}),
    "lacks <mask>": lambda c: c["added_tokens"].pop(),
    "changes the text": lambda c: c.update(normalizer={"type": "NFC"}),
    "out of vocabulary": lambda c: c["model"]["merges"].insert(0, ["zz", "qq"]),
    "byte-level BPE only": lambda c: c["model"].update(type="WordPiece"),
}


@pytest.mark.parametrize("message", BROKEN)
def test_a_vocabulary_that_would_lose_text_is_refused(message: str, tmp_path: Path) -> None:
    content = json.loads(train_byte_bpe(iter(TEXTS), 300).tokenizer_json)
    BROKEN[message](content)
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=message):
        read_vocabulary(tmp_path)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "no known layout"),
        ({"tokenizer.json": "{"}, "cannot be read"),
        ({"tokenizer.json": "{}"}, "cannot be read: no entry 'model'"),
        ({"tokenizer.json": "[]"}, "cannot be read"),
        ({"vocab.json": "{}"}, r"merges\.txt is missing"),
        ({"vocab.json": "{}", "merges.txt": "#version\na b c\n"}, "not a merge"),
    ],
)
def test_unfit_folders_are_named(files: dict[str, str], message: str, tmp_path: Path) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        read_vocabulary(tmp_path)
