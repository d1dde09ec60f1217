"""Models with heads go to transformers and come back with equal logits."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from model.hugging_face.conversion import to_hugging_face
from model.objectives.masked_language import MaskedLanguageModel
from model.tasks.heads import HEADS, Kind
from model.tasks.task_model import (
    TaskDesign,
    TaskInputs,
    fill_task_model,
    layer_depths,
    random_task_model,
    read_task_model,
    word_bag_model,
    write_task_model,
)
from pipeline.base.typed_json import read_object
from pipeline.downstream.batches import collate
from tests.model.test_rotary import MODERN
from tests.pipeline.downstream.peers import peer, random_features, their_arguments

EXPORTS = Path(__file__).parents[2] / "golden/exports"
AUTO: dict[Kind, Any] = {
    "classification": transformers.AutoModelForSequenceClassification,
    "choices": transformers.AutoModelForMultipleChoice,
    "tags": transformers.AutoModelForTokenClassification,
    "spans": transformers.AutoModelForQuestionAnswering,
}
"""The class that transformers finds for a kind of task."""


def in_order(found: Any, kind: Kind, shown: Tensor, inputs: TaskInputs) -> Tensor:
    """Logits of transformers' classes in the order of ours; shown: where rows have no pads."""
    if kind == "spans":
        return torch.stack([found.start_logits, found.end_logits], -1)[shown]
    logits: Tensor = found.logits
    return logits[shown][inputs.places_N] if kind == "tags" else logits


CELLS: list[tuple[str, Kind, dict[str, str]]] = [
    *((family, kind, {}) for family in HEADS for kind in get_args(Kind)),
    *(("modernbert", kind, {"classifier_pooling": "mean"}) for kind in get_args(Kind)),
]


@pytest.mark.parametrize(("family", "kind", "settings"), CELLS)
def test_logits_are_transformers_and_weights_return(
    family: str, kind: Kind, settings: dict[str, str], tmp_path: Path
) -> None:
    """In rows with pads, shorter and longer than ModernBERT's window of 8; from their class to ours
    and, through the files of a folder, back to the class that transformers finds for it."""
    theirs, design = peer(family, kind, **settings)
    torch.manual_seed(4)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    config = theirs.config.to_dict() | {"architectures": [type(theirs).__name__]}
    if design.labels:
        config["id2label"] = dict(enumerate(design.labels))
    model = read_task_model(theirs.state_dict(), config, design, seed=1).eval()
    state, written = write_task_model(model)
    (tmp_path / "config.json").write_text(json.dumps(written))
    save_file(state, tmp_path / "model.safetensors", {"format": "pt"})
    again = AUTO[kind].from_pretrained(tmp_path).eval()
    assert written.get("classifier_pooling") == config.get("classifier_pooling")
    has_segments = config.get("type_vocab_size") == 2
    batch = collate(random_features(kind, 6), segments=has_segments, device=torch.device("cpu"))
    given = their_arguments(batch, kind, config["pad_token_id"])
    shown = given["attention_mask"].bool().flatten(0, -2)
    with torch.no_grad():
        ours = model(batch.inputs)
        for other in (theirs.eval(), again):
            expected = in_order(other(**given), kind, shown, batch.inputs).reshape(ours.shape)
            torch.testing.assert_close(ours, expected, rtol=0, atol=1e-5)
    read = read_task_model(load_file(tmp_path / "model.safetensors"), written, design, seed=9)
    filled = random_task_model(written, design, seed=5)
    fill_task_model(filled, state)
    for same in (read, filled):
        torch.testing.assert_close(same.eval()(batch.inputs), ours)


def test_fine_tuning_of_modernbert_starts_with_the_head_of_masked_words() -> None:
    """All of it but the output layer, and with the folder's own way to read a row."""
    pretrained = MaskedLanguageModel(MODERN, seed=1)
    with torch.no_grad():
        pretrained.head.norm.weight += 0.1
    state, config = to_hugging_face(pretrained)
    design = TaskDesign("classification", ("a", "b"))
    model = read_task_model(state, config | {"classifier_pooling": "mean"}, design, seed=2)
    assert model.pooling == "mean" and model.head.dropout.probability == 0
    assert model.head.dense is not None and model.head.dense.bias is None
    assert torch.equal(model.head.dense.weight, pretrained.head.dense.weight)
    assert torch.equal(model.head.norm.weight, pretrained.head.norm.weight)
    encoder = dict(pretrained.encoder.named_parameters())
    for name, weight in model.encoder.named_parameters():
        assert torch.equal(weight, encoder[name]), name
    assert word_bag_model(model, seed=0).pooling == "cls"
    with pytest.raises(ValueError, match="classifier_pooling='max'"):
        read_task_model(state, config | {"classifier_pooling": "max"}, design, seed=2)


def test_a_pooler_of_pretraining_is_kept_and_another_tasks_output_is_not() -> None:
    state = load_file(EXPORTS / "bert/model.safetensors")
    config = read_object(EXPORTS / "bert/config.json")
    _, design = peer("bert", "classification")
    model = read_task_model(state, config, design, seed=0)
    assert model.head.dense is not None
    assert torch.equal(model.head.dense.weight, state["bert.pooler.dense.weight"])
    state, config = write_task_model(model)
    config["id2label"] = {"0": "x", "1": "y", "2": "z"}
    other = read_task_model(state, config, design, seed=1)
    assert not torch.equal(other.head.output.weight, model.head.output.weight)
    del state["bert.embeddings.LayerNorm.bias"]
    with pytest.raises(ValueError, match=r"missing \['bert.embeddings.LayerNorm.bias'\]"):
        read_task_model(state, config, design, seed=1)


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("bert", "classifier_dropout"), ("albert", "classifier_dropout_prob"),
        ("electra", "summary_last_dropout"), ("modernbert", "classifier_dropout"),
    ],
)  # fmt: skip
def test_a_dropout_that_is_no_probability_is_refused(family: str, name: str) -> None:
    theirs, design = peer(family, "choices")
    for value in (10**400, -0.1, 2, "0.1", True, [0.1]):
        config = theirs.config.to_dict() | {name: value}
        with pytest.raises(ValueError, match=f"{name}="):
            random_task_model(config, design, seed=3)


def test_a_bag_replaces_the_encoder() -> None:
    theirs, design = peer("albert", "classification")
    bag = word_bag_model(random_task_model(theirs.config.to_dict(), design, seed=3), seed=0)
    names = {name for name, _ in bag.named_parameters()}
    assert names == {"encoder.words.weight", "head.output.weight", "head.output.bias"}


def test_depths() -> None:
    names = ["encoder.embeddings.words", "encoder.layers.0.a", "encoder.layers.11.b", "head.x"]
    assert layer_depths(names, 12) == [0, 1, 12, 14]
