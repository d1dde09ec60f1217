"""Tokenizer folders: RoBERTa's and GPT-2's ids from any layout, and what training gives."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from tokenizers import Tokenizer
from transformers import AlbertTokenizerFast, AutoTokenizer, BertTokenizerFast

from pipeline.base.errors import DataError
from pipeline.data.tokenizers.definitions import SPECIALS, WORDPIECE
from pipeline.data.tokenizers.document_encoder import TextEncoder
from pipeline.data.tokenizers.folders import num_rows, read_vocabulary, save_vocabulary
from pipeline.data.tokenizers.trainers import train_byte_bpe
from pipeline.data.tokenizers.vocabulary import Vocabulary, vocabulary
from tests.pipeline.data.byte_bpe import SPLITS, byte_bpe
from tests.pipeline.data.tokenizers.conftest import WORD_KINDS, documents
from tests.pipeline.data.tokenizers.conftest import encode as encode_texts

TEXTS = ["the cat sat on the mat. the cat.", "a <mask> is text, </s> too", "naïve café 日本"] * 50


def encode(vocabulary: Vocabulary, texts: list[str]) -> list[list[int]]:
    """Ids of texts: by both engines, or by `tokenizers` where a NUL would separate documents."""
    fast = TextEncoder.create(vocabulary)
    slow = replace(fast, fast=None)
    found = iter(documents(encode_texts(fast, [text for text in texts if "\0" not in text])))
    return [
        encode_texts(slow, [text]).ids.tolist() if "\0" in text else next(found) for text in texts
    ]


@pytest.fixture(scope="module")
def golden(real_data: Path) -> list[dict[str, Any]]:
    lines = (real_data / "golden" / "golden_tokenization.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert len(rows) == 394
    return [row for row in rows if row["text"]]


MERGES = "gpt2/vocab.bpe"
GOLDEN = {
    "roberta": (
        [
            {"vocab.json": "roberta/roberta-base-vocab.json", "merges.txt": MERGES},
            {"encoder.json": "gpt2/encoder.json", "vocab.bpe": MERGES,
             "dict.txt": "roberta/dict.derived.txt"},
        ],
        "roberta_fairseq", [0, 1, 2, 3, 50264], 50265, slice(50261, None),
    ),
    "gpt2": (
        [{"encoder.json": "gpt2/encoder.json", "vocab.bpe": MERGES}],
        "gpt2", [50257, 50258, 50259, 50260, 50261], 50262, slice(50257, None),
    ),
    "bert_uncased": (
        [{"vocab.txt": "bert/bert-base-uncased-vocab.txt"}],
        "bert_uncased", [101, 0, 102, 100, 103], 30522, slice(100),
    ),
    "bert_cased": (
        [{"vocab.txt": "bert/bert-base-cased-vocab.txt"}],
        "bert_cased", [101, 0, 102, 100, 103], 28996, slice(100),
    ),
}  # fmt: skip
"""Layouts, column of the golden rows, bos, pad, eos, unk and mask, size, and ids not of text."""


@pytest.mark.parametrize("name", GOLDEN)
def test_traps_33_ids_equal_the_golden_rows(
    name: str, tmp_path: Path, real_data: Path, golden: list[dict[str, Any]]
) -> None:
    layouts, column, ids, size, unused = GOLDEN[name]
    read = []
    for number, files in enumerate(layouts):
        (tmp_path / str(number)).mkdir()
        for file, source in files.items():
            shutil.copy(real_data / "tokenizers" / source, tmp_path / str(number) / file)
        read.append(read_vocabulary(tmp_path / str(number)))
    found = read[0]
    assert {each.sha256 for each in read} == {found.sha256}
    assert [found.bos, found.pad, found.eos, found.unk, found.mask] == ids
    assert found.size == size and found.special[unused].all()
    assert not found.special[200:20_000].all()
    is_bert = column.startswith("bert")
    assert found.kind == ("wordpiece" if is_bert else "byte-bpe")
    assert found.lower_case == (column == "bert_uncased")
    whole = Tokenizer.from_str(found.tokenizer_json) if is_bert else None
    for row, inner in zip(golden, encode(found, [row["text"] for row in golden])):
        expected = row[column] if column == "gpt2" else row[column][1:-1]
        assert whole is None or whole.encode(row["text"]).ids == row[column]
        if is_bert and "[MASK]" in row["text"]:  # to us that is text
            assert not found.special[inner].any()
        else:
            assert inner == expected, row["text"]
            assert column == "gpt2" or row[column] == [found.bos, *expected, found.eos]


TEXT = "The naïve cat's Ármin sat “ENDED” at 3.14 — e.g. 日本 ½ ``so'' <mask>"


@pytest.mark.parametrize("kind", ["byte-bpe", *WORD_KINDS])
def test_a_folder_loads_in_transformers_with_the_same_ids(
    kind: str, tmp_path: Path, vocabularies: dict[str, Vocabulary]
) -> None:
    vocabulary = vocabularies[kind]
    save_vocabulary(vocabulary, tmp_path, 128)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    text = "the naïve cat  sat\non 日本" if kind == "byte-bpe" else TEXT
    (inner,) = encode(vocabulary, [text])
    assert tokenizer(text)["input_ids"] == [vocabulary.bos, *inner, vocabulary.eos]
    special = [tokenizer.mask_token_id, tokenizer.pad_token_id, tokenizer.unk_token_id]
    assert special == [vocabulary.mask, vocabulary.pad, vocabulary.unk]
    assert tokenizer.model_max_length == 128
    again = read_vocabulary(tmp_path)
    assert (again.sha256, again.kind) == (vocabulary.sha256, kind.removesuffix("-uncased"))
    if kind == "byte-bpe":
        assert tokenizer.decode(inner) == text
        return
    assert sorted(set(tokenizer("The cat", "a dog")["token_type_ids"])) == [0, 1]
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
        assert encode(imported, [text]) == [expected]
        assert encode(word_vocabularies[kind + suffix], [text]) == [expected]


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


def test_byte_bpe_is_deterministic_and_smaller_where_the_text_is(tmp_path: Path) -> None:
    """Its word starts are saved as one byte per id."""
    found = train_byte_bpe(iter(TEXTS), 5000)
    assert found.sha256 == train_byte_bpe(iter(TEXTS), 5000).sha256
    assert 261 < found.size < 5000
    names = json.loads(found.tokenizer_json)["model"]["vocab"]
    starts = [names["Ġthe"], names["Ċ"], found.bos, found.mask]
    assert found.word_starts[starts].all()
    assert not found.word_starts[[names["t"], names["."]]].any()
    save_vocabulary(found, tmp_path, 128)
    saved = np.frombuffer((tmp_path / "word_starts.bin").read_bytes(), np.uint8)
    assert saved.tolist() == found.word_starts.astype(int).tolist()


def test_unfit_folders_are_named(tmp_path: Path, tiny_vocabulary: Vocabulary) -> None:
    unknown = json.loads(tiny_vocabulary.tokenizer_json)
    unknown["model"]["merges"].insert(0, ["zz", "qq"])
    for number, (files, message) in enumerate([
        ({}, "no known layout"),
        ({"tokenizer.json": "{"}, "cannot be read"),
        ({"tokenizer.json": "{}"}, "cannot be read: no entry 'model'"),
        ({"tokenizer.json": "[]"}, "cannot be read"),
        ({"tokenizer.json": json.dumps(unknown)}, "cannot be read: Token `zz` out of vocabulary"),
        ({"vocab.txt": "the\ncat\n"}, r"lacks \[PAD\] \[UNK\]"),
        ({"vocab.txt": "the\ncat\nthe\n"}, "repeats a token"),
        ({"vocab.json": "{}"}, r"merges\.txt is missing"),
        ({"vocab.json": "{}", "merges.txt": "#version\na b c\n"}, "not a merge"),
    ]):  # fmt: skip
        folder = tmp_path / str(number)
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_text(content)
        with pytest.raises(DataError, match=message):
            read_vocabulary(folder)


@pytest.mark.parametrize(
    "name", ["tokenizer.json", "vocab.txt", "vocab.json", "encoder.json", "albert.model"]
)
def test_only_plain_files_are_read(name: str, tmp_path: Path) -> None:
    """A pipe would be waited for, and a device read for ever."""
    os.mkfifo(tmp_path / name)
    (tmp_path / "merges.txt").write_text("a b\n")
    (tmp_path / "vocab.bpe").write_text("a b\n")
    with pytest.raises(DataError, match=rf"{name} is not a plain file"):
        read_vocabulary(tmp_path)
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to("/dev/zero")
    with pytest.raises(DataError, match=rf"{name} is not a plain file"):
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
    # the ends of lines that an editor on Windows writes
    merges = "".join(" ".join(merge) + "\r\n" for merge in model["merges"])
    (tmp_path / "roberta-base-merges.txt").write_bytes(f"#version: 0.2\r\n{merges}".encode())
    found, trained = read_vocabulary(path), read_vocabulary(tiny_tokenizer)
    assert encode(found, TEXTS[:3]) == encode(trained, TEXTS[:3])
    (tmp_path / "notes.md").write_text("text")
    with pytest.raises(DataError, match=r"notes.md is not a vocabulary"):
        read_vocabulary(tmp_path / "notes.md")


def test_special_tokens_of_another_name_are_saved(tmp_path: Path) -> None:
    """Byte-level BPE with BERT's special tokens and words of its own, as ModernBERT's."""
    found = vocabulary(byte_bpe(SPLITS["digits"]), "x")
    assert [found.pad, found.unk, found.bos, found.eos, found.mask] == [0, 1, 2, 3, 4]
    assert found.special[:5].all() and not found.special[5:].any()
    save_vocabulary(found, tmp_path, 32)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    names = [config[f"{role}_token"] for role in ("pad", "unk", "cls", "sep", "mask")]
    assert names == [*SPECIALS[WORDPIECE].values()] and found.names == SPECIALS[WORDPIECE]
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"  # RoBERTa's splits otherwise
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    expected = [loaded.encode(text, add_special_tokens=False) for text in TEXTS[:3]]
    assert encode(read_vocabulary(tmp_path), TEXTS[:3]) == expected


def test_a_normalizer_that_does_not_mention_accents(
    word_vocabularies: dict[str, Vocabulary], tmp_path: Path
) -> None:
    content = json.loads(word_vocabularies["wordpiece"].tokenizer_json)
    del content["normalizer"]["strip_accents"]
    found = vocabulary(json.dumps(content), "x")
    save_vocabulary(found, tmp_path, 128)
    assert read_vocabulary(tmp_path).tokenizer_json == found.tokenizer_json


def test_a_panic_of_the_library_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rust code that panics raises a class that is no Exception."""
    (tmp_path / "tokenizer.json").write_text("{}")
    panic = type("PanicException", (BaseException,), {})("index out of bounds")
    read = Mock(side_effect=[panic, KeyboardInterrupt])
    monkeypatch.setattr("pipeline.data.tokenizers.folders.vocabulary", read)
    with pytest.raises(DataError, match="cannot be read: index out of bounds"):
        read_vocabulary(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        read_vocabulary(tmp_path)


def test_rows_of_a_model_beside_a_tokenizer(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    assert num_rows(tmp_path) is None and num_rows(config) is None
    for text, rows in (('{"vocab_size": 7}', 7), ("{}", None), ("[", None)):
        config.write_text(text)
        assert num_rows(tmp_path) == rows
    assert num_rows(config) is None
