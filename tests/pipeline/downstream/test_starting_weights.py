"""Folders of transformers and runs as a start, and folders that are none."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file

from model.hugging_face.electra_settings import electra_config
from model.objectives.replaced_tokens import PARTS, Kind, ReplacedTokenModel
from model.tasks.task_model import TaskDesign
from pipeline.base.errors import CheckpointError
from pipeline.downstream import starting_weights
from pipeline.downstream.features import RowEncoder
from pipeline.downstream.reading.examples import Example
from pipeline.downstream.starting_weights import load_fine_tuned, load_start, save_folder
from pipeline.training.weights.model_folders import write_folder
from tests.pipeline.downstream.small_work import EXPORTS, every_family
from tests.pipeline.released.models import save_model

RUNS = EXPORTS.with_name("runs")
DESIGN = TaskDesign("classification", ("a", "b"))


def assert_same_weights(left: torch.nn.Module, right: torch.nn.Module) -> None:
    for one, other in zip(left.parameters(), right.parameters(), strict=True):
        assert torch.equal(one, other)


@every_family
def test_a_folder(family: str, tmp_path: Path) -> None:
    start = load_start(EXPORTS / family)
    assert start.family == family
    model = start.model(DESIGN, 0)
    save_folder(model, start, tmp_path / "out/model")
    again = load_fine_tuned(tmp_path / "out", start)
    assert again.family == family and str(tmp_path / "out") in again.origin
    assert_same_weights(model, again.model(DESIGN, 5))
    starting_weights.save_weights(model, tmp_path / "w.safetensors")
    assert load_file(tmp_path / "w.safetensors").keys() <= again.state.keys()
    changed = start.with_dropout(0.3).model(DESIGN, 0)
    assert changed.config.dropout == changed.config.attention_dropout == 0.3
    other = start.random_model(DESIGN, 0)
    assert not torch.equal(next(other.parameters()), next(model.parameters()))


@every_family
def test_the_tokenizer_of_a_tagger_makes_its_training_rows(family: str, tmp_path: Path) -> None:
    """Of a text and of its words. transformers 5 takes a class for ModernBERT that adds no space,
    so the text has to begin with one."""
    start, labels = load_start(EXPORTS / family), ("O", "B-PER")
    words = ("Anna", "met", "Bo", ".")
    tagger, other = tmp_path / "tagger", tmp_path / "other"
    save_folder(start.random_model(TaskDesign("tags", labels), 0), start, tagger)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tagger)
    encoder = RowEncoder(start.vocabulary, 32)
    (feature,) = encoder.encode([Example("0", words, None)], "tags", labels)
    text = " ".join(words)
    is_modern = family == "modernbert"
    assert tokenizer(" " * is_modern + text)["input_ids"] == feature.rows[0].ids
    if not is_modern:
        split = tokenizer(list(words), is_split_into_words=True)["input_ids"]
        assert split == feature.rows[0].ids
    start = load_start(tagger)
    save_folder(start.random_model(DESIGN, 0), start, other)  # it reads texts as they are
    (feature,) = encoder.encode([Example("0", (text,), None)], "classification", DESIGN.labels)
    tokenizer = transformers.AutoTokenizer.from_pretrained(other)
    assert tokenizer(text)["input_ids"] == feature.rows[0].ids


@every_family
def test_a_run_is_its_export(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tokenizer is that of the shards, which may be gone."""
    monkeypatch.chdir(tmp_path)  # the recorded runs name their shards relative to it
    with pytest.raises(CheckpointError, match=f"shards/{family}/tokenizer"):
        load_start(RUNS / family)
    shutil.copytree(EXPORTS / family, tmp_path / "shards" / family / "tokenizer")
    run, folder = load_start(RUNS / family), load_start(EXPORTS / family)
    assert run.family == folder.family == family
    assert run.vocabulary.sha256 == folder.vocabulary.sha256
    assert run.origin == f"{RUNS / family} step 10"
    assert_same_weights(run.model(DESIGN, 0), folder.model(DESIGN, 0))


def test_a_folder_of_modernbert_with_and_without_heads(tmp_path: Path) -> None:
    """transformers' own class saves names without the prefix, which is no model type here."""
    vocabulary = load_start(EXPORTS / "roberta").vocabulary
    whole = save_model("ModernBertForMaskedLM", tmp_path / "whole", vocabulary)
    alone = save_model("ModernBertModel", tmp_path / "alone", vocabulary)
    transformers.ModernBertForMaskedLM.from_pretrained(whole).model.save_pretrained(alone)
    first, second = load_start(whole), load_start(alone)
    assert first.family == second.family == "modernbert"
    assert first.encoder_hash == second.encoder_hash and first.identity != second.identity
    ours, other = first.model(DESIGN, 0), second.model(DESIGN, 0)
    assert_same_weights(ours.encoder, other.encoder)
    assert ours.head.dense is not None
    assert torch.equal(ours.head.dense.weight, first.state["head.dense.weight"])
    changed = first.with_dropout(0.3).model(DESIGN, 0)
    assert changed.config.dropout == changed.config.attention_dropout == 0.3
    save_folder(changed, first, tmp_path / "out/model")
    again = load_fine_tuned(tmp_path / "out", first)
    assert (again.family, again.encoder.dropout) == ("modernbert", 0.3)
    assert_same_weights(again.model(DESIGN, 5), ours)


@pytest.mark.parametrize("kind", PARTS)
def test_an_export_of_every_kind_with_a_generator(kind: Kind, tmp_path: Path) -> None:
    config = electra_config(json.loads((EXPORTS / "electra/config.json").read_text()))
    model = ReplacedTokenModel(config, replace(config, layers=1), weight=1.0, seed=3, kind=kind)
    write_folder(model, EXPORTS / "electra", tmp_path / "export")
    start = load_start(tmp_path / "export")
    assert start.family == "electra"
    tuned = start.model(DESIGN, 0)
    ours = dict(model.encoder.named_parameters())
    for name, weight in tuned.encoder.named_parameters():
        assert torch.equal(weight, ours[name]), name
    save_folder(tuned, start, tmp_path / "out/model")
    assert load_fine_tuned(tmp_path / "out", start).family == "electra"
    with pytest.raises(CheckpointError, match="is ELECTRA's generator"):
        load_start(tmp_path / "export/generator")


def test_what_is_no_start(tmp_path: Path) -> None:
    start = load_start(EXPORTS / "bert")
    with pytest.raises(CheckpointError, match="finish that"):
        load_fine_tuned(tmp_path, start)
    folder = tmp_path / "gpt"
    shutil.copytree(EXPORTS / "bert", folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "gpt2"}))
    with pytest.raises(CheckpointError, match=r"gpt2; .* bert, albert"):
        load_start(folder)
    for name, value in (("hidden_size", None), ("vocab_size", "many"), ("pad_token_id", 1.5)):
        (folder / "config.json").write_text(json.dumps(config | {name: value}))
        with pytest.raises(CheckpointError, match=f"{name}={value!r}"):
            load_start(folder)
    with pytest.raises(CheckpointError, match="is ELECTRA's generator"):
        load_start(EXPORTS / "electra/generator")
    shutil.copytree(EXPORTS / "roberta", tmp_path / "o/model")
    with pytest.raises(CheckpointError, match=r"roberta, .* bert"):
        load_fine_tuned(tmp_path / "o", start)
    with pytest.raises(CheckpointError):
        load_start(tmp_path / "nothing")
