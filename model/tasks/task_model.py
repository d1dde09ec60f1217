"""An encoder with the head of a task, and its conversion from and to folders of transformers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast, get_args

from torch import Tensor, nn

from model.config import EncoderConfig
from model.encoder import Encoder, initialize
from model.hugging_face.config_json import (
    CLASSIFIER_DROPOUT,
    POOLING,
    our_config,
    their_config,
    with_pooling,
)
from model.hugging_face.conversion import (
    LogicalParameter,
    copies_of,
    copy_pieces,
    identity_mapping,
    named_parameters,
    views,
    without_mapping,
)
from model.hugging_face.electra_settings import electra_config, their_electra_config
from model.hugging_face.families import (
    ELECTRA,
    MODERNBERT,
    Family,
    Names,
    family_named,
    model_type_of,
)
from model.hugging_face.sizes import check_sizes, named, todays_name
from model.pieces import Pieces
from model.tasks.heads import HEADS, HeadDesign, Kind, TaskHead, WordBag, means

DROPOUT = "classifier_dropout"
"""The setting of most classes for the dropout before the output layer."""
SUMMARY_DROPOUT = 0.1
"""ELECTRA's `summary_last_dropout` in transformers, also of its published folders."""
Pooling = Literal["cls", "mean"]
"""ModernBERT's `classifier_pooling`: what stands for a row is its first token's vector, as in every
other family, or the mean over its tokens."""


@dataclass(frozen=True, slots=True)
class TaskInputs:
    """A batch: rows one after another, and which tokens the head reads."""

    input_ids_T: Tensor
    pieces: Pieces
    """The rows."""
    segment_ids_T: Tensor | None
    places_N: Tensor
    """The tokens that the head reads."""


@dataclass(frozen=True, slots=True)
class TaskDesign:
    """The predictions of a model."""

    kind: Kind
    labels: tuple[str, ...]
    """Names of the labels in the order of the logits; empty for regression, choices and spans."""

    @property
    def outputs(self) -> int:
        """Logits per gathered vector."""
        return 2 if self.kind == "spans" else max(1, len(self.labels))

    @property
    def reads_rows(self) -> bool:
        """True if the head reads one vector per row."""
        return self.kind in ("classification", "choices")


class TaskModel(nn.Module):
    """An encoder, or a bag of words, with a head."""

    def __init__(
        self, encoder: Encoder | WordBag, head: TaskHead, family: Family, config: EncoderConfig,
        task: TaskDesign, pooling: Pooling = "cls",
    ) -> None:  # fmt: skip
        """config: of the encoder, also when a bag of words takes its place."""
        super().__init__()
        self.encoder, self.head = encoder, head
        self.family, self.config, self.task, self.pooling = family, config, task, pooling

    def forward(self, inputs: TaskInputs) -> Tensor:
        """Logits [N, L] of the gathered tokens."""
        hidden_TD = self.encoder(inputs.input_ids_T, inputs.pieces, inputs.segment_ids_T)
        if self.pooling == "mean" and self.task.reads_rows:
            vectors_ND = means(hidden_TD, inputs.pieces)
        else:
            vectors_ND = hidden_TD.index_select(0, inputs.places_N)
        logits_NL: Tensor = self.head(vectors_ND)
        return logits_NL

    def logical_parameters(self) -> list[LogicalParameter]:
        """Every parameter of an encoder with its head under its name in transformers."""
        return named_parameters(_with_head(self.family, self.task), self, self.config)


def read_task_model(
    state: Mapping[str, Tensor], config: Mapping[str, Any], task: TaskDesign, seed: int
) -> TaskModel:
    """A model with the encoder of a folder; parts of the head that the folder lacks are drawn.

    What precedes the output layer, such as a pooler, is taken from the folder, also from one of
    pretraining. The output layer is taken if the folder has it for the same kind and labels. Raises
    ValueError for weights that are missing or of another shape, and for settings that we do not
    support.
    """
    state = {todays_name(name): weight for name, weight in state.items()}
    own, encoder = encoder_of(config)
    check_sizes(own, encoder, config, state)  # before the model takes memory
    model = random_task_model(config, task, seed)
    state = without_mapping(model.family, model.config, state)
    pieces = views(model, model.logical_parameters())
    design = HEADS[model.family.model_type][task.kind]
    missing = sorted(name for name in pieces.keys() - state.keys() if not _is_of_head(name, design))
    if missing:
        raise ValueError(f"weights do not fit: missing {named(missing)}")
    names = tuple(dict(config.get("id2label") or {}).values())
    # The class tells the kind; an output layer for other labels may have the same shape.
    same_head = design.architecture in (config.get("architectures") or []) and (
        not task.labels or names == task.labels
    )
    pieces = {
        name: piece
        for name, piece in pieces.items()
        if not _is_of_head(name, design)
        or _is_kept(name, piece, state, design, same_head=same_head)
    }
    copy_pieces(pieces, state)
    return model


def random_task_model(config: Mapping[str, Any], task: TaskDesign, seed: int) -> TaskModel:
    """A model of the configuration of a folder, every weight drawn by `encoder.initialize`."""
    own, encoder = encoder_of(config)
    design = HEADS[own.model_type][task.kind]
    dropout = _dropout(config, encoder, own, design)
    head = TaskHead(design, encoder, task.outputs, dropout)
    model = TaskModel(Encoder(encoder), head, own, encoder, task, pooling_of(config))
    initialize(model, encoder, seed)
    return model


def fill_task_model(model: TaskModel, state: Mapping[str, Tensor]) -> None:
    """Copy weights that `write_task_model` gave, the head's too, into a model of the same task."""
    copy_pieces(views(model, model.logical_parameters()), state)


def word_bag_model(model: TaskModel, seed: int) -> TaskModel:
    """A bag of the word embeddings of `model` under an output layer of the same task."""
    assert isinstance(model.encoder, Encoder)
    bag = WordBag(model.encoder.embeddings.words)
    config = replace(model.config, width=bag.words.weight.shape[1])
    head = TaskHead(HeadDesign(architecture="", output="", drops=False), config,
                    model.task.outputs, 0.0)  # fmt: skip
    initialize(head, model.config, seed)
    return TaskModel(bag, head, model.family, model.config, model.task)


def write_task_model(model: TaskModel) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Copies of the weights, and the configuration, of the class that transformers loads.

    Raises ValueError if no class computes what this model computes.
    """
    design = HEADS[model.family.model_type][model.task.kind]
    if model.family is ELECTRA:
        config = their_electra_config(model.config, design.architecture)
    else:
        config = their_config(model.config, False) | {"architectures": [design.architecture]}
    dropout = model.head.dropout.probability
    name, default = _dropout_setting(model.family, model.config, design)
    # If absent, this setting falls back on the encoder's dropout.
    if name != DROPOUT or (design.drops and dropout != default):
        config[name] = dropout
    config = with_pooling(config, model.pooling)
    if model.task.labels:
        config["id2label"] = {str(index): name for index, name in enumerate(model.task.labels)}
        config["label2id"] = {name: index for index, name in enumerate(model.task.labels)}
    elif model.task.kind == "classification":
        # transformers counts the entries of id2label: one is a regression.
        config |= {"problem_type": "regression", "id2label": {"0": "score"},
                   "label2id": {"score": 0}}  # fmt: skip
    pieces = views(model, model.logical_parameters())
    state = {name: piece.detach().clone() for name, piece in pieces.items()}
    state |= identity_mapping(model.config, model.family)
    # transformers has a copy per layer of what layers share here.
    for alias, name in copies_of(model.config, model.family).items():
        state[alias] = state[name].clone()
    return state, config


def _with_head(own: Family, task: TaskDesign) -> Names:
    """The names of a family and of a task's head."""
    design = HEADS[own.model_type][task.kind]
    return {
        **own.modules,
        "head.dense": (design.dense,),
        "head.norm": (design.norm,),
        "head.output": (design.output,),
    }


def encoder_of(config: Mapping[str, Any]) -> tuple[Family, EncoderConfig]:
    """The family and the encoder of a folder's config.json; ValueError as `our_config`."""
    name = model_type_of(config)
    if name == ELECTRA.model_type:
        return ELECTRA, electra_config(config)
    family_named(name)  # its message lists the families
    return our_config(config)


def _dropout(
    config: Mapping[str, Any], encoder: EncoderConfig, own: Family, design: HeadDesign
) -> float:
    """Dropout before the output layer; raises ValueError if the folder's is not a probability."""
    name, default = _dropout_setting(own, encoder, design)
    given = config.get(name)
    if given is None:
        return default
    # type, not isinstance: true is an int.
    if type(given) not in (int, float) or not 0 <= given <= 1:
        raise ValueError(f"{name}={given!r} cannot be loaded; it must be a number in [0, 1]")
    return float(given)


def _dropout_setting(own: Family, encoder: EncoderConfig, design: HeadDesign) -> tuple[str, float]:
    """The setting of a class for the dropout before its output layer, and its value if absent."""
    if own.model_type == "albert":
        return "classifier_dropout_prob", CLASSIFIER_DROPOUT
    if design.summary:
        return "summary_last_dropout", SUMMARY_DROPOUT
    return DROPOUT, 0.0 if own is MODERNBERT else encoder.dropout


def pooling_of(config: Mapping[str, Any]) -> Pooling:
    """The vector that stands for a row; raises ValueError if transformers has no such pooling."""
    is_modern = model_type_of(config) == MODERNBERT.model_type
    pooling = config.get(POOLING, "cls") if is_modern else "cls"
    if pooling not in get_args(Pooling):
        raise ValueError(f"{POOLING}={pooling!r} cannot be loaded; it must be cls or mean")
    return cast(Pooling, pooling)


def _is_of_head(name: str, design: HeadDesign) -> bool:
    return name.rpartition(".")[0] in (*design.pretrained, design.output)


def _is_kept(
    name: str, piece: Tensor, state: Mapping[str, Tensor], design: HeadDesign, *, same_head: bool
) -> bool:
    """True if a weight of the head is taken from the folder."""
    if name not in state or state[name].shape != piece.shape:
        return False
    return same_head or name.rpartition(".")[0] in design.pretrained


def layer_depths(names: Sequence[str], layers: int) -> list[int]:
    """Depth of parameters by their names in our model: 0 for embeddings, then each layer from 1,
    then layers + 2 for the head, so that the last layer decays twice, as in google-research/electra
    `optimization.py`."""
    found = []
    for name in names:
        parts = name.split(".")
        if parts[0] == "head":
            found.append(layers + 2)
        elif parts[1] == "layers":
            found.append(int(parts[2]) + 1)
        else:
            found.append(0)
    return found
