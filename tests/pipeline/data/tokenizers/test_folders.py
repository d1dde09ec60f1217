"""Tokenizer folders: RoBERTa's and GPT-2's ids from any layout, and what training gives."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer
from transformers import AlbertTokenizerFast, AutoTokenizer, BertTokenizerFast

from pipeline.base.errors import DataError
from pipeline.data.tokenizers.document_encoder import TextEncoder
from pipeline.data.tokenizers.folders import num_rows, read_vocabulary, save_vocabulary
from pipeline.data.tokenizers.trainers import train_byte_bpe
from pipeline.data.tokenizers.vocabulary import Vocabulary, vocabulary
from tests.pipeline.data.byte_bpe import SPLITS, byte_bpe

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
    """Ids of texts: by both engines, or by `tokenizers` where a NUL would separate documents."""
    fast, slow = TextEncoder.create(vocabulary), TextEncoder.create(vocabulary, fast=False)
    out = []
    for text in texts:
        encoded = text.encode() + b"\0"
        engine = slow if "\0" in text else fast
        document = (np.frombuffer(encoded, np.uint8), np.array([0, len(encoded)]))
        tokens, _ = engine.encode(*document, np.zeros(1, np.int64), np.ones(1, np.bool_))
        out.append(tokens.ids.tolist())
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
def test_traps_33_roberta_ids_equal_the_golden_rows(
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


@pytest.mark.parametrize("case", ["uncased", "cased"])
def test_bert_ids_equal_the_golden_rows(
    case: str, tmp_path: Path, real_data: Path, golden: list[dict[str, object]]
) -> None:
    source = real_data / "tokenizers" / "bert" / f"bert-base-{case}-vocab.txt"
    vocabulary = read_vocabulary(folder(tmp_path, {"vocab.txt": source}))
    assert (vocabulary.kind, vocabulary.lower_case) == ("wordpiece", case == "uncased")
    assert (vocabulary.pad, vocabulary.unk, vocabulary.bos, vocabulary.eos) == (0, 100, 101, 102)
    assert (vocabulary.mask, vocabulary.size) == (103, 30522 if case == "uncased" else 28996)
    assert vocabulary.special[:106].all() or vocabulary.special[:100].all()
    rows = [row for row in golden if row["text"]]
    whole = Tokenizer.from_str(vocabulary.tokenizer_json)
    for row, found in zip(rows, encode(vocabulary, [str(row["text"]) for row in rows])):
        assert whole.encode(str(row["text"])).ids == row[f"bert_{case}"]
        if "[MASK]" in str(row["text"]):  # to us that is text
            assert not vocabulary.special[found].any()
        else:
            assert [101, *found, 102] == row[f"bert_{case}"], row["text"]


TEXT = "The naïve cat's Ármin sat “ENDED” at 3.14 — e.g. 日本 ½ ``so'' <mask>"


@pytest.mark.parametrize("kind", ["wordpiece", "wordpiece-uncased", "unigram", "unigram-uncased"])
def test_a_folder_loads_in_transformers_with_the_same_ids(
    kind: str, tmp_path: Path, word_vocabularies: dict[str, Vocabulary]
) -> None:
    vocabulary = word_vocabularies[kind]
    save_vocabulary(vocabulary, tmp_path, 128)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    inner = ids(vocabulary, TEXT)
    assert tokenizer(TEXT)["input_ids"] == [vocabulary.bos, *inner, vocabulary.eos]
    pair = tokenizer("The cat", "a dog")
    assert sorted(set(pair["token_type_ids"])) == [0, 1]
    special = [tokenizer.mask_token_id, tokenizer.pad_token_id, tokenizer.unk_token_id]
    assert special == [vocabulary.mask, vocabulary.pad, vocabulary.unk]
    again = read_vocabulary(tmp_path)
    assert (again.sha256, again.kind) == (vocabulary.sha256, vocabulary.kind)
    family = BertTokenizerFast if kind.startswith("wordpiece") else AlbertTokenizerFast
    text = TEXT.replace("½", "")  # AlbertTokenizer leaves NFKC to the table in ALBERT's own model
    assert family.from_pretrained(tmp_path)(text)["input_ids"] == tokenizer(text)["input_ids"]


@pytest.mark.parametrize("lower_case", [True, False])
def test_ids_equal_those_of_the_classes_of_transformers(
    lower_case: bool, tmp_path: Path, word_vocabularies: dict[str, Vocabulary]
) -> None:
    """Built by transformers from the bare words, and imported by us from what it saves."""
    suffix = "-uncased" * lower_case
    words = json.loads(word_vocabularies[f"wordpiece{suffix}"].tokenizer_json)["model"]["vocab"]
    pieces = json.loads(word_vocabularies[f"unigram{suffix}"].tokenizer_json)["model"]["vocab"]
    theirs = [
        BertTokenizerFast(vocab=words, do_lower_case=lower_case),
        AlbertTokenizerFast(
            vocab=[(piece, score) for piece, score in pieces],
            do_lower_case=lower_case, keep_accents=not lower_case,
        ),
    ]  # fmt: skip
    for kind, tokenizer in zip(("wordpiece", "unigram"), theirs):
        tokenizer.save_pretrained(tmp_path / kind)
        imported = read_vocabulary(tmp_path / kind)
        assert (imported.kind, imported.lower_case) == (kind, lower_case)
        text = "The naïve cat's Ármin sat “ENDED” at 3.14 — e.g. 日本 ``so''"
        expected = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert ids(imported, text) == expected
        assert ids(word_vocabularies[kind + suffix], text) == expected


def test_whether_a_vocab_txt_is_cased(tmp_path: Path) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "##s"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    assert read_vocabulary(tmp_path).lower_case
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert not read_vocabulary(tmp_path).lower_case
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    (tmp_path / "vocab.txt").write_text("\n".join([*words, "##Cat"]) + "\n")
    with pytest.raises(DataError, match="tokens with capitals"):
        read_vocabulary(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    assert not read_vocabulary(tmp_path).lower_case


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
    "changes the text": lambda c: c.update(normalizer={"type": "NFKC"}),
    "out of vocabulary": lambda c: c["model"]["merges"].insert(0, ["zz", "qq"]),
    "byte-level kind": lambda c: c["pre_tokenizer"].update(type="Whitespace"),
    "can be prepared": lambda c: c["model"].update(type="WordLevel"),
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
        ({"vocab.txt": "the\ncat\n"}, r"lacks \[PAD\] \[UNK\]"),
        ({"vocab.txt": "the\ncat\nthe\n"}, "repeats a token"),
        ({"vocab.json": "{}"}, r"merges\.txt is missing"),
        ({"vocab.json": "{}", "merges.txt": "#version\na b c\n"}, "not a merge"),
    ],
)
def test_unfit_folders_are_named(files: dict[str, str], message: str, tmp_path: Path) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        read_vocabulary(tmp_path)


def test_files_by_their_published_names(
    word_vocabularies: dict[str, Vocabulary], tmp_path: Path
) -> None:
    """The folder if it is alone there, or the file itself."""
    found = {}
    for name in ("wordpiece", "wordpiece-uncased"):
        ids = json.loads(word_vocabularies[name].tokenizer_json)["model"]["vocab"]
        kind = "uncased" if "uncased" in name else "cased"
        path = tmp_path / f"bert-base-{kind}-vocab.txt"
        path.write_text("\n".join(sorted(ids, key=ids.__getitem__)) + "\n")
        found[path] = word_vocabularies[name]
        if len(found) == 1:
            assert read_vocabulary(tmp_path).sha256 == read_vocabulary(path).sha256
    for path, trained in found.items():
        vocabulary = read_vocabulary(path)
        assert vocabulary.lower_case == trained.lower_case
        texts = ["The Rivers are long, isn't it? 12 naïve cafés 日本", *TEXTS[:3]]
        assert encode(vocabulary, texts) == encode(trained, texts)
    with pytest.raises(DataError, match=r"holds bert-base-cased-vocab.txt, bert-base-unc.*; name"):
        read_vocabulary(tmp_path)


def test_merges_beside_a_published_name(tiny_tokenizer: Path, tmp_path: Path) -> None:
    model = json.loads((tiny_tokenizer / "tokenizer.json").read_text())["model"]
    path = tmp_path / "roberta-base-vocab.json"
    path.write_text(json.dumps(model["vocab"]))
    with pytest.raises(DataError, match=r"roberta-base-merges.txt is missing"):
        read_vocabulary(path)
    merges = "\n".join(" ".join(merge) for merge in model["merges"])
    (tmp_path / "roberta-base-merges.txt").write_text(f"#version: 0.2\n{merges}\n")
    found, trained = read_vocabulary(path), read_vocabulary(tiny_tokenizer)
    assert encode(found, TEXTS[:3]) == encode(trained, TEXTS[:3])
    (tmp_path / "notes.md").write_text("text")
    with pytest.raises(DataError, match=r"notes.md is not a vocabulary"):
        read_vocabulary(tmp_path / "notes.md")


def test_special_tokens_of_another_name_are_saved(tmp_path: Path) -> None:
    """Byte-level BPE with BERT's special tokens and words of its own, as ModernBERT's."""
    save_vocabulary(vocabulary(byte_bpe(SPLITS["digits"]), "x"), tmp_path, 32)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert (config["cls_token"], config["pad_token"], config["mask_token"]) == (
        "[CLS]", "[PAD]", "[MASK]",
    )  # fmt: skip
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"  # RoBERTa's splits otherwise
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    again = read_vocabulary(tmp_path)
    for text in TEXTS[:3]:
        assert loaded.encode(text, add_special_tokens=False) == ids(again, text)


def test_a_panic_of_the_library_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rust code that panics raises a class that is no Exception."""

    def panics(text: str, name: str) -> None:
        raise type("PanicException", (BaseException,), {})("index out of bounds")

    (tmp_path / "tokenizer.json").write_text("{}")
    monkeypatch.setattr("pipeline.data.tokenizers.folders.vocabulary", panics)
    with pytest.raises(DataError, match="cannot be read: index out of bounds"):
        read_vocabulary(tmp_path)
    monkeypatch.setattr("pipeline.data.tokenizers.folders.vocabulary", interrupted)
    with pytest.raises(KeyboardInterrupt):
        read_vocabulary(tmp_path)


def interrupted(text: str, name: str) -> None:
    raise KeyboardInterrupt


def test_a_normalizer_that_does_not_mention_accents(
    word_vocabularies: dict[str, Vocabulary], tmp_path: Path
) -> None:
    content = json.loads(word_vocabularies["wordpiece"].tokenizer_json)
    del content["normalizer"]["strip_accents"]
    found = vocabulary(json.dumps(content), "x")
    save_vocabulary(found, tmp_path, 128)
    assert read_vocabulary(tmp_path).tokenizer_json == found.tokenizer_json


def test_rows_of_a_model_beside_a_tokenizer(tmp_path: Path) -> None:
    assert num_rows(tmp_path) is None
    config = tmp_path / "config.json"
    assert num_rows(config) is None
    for text, rows in (('{"vocab_size": 7}', 7), ("{}", None), ("[", None)):
        config.write_text(text)
        assert num_rows(tmp_path) == rows
    assert num_rows(config) is None
