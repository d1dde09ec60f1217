"""Training objectives: an encoder with its heads, from a batch to sums that the trainer scales.

Objectives return sums, never means: the trainer divides each part of the loss by its own count over
all ranks and micro-batches of the step, which only the trainer knows.

Legend: T tokens, R sequences, K predicted positions, D width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import torch.nn.functional as F
from torch import Tensor, nn

from model.config import EncoderConfig, Initializer
from model.encoder import Encoder, initialize
from model.objectives.span_boundary import SpanBoundaryHead, boundaries
from model.objectives.word_heads import MaskedLanguageHead, PairHead
from model.pieces import Pieces

Sums = dict[str, Tensor]
"""Sums over a micro-batch by name, on the model's device, of any shape; histograms are float64, all
others float32.

Each part of the loss has PART_loss, in nats and with a gradient, and PART_correct, how many
predictions are correct. The others have no gradient: mask_loss and mask_count are mlm's at the
positions that show [MASK].
"""


class Inputs(NamedTuple):
    """A micro-batch as every objective takes it; the tensors are those of the loader's batch."""

    input_ids_T: Tensor
    pieces: Pieces
    """Bounds within which tokens attend to each other."""
    positions_K: Tensor
    """Predicted tokens; slots of weight 0 may be dropped."""
    labels_K: Tensor
    weights_K: Tensor
    mask_id: int
    """The id of [MASK]."""
    segment_ids_T: Tensor | None = None
    """None if every token is in the first segment."""
    row_starts_R: Tensor | None = None
    """The first token of each sequence, ascending; None where it is not needed."""
    pair_labels_R: Tensor | None = None
    """0 in order, 1 random next or swapped, -1 none; None for formats without segment pairs."""
    token_weights_T: Tensor | None = None
    """1 for tokens of sequences, 0 for dead ones; None if no token is dead."""
    draws_K: Tensor | None = None
    """Random bits for sampling, int64; None if nothing is sampled."""
    dropout_keys_T: Tensor | None = None
    """Random bits for dropout, int32; None draws them, see `model.dropout`."""
    edge_ids: tuple[int, int] = (0, 0)
    """Ids of the tokens that open and close a sequence, [CLS] and [SEP]."""
    words_only: bool = False
    """Return only `word_losses` [K], the loss of each predicted word. For scoring sentences: each
    piece has one predicted word, so K = P."""
    each_word: bool = False
    """Return `word_losses` [K] besides the sums, without a gradient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossPart:
    """A part of the loss: `weight` x its sum over the global batch / its count there."""

    name: str
    """Prefix of its sums and metrics."""
    weight: float
    per: Literal["predictions", "pairs", "tokens", "boundaries"]
    """The denominator of its mean: a field of `pipeline.loading.micro_batch.LossCounts`."""


class Objective(Protocol):
    """The interface that the trainer expects of a model."""

    parts: tuple[LossPart, ...]
    """Parts of the loss; metrics without a part's name belong to the first."""

    def __call__(self, inputs: Inputs) -> Sums:
        """The sums of a micro-batch."""


class MaskedLanguageModel(nn.Module):
    """Predicts the original words at chosen positions, and whether two segments belong together.

    With only masked words it is RoBERTa's objective; with segment pairs BERT's, whose second
    segment may be random (NSP), or ALBERT's, whose segments may be swapped (SOP); the data decide
    which. SpanBERT predicts masked words a second time, from the tokens around their span (SBO).
    """

    def __init__(
        self,
        config: EncoderConfig,
        *,
        seed: int,
        initializer: Initializer = "normal",
        pair_weight: float = 0.0,
        boundary_weight: float = 0.0,
    ) -> None:
        """seed, initializer: determine the initial weights, see `model.encoder.initialize`.

        pair_weight, boundary_weight: weights of these parts in the loss; 0 creates no head.
        """
        super().__init__()
        self.initializer = initializer
        self.parts: tuple[LossPart, ...] = (LossPart(name="mlm", weight=1.0, per="predictions"),)
        self.encoder = Encoder(config)
        self.head = MaskedLanguageHead(config, self.encoder.embeddings.words)
        self.pair_head = PairHead(config) if pair_weight else None
        if pair_weight:
            self.parts += (LossPart(name="pair", weight=pair_weight, per="pairs"),)
        words = self.encoder.embeddings.words
        self.boundary_head = SpanBoundaryHead(config, words) if boundary_weight else None
        if boundary_weight:
            self.parts += (LossPart(name="sbo", weight=boundary_weight, per="boundaries"),)
        initialize(self, config, seed, initializer)  # last: it draws every parameter

    @property
    def config(self) -> EncoderConfig:
        """Configuration of the encoder, whose rotary wavelengths may change."""
        return self.encoder.config

    def encoders(self) -> list[Encoder]:
        """The model's only encoder."""
        return [self.encoder]

    def forward(self, inputs: Inputs) -> Sums:
        """The sums of mlm, of pair if there are labels, and of sbo if there is a head for it."""
        if inputs.words_only:
            return compute_word_losses(self.encoder, self.head, inputs)
        hidden_TD = self.encoder(
            inputs.input_ids_T,
            inputs.pieces,
            inputs.segment_ids_T,
            dropout_keys_T=inputs.dropout_keys_T,
        )
        # One pass of the encoder serves all heads.
        sums = masked_language_sums(self.head, hidden_TD, inputs)
        if self.pair_head and inputs.pair_labels_R is not None:
            assert inputs.row_starts_R is not None
            first_RD = hidden_TD.index_select(0, inputs.row_starts_R)
            sums |= pair_sums(self.pair_head, first_RD, inputs.pair_labels_R)
        if self.boundary_head:
            sums |= boundary_sums(self.boundary_head, hidden_TD, inputs)
        return sums

    def logits(
        self, input_ids_T: Tensor, pieces: Pieces, segment_ids_T: Tensor | None = None
    ) -> Tensor:
        """Logits [T, V] at every token, for export and evaluation."""
        return self.head.logits(self.encoder(input_ids_T, pieces, segment_ids_T))

    def pair_logits(
        self, input_ids_T: Tensor, pieces: Pieces, segment_ids_T: Tensor | None
    ) -> Tensor:
        """Logits [P, 2] of the pair labels, where each sequence is a piece; the model must have a
        head for them."""
        assert self.pair_head
        hidden_TD = self.encoder(input_ids_T, pieces, segment_ids_T)
        logits_P2: Tensor = self.pair_head(hidden_TD[pieces.cu_seqlens[:-1].long()])
        return logits_P2


def compute_word_losses(encoder: Encoder, head: MaskedLanguageHead, inputs: Inputs) -> Sums:
    """The result for `Inputs.words_only`: the losses of the predicted words."""
    hidden_KD = encoder(inputs.input_ids_T, inputs.pieces, inputs.segment_ids_T, inputs.positions_K)
    return {"word_losses": head(hidden_KD, inputs.labels_K)[0]}


def masked_language_sums(head: MaskedLanguageHead, hidden_TD: Tensor, inputs: Inputs) -> Sums:
    """The sums of mlm, from the hidden vectors of every token."""
    hidden_KD = hidden_TD.index_select(0, inputs.positions_K)
    losses_K, found_K, *_ = head(hidden_KD, inputs.labels_K)
    return word_sums(losses_K, found_K, inputs)


def word_sums(losses_K: Tensor, found_K: Tensor, inputs: Inputs) -> Sums:
    """The sums of mlm, from the loss of each position and whether its prediction is correct."""
    positions_K, weights_K = inputs.positions_K, inputs.weights_K
    shown_K = inputs.input_ids_T.index_select(0, positions_K)
    masked_K = weights_K * (shown_K == inputs.mask_id)
    each = {"word_losses": losses_K.detach()} if inputs.each_word else {}
    return each | {
        "mlm_loss": (losses_K * weights_K).sum(),
        "mlm_correct": (found_K * weights_K).sum(),
        "mask_loss": (losses_K.detach() * masked_K).sum(),
        "mask_count": masked_K.sum(),
    }


def boundary_sums(head: SpanBoundaryHead, hidden_TD: Tensor, inputs: Inputs) -> Sums:
    """The sums of sbo, see `span_boundary`."""
    found = boundaries(inputs.input_ids_T, inputs.positions_K, inputs.weights_K, inputs.edge_ids)
    losses_K, right_K, *_ = head(hidden_TD, found, inputs.labels_K)
    return {
        "sbo_loss": (losses_K * found.weights).sum(),
        "sbo_correct": (right_K * found.weights).sum(),
    }


def pair_sums(head: PairHead, first_RD: Tensor, labels_R: Tensor) -> Sums:
    """The sums of pair, from the hidden vectors of each sequence's first token; those labelled -1
    are ignored."""
    logits_R2 = head(first_RD).float()  # bfloat16 is too coarse for a loss
    labelled_R = labels_R >= 0
    # -1 is not a class: it becomes 0, and the loss there is multiplied by 0.
    losses_R = F.cross_entropy(logits_R2, labels_R.clamp(min=0), reduction="none")
    return {
        "pair_loss": (losses_R * labelled_R).sum(),
        "pair_correct": (logits_R2.argmax(-1) == labels_R).float().sum(),  # never -1
    }
