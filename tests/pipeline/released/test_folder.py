"""What a folder of transformers says about itself, and what is refused in words."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from pipeline.data.tokenizers.folders import read_vocabulary
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.errors import ConfigError
from pipeline.released.folder import BOUNDARIES, MASKED, PAIRS, REPLACED, read_released
from tests.pipeline.released.models import save_electra, save_model


@pytest.fixture(scope="module")
def bert(
    word_vocabularies: dict[str, Vocabulary], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("released") / "bert"
    return save_model("BertForPreTraining", folder, word_vocabularies["wordpiece-uncased"])


@pytest.mark.parametrize(
    ("kind", "vocabulary", "heads"),
    [
        ("BertForMaskedLM", "wordpiece", {MASKED}),
        ("BertModel", "wordpiece", set()),
        ("AlbertForPreTraining", "unigram-uncased", {MASKED, PAIRS}),
        ("AlbertForMaskedLM", "unigram-uncased", {MASKED}),
        ("ElectraForPreTraining", "wordpiece-uncased", {REPLACED}),
        ("RobertaForMaskedLM", "", {MASKED}),
        ("RobertaModel", "", set()),
    ],
)
def test_heads_that_have_weights(
    kind: str,
    vocabulary: str,
    heads: set[str],
    word_vocabularies: dict[str, Vocabulary],
    tiny_tokenizer: Path,
    tmp_path: Path,
) -> None:
    own = word_vocabularies[vocabulary] if vocabulary else read_vocabulary(tiny_tokenizer)
    model = read_released(save_model(kind, tmp_path / "model", own))
    assert model.heads == heads
    assert (model.encoder.layers, model.encoder.width, model.encoder.positions) == (2, 32, 32)
    assert (model.vocabulary.kind, model.vocabulary.lower_case) == (own.kind, own.lower_case)
    assert model.generator is None


def test_a_pair_head_and_one_of_boundaries(bert: Path, tmp_path: Path) -> None:
    assert read_released(bert).heads == {MASKED, PAIRS}
    assert read_released(bert).lacking("mlm_sbo") == [BOUNDARIES]
    spanbert = Path(shutil.copytree(bert, tmp_path / "spanbert"))
    weights = load_file(bert / "model.safetensors")
    some = weights["bert.pooler.dense.weight"]
    save_file({"span_boundary.first.weight": some}, spanbert / "span_boundary.safetensors")
    assert read_released(spanbert).lacking("mlm_sbo") == []


def test_a_generator_inside(word_vocabularies: dict[str, Vocabulary], tmp_path: Path) -> None:
    model = read_released(save_electra(tmp_path / "e", word_vocabularies["wordpiece-uncased"]))
    assert model.generator
    assert (model.generator.width, model.encoder.width) == (16, 32)


def refusal(folder: Path) -> str:
    with pytest.raises(ConfigError) as error:
        read_released(folder)
    assert "\n" not in str(error.value)
    return str(error.value)


def edit(folder: Path, target: Path, **settings: Any) -> Path:
    shutil.copytree(folder, target)
    content = json.loads((folder / "config.json").read_text()) | settings
    (target / "config.json").write_text(json.dumps(content))
    return target


def test_what_cannot_be_continued_is_refused_in_a_line(bert: Path, tmp_path: Path) -> None:
    gpt = edit(bert, tmp_path / "gpt", model_type="gpt2")
    assert "holds no model that can be continued: model_type=gpt2 is not supported" in refusal(gpt)
    alibi = edit(bert, tmp_path / "alibi", position_embedding_type="alibi")
    assert "position_embedding_type=alibi cannot be loaded" in refusal(alibi)
    code = edit(bert, tmp_path / "code", auto_map={"AutoModel": "modeling.Mine"})
    assert "code of its own (auto_map in config.json), which never runs here" in refusal(code)
    odd = edit(bert, tmp_path / "odd", num_hidden_layers="two")
    assert "num_hidden_layers" in refusal(odd)

    empty = tmp_path / "empty"
    empty.mkdir()
    assert f"{empty} holds no config.json" in refusal(empty)
    (empty / "config.json").write_text("[")
    assert "config.json cannot be read" in refusal(empty)
    pickled = edit(bert, tmp_path / "pickled")
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    assert "a pickle, which is not read; convert them" in refusal(pickled)
    (pickled / "pytorch_model.bin").unlink()
    assert "holds no model.safetensors" in refusal(pickled)
    (pickled / "model.safetensors").write_bytes(b"\xff" * 40)
    assert "model.safetensors is damaged" in refusal(pickled)


def test_a_tokenizer_that_only_its_own_code_knows_is_refused(bert: Path, tmp_path: Path) -> None:
    """Its vocab.txt alone would give other ids without a word: BertJapaneseTokenizer, say."""
    folder = edit(bert, tmp_path / "slow")
    tokens = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    (folder / "tokenizer.json").unlink()
    lines = "".join(f"{token}\n" for token, _ in sorted(tokens.items(), key=lambda item: item[1]))
    (folder / "vocab.txt").write_text(lines)
    config = {"do_lower_case": True, "tokenizer_class": "BertTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert read_released(folder).vocabulary.size == len(tokens)
    (folder / "tokenizer_config.json").write_text(
        json.dumps(config | {"tokenizer_class": "BertJapaneseTokenizer"})
    )
    assert "BertJapaneseTokenizer" in refusal(folder)
    (folder / "vocab.txt").unlink()
    assert "holds no tokenizer that can be used" in refusal(folder)
