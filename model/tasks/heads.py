"""Gathered hidden vectors -> logits of a downstream task, as transformers' classes compute them.

Heads see the tokens that they read alone: the caller gathers the first of each row [R, D] or those
that are labelled [N, D].

Legend: N gathered vectors, D width, L labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from model.dropout import Dropout
from model.pieces import Pieces, piece_of

Kind = Literal["classification", "choices", "tags", "spans"]
"""What a head predicts: a label or a number per row, the best of several rows, a label per token,
or the first and the last token of an answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadDesign:
    """A head of transformers."""

    architecture: str
    """Its class."""
    dense: str = ""
    """Name of the matrix before the output layer; "" if there is none."""
    output: str
    """Name of the output layer."""
    activation: Literal["tanh", "gelu"] = "tanh"
    """After `dense`."""
    drops_first: bool = False
    """Whether vectors are also dropped before `dense`."""
    drops: bool = True
    """Whether there is dropout before the output layer."""
    summary: bool = False
    """Whether the dropout is ELECTRA's `summary_last_dropout`, which has its own probability."""


def _spans(family: str) -> HeadDesign:
    return HeadDesign(
        architecture=f"{family}ForQuestionAnswering", output="qa_outputs", drops=False
    )


def _tags(family: str) -> HeadDesign:
    return HeadDesign(architecture=f"{family}ForTokenClassification", output="classifier")


def _pooled(architecture: str, pooler: str) -> HeadDesign:
    """The pooler of pretraining, if the family has one, and an output layer."""
    return HeadDesign(architecture=architecture, dense=pooler, output="classifier")


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
            drops_first=True,
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
            activation="gelu",
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
}
"""The head of each family and kind; SpanBERT's are BERT's."""


class TaskHead(nn.Module):
    """Dropout, dense, activation, dropout, output; a design says which of them there are."""

    def __init__(self, design: HeadDesign, width: int, labels: int, dropout: float) -> None:
        """labels: numbers per vector: 1 for regression and choices, 2 for spans."""
        super().__init__()
        self.dense = nn.Linear(width, width) if design.dense else None
        self.activation = nn.Tanh() if design.activation == "tanh" else nn.GELU()
        self.first_dropout = Dropout(dropout if design.drops_first else 0.0)
        self.dropout = Dropout(dropout if design.drops else 0.0)
        self.output = nn.Linear(width, labels)

    def forward(self, vectors_ND: Tensor) -> Tensor:
        """Logits [N, L]."""
        if self.dense is not None:
            vectors_ND = self.activation(self.dense(self.first_dropout(vectors_ND)))
        logits_NL: Tensor = self.output(self.dropout(vectors_ND))
        return logits_NL


class WordBag(nn.Module):
    """In the encoder's place: the first token of a row becomes the mean of the row's embeddings,
    and every other token its own. It knows no order and no context."""

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
        bounds = pieces.cu_seqlens.long()
        sums_PE = words_TE.new_zeros(len(bounds) - 1, words_TE.shape[1])
        sums_PE = sums_PE.index_add(0, piece_of(bounds, len(input_ids_T)), words_TE)
        means_PE = sums_PE / bounds.diff()[:, None].to(words_TE.dtype)
        return words_TE.index_copy(0, bounds[:-1], means_PE)
