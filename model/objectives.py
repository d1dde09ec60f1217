"""What is learned: an encoder with its heads, from a batch to sums that the trainer scales.

Sums, never means: a step's loss is its sum over all ranks and micro-batches, divided once by the
count of predictions over all of them, which only the trainer knows.

Legend: B batch, S sequence, K predicted positions, D width, V vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from model.config import EncoderConfig
from model.encoder import Encoder, initialize
from model.heads import MaskedLanguageHead


class MaskedLanguageSums(NamedTuple):
    """Sums over the used slots of a micro-batch, float32, on the model's device."""

    loss_sum: Tensor
    """Cross-entropy, in nats; the only one with a gradient."""
    correct_sum: Tensor
    """Positions whose likeliest word was the right one."""
    mask_loss_sum: Tensor
    """Cross-entropy at the positions that showed [MASK]."""
    mask_count: Tensor
    """Positions that showed [MASK]."""


class MaskedLanguageModel(nn.Module):
    """Predicts the original words at chosen positions (BERT's and RoBERTa's MLM)."""

    def __init__(self, config: EncoderConfig, *, seed: int) -> None:
        """seed: chooses the initial weights, see `model.encoder.initialize`."""
        super().__init__()
        self.config = config
        self.encoder = Encoder(config)
        self.head = MaskedLanguageHead(config, self.encoder.embeddings.words)
        initialize(self, config, seed)

    def forward(
        self,
        input_ids_BS: Tensor,
        lengths_B: Tensor | None,
        positions_K: Tensor,
        labels_K: Tensor,
        weights_K: Tensor,
        mask_id: int,
        segment_ids_BS: Tensor | None = None,
    ) -> MaskedLanguageSums:
        """Arguments are those of the loader's Batch; slots of weight 0 may be cut off or not.

        lengths_B: None when every row is full, see `Encoder.forward`; mask_id: the id of [MASK].
        """
        hidden_BSD = self.encoder(input_ids_BS, lengths_B, segment_ids_BS)
        hidden_KD = hidden_BSD.flatten(0, 1).index_select(0, positions_K)
        losses_K, found_K = self.head(hidden_KD, labels_K)
        masked_K = weights_K * (input_ids_BS.flatten().index_select(0, positions_K) == mask_id)
        return MaskedLanguageSums(
            loss_sum=(losses_K * weights_K).sum(),
            correct_sum=(found_K * weights_K).sum(),
            mask_loss_sum=(losses_K.detach() * masked_K).sum(),
            mask_count=masked_K.sum(),
        )

    def logits(self, input_ids_BS: Tensor, lengths_B: Tensor | None) -> Tensor:
        """Logits [B, S, V] at every position, for export and evaluation."""
        return self.head.logits(self.encoder(input_ids_BS, lengths_B))
