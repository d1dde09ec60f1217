"""Gathered hidden vectors -> logits of a downstream task, as transformers' classes compute them.

Heads see only the vectors that they read: the caller gathers the first of each row, or its mean,
or those that are labelled.

Legend: T tokens, P pieces, which are rows here, N gathered vectors, D width, L labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from model.config import EncoderConfig
from model.dropout import Dropout
from model.pieces import Pieces

Kind = Literal["classification", "choices", "tags", "spans"]
"""The predictions of a head: a label or a number per row, the best of several rows, a label per
token, or the first and the last token of an answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadDesign:
    """A head of transformers."""

    architecture: str
    """Its class in transformers."""
    dense: str = ""
    """Name of the matrix before the output layer; "" if there is none."""
    output: str
    """Name of the output layer."""
    activation: Literal["tanh", "gelu"] = "tanh"
    """Activation after `dense`."""
    norm: str = ""
    """Name of the LayerNorm after the activation; "" if there is none."""
    drops_first: bool = False
    """True if vectors are also dropped before `dense`."""
    drops: bool = True
    """True if there is dropout before the output layer."""
    summary: bool = False
    """True if the dropout is ELECTRA's `summary_last_dropout`, which has its own probability."""

    @property
    def pretrained(self) -> tuple[str, ...]:
        """Names of the layers before the output layer, which pretraining may have trained."""
        return tuple(name for name in (self.dense, self.norm) if name)


def _spans(family: str) -> HeadDesign:
    # transformers has no dropout before the output layer of this class.
    return HeadDesign(
        architecture=f"{family}ForQuestionAnswering", output="qa_outputs", drops=False
    )


def _tags(family: str) -> HeadDesign:
    return HeadDesign(architecture=f"{family}ForTokenClassification", output="classifier")


def _pooled(architecture: str, pooler: str) -> HeadDesign:
    """The pooler of pretraining, if the family has one, and an output layer."""
    return HeadDesign(architecture=architecture, dense=pooler, output="classifier")


def _as_words(architecture: str) -> HeadDesign:
    """The head of masked words up to its LayerNorm, and an output layer."""
    return HeadDesign(
        architecture=architecture,
        dense="head.dense",
        activation="gelu",
        norm="head.norm",
        output="classifier",
    )


HEADS: Mapping[str, Mapping[Kind, HeadDesign]] = {
    "bert": {
        "classification": _pooled("BertForSequenceClassification", "bert.pooler.dense"),
        "choices": _pooled("BertForMultipleChoice", "bert.pooler.dense"),
        "tags": _tags("Bert"),
        "spans": _spans("Bert"),
    },
    "albert": {
        "classification": _pooled("AlbertForSequenceClassification", "albert.pooler"),
        "choices": _pooled("AlbertForMultipleChoice", "albert.pooler"),
        "tags": _tags("Albert"),
        "spans": _spans("Albert"),
    },
    "roberta": {
        "classification": HeadDesign(
            architecture="RobertaForSequenceClassification",
            dense="classifier.dense",
            output="classifier.out_proj",
            drops_first=True,  # a second time, as RobertaClassificationHead
        ),
        "choices": _pooled("RobertaForMultipleChoice", "roberta.pooler.dense"),
        "tags": _tags("Roberta"),
        "spans": _spans("Roberta"),
    },
    "electra": {
        "classification": HeadDesign(
            architecture="ElectraForSequenceClassification",
            dense="classifier.dense",
            output="classifier.out_proj",
            activation="gelu",  # tanh in RoBERTa's head
            drops_first=True,
        ),
        "choices": HeadDesign(
            architecture="ElectraForMultipleChoice",
            dense="sequence_summary.summary",
            output="classifier",
            activation="gelu",
            summary=True,
        ),
        "tags": _tags("Electra"),
        "spans": _spans("Electra"),
    },
    "modernbert": {
        "classification": _as_words("ModernBertForSequenceClassification"),
        "choices": _as_words("ModernBertForMultipleChoice"),
        "tags": _as_words("ModernBertForTokenClassification"),
        "spans": _as_words("ModernBertForQuestionAnswering"),
    },
}
"""The head of each family and kind; SpanBERT's are BERT's."""


class TaskHead(nn.Module):
    """Dropout, dense, activation, LayerNorm, dropout, output; a design says which there are."""

    def __init__(
        self, design: HeadDesign, config: EncoderConfig, labels: int, dropout: float
    ) -> None:
        """config: of the encoder, whose width its vectors have; labels: numbers per vector: 1 for
        regression and choices, 2 for spans."""
        super().__init__()
        width, biases = config.width, config.biases
        self.dense = nn.Linear(width, width, bias=biases) if design.dense else None
        self.activation = nn.Tanh() if design.activation == "tanh" else nn.GELU()
        norm = nn.LayerNorm(width, config.layer_norm_eps, bias=biases)
        self.norm = norm if design.norm else nn.Identity()
        self.first_dropout = Dropout(dropout if design.drops_first else 0.0)
        self.dropout = Dropout(dropout if design.drops else 0.0)
        self.output = nn.Linear(width, labels)

    def forward(self, vectors_ND: Tensor) -> Tensor:
        """Logits [N, L]."""
        if self.dense is not None:
            vectors_ND = self.norm(self.activation(self.dense(self.first_dropout(vectors_ND))))
        logits_NL: Tensor = self.output(self.dropout(vectors_ND))
        return logits_NL


class WordBag(nn.Module):
    """Stands in for the encoder: the first token of a row becomes the mean of the row's embeddings,
    every other token its own embedding, without order or context."""

    def __init__(self, words: nn.Embedding) -> None:
        """words: the word table [W, E] to start from, which is copied."""
        super().__init__()
        self.words = nn.Embedding(*words.weight.shape)
        self.words.weight = nn.Parameter(words.weight.detach().clone())

    def forward(
        self, input_ids_T: Tensor, pieces: Pieces, segment_ids_T: Tensor | None = None
    ) -> Tensor:
        """Vectors [T, E]; arguments as those of `Encoder.forward`, and each row is a piece."""
        words_TE: Tensor = self.words(input_ids_T)
        return words_TE.index_copy(0, pieces.cu_seqlens[:-1].long(), means(words_TE, pieces))


def means(vectors_TD: Tensor, pieces: Pieces) -> Tensor:
    """The mean of the vectors of each piece [P, D]; on a GPU, too, the same in every run."""
    lengths_P = pieces.cu_seqlens.long().diff()
    # Not a scatter, whose sums on a GPU depend on the order of its threads.
    means_PD: Tensor = torch.segment_reduce(vectors_TD, "mean", lengths=lengths_P, axis=0)
    return means_PD
