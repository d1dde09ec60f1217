"""Tiny models of transformers, and features of each kind of task."""

from typing import Any

import numpy as np
import torch
import transformers
from torch.nn.utils.rnn import pad_sequence

from model.tasks.heads import HEADS, Kind
from model.tasks.task_model import TaskDesign
from pipeline.downstream.batches import TaskBatch
from pipeline.downstream.features import Feature, Row

SIZES: dict[str, Any] = {
    "vocab_size": 90, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 40, "max_position_embeddings": 40, "hidden_act": "gelu",
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "type_vocab_size": 2,
    "initializer_range": 0.2, "pad_token_id": 0,
}  # fmt: skip
OTHERS: dict[str, dict[str, Any]] = {
    "bert": {},
    "spanbert": {"type_vocab_size": 1},
    "roberta": {"type_vocab_size": 1, "pad_token_id": 1},
    "albert": {"embedding_size": 8, "classifier_dropout_prob": 0.0},
    "electra": {"embedding_size": 8, "summary_last_dropout": 0.0},
    "modernbert": {"local_attention": 8, "global_attn_every_n_layers": 2},
}
"""Settings by family."""
LABELS = {"classification": ("a", "b", "c"), "tags": ("B-X", "I-X", "O")}


def peer(family: str, kind: Kind, **more: Any) -> tuple[Any, TaskDesign]:
    """transformers' own class with random weights and no dropout; more: of its settings."""
    model_type = "bert" if family == "spanbert" else family
    design = TaskDesign(kind, LABELS.get(kind, ()))
    settings = SIZES | OTHERS[family] | more
    if design.labels:
        settings |= {"num_labels": len(design.labels)}
    config = transformers.AutoConfig.for_model(model_type, **settings)
    torch.manual_seed(0)
    architecture = getattr(transformers, HEADS[model_type][kind].architecture)
    return architecture(config).train(), design


def random_features(kind: Kind, count: int) -> list[Feature]:
    """Features of random ids; those of spans are equally long, because transformers' loss of spans
    also reads the logits of pads."""
    rng = np.random.default_rng(0)

    def row(length: int, places: list[int]) -> Row:
        ids = [2, *rng.integers(5, 90, length - 2).tolist(), 3]
        return Row(ids, int(rng.integers(3, length)), places)

    found = []
    for index in range(count):
        length = 16 if kind == "spans" else int(rng.integers(6, 20))
        if kind == "tags":
            places = sorted(rng.choice(np.arange(1, length - 1), 3, replace=False).tolist())
            targets = tuple(rng.integers(0, 3, 3).tolist())
            found.append(Feature(index, (row(length, places),), targets))
        elif kind == "spans":
            ends = tuple(sorted(rng.integers(0, length, 2).tolist()))
            found.append(Feature(index, (row(length, list(range(length))),), ends))
        else:
            rows = tuple(row(length, [0]) for _ in range(3 if kind == "choices" else 1))
            found.append(Feature(index, rows, (int(rng.integers(3)),)))
    return found


def their_arguments(batch: TaskBatch, kind: Kind, pad: int = 0) -> dict[str, torch.Tensor]:
    """The arguments of transformers' class for a batch, whose rows it takes as long as the longest
    one; pad: id of the rest."""
    lengths = batch.inputs.pieces.cu_seqlens.diff().long()

    def rows(values: torch.Tensor, rest: int) -> torch.Tensor:
        return pad_sequence(values.split(lengths.tolist()), batch_first=True, padding_value=rest)

    ids = rows(batch.inputs.input_ids_T, pad)
    mask = rows(torch.ones_like(batch.inputs.input_ids_T), 0)
    given = {"input_ids": ids, "attention_mask": mask}
    if batch.inputs.segment_ids_T is not None:
        given["token_type_ids"] = rows(batch.inputs.segment_ids_T, 0)
    targets = batch.targets.long()
    if kind == "choices":
        given = {name: value.view(-1, 3, ids.shape[1]) for name, value in given.items()}
    if kind == "spans":
        ends = targets.view(-1, 2)
        return given | {"start_positions": ends[:, 0], "end_positions": ends[:, 1]}
    if kind == "tags":
        labels = torch.full_like(batch.inputs.input_ids_T, -100)
        labels[batch.inputs.places_N] = targets
        targets = rows(labels, -100)
    return given | {"labels": targets}
