"""Restores the words that a generator replaced: two objectives that ELECTRA is compared with.

Clark et al. 2020, sec. 3.5. "Replace MLM" is masked language modelling whose [MASK] are a
generator's words, so pretraining shows no [MASK]. "All-Tokens MLM" predicts every token of that
input, as ELECTRA judges every token. Its distribution is copy x (the word that is shown) +
(1 - copy) x (softmax over words), where `copy` is a sigmoid of the token's hidden vector.

Legend: T tokens, K predicted positions, N tokens that are restored, D width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.config import EncoderConfig
from model.objectives.masked_language import Inputs, Sums
from model.objectives.word_heads import MaskedLanguageHead


class RestoringHead(nn.Module):
    """Predicts the original word of a token: BERT's head, and with `copies` a copy probability."""

    def __init__(self, config: EncoderConfig, words: nn.Embedding, *, copies: bool) -> None:
        """words: the encoder's own word table, whose weight is tied."""
        super().__init__()
        self.words = MaskedLanguageHead(config, words)
        self.copy = nn.Linear(config.width, 1) if copies else None

    def forward(
        self, hidden_ND: Tensor, labels_N: Tensor, shown_N: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Cross-entropy per token in float32 [N], and whether the likeliest word is right [N].

        shown_N: the words of the input.
        """
        if self.copy is None:
            losses_N, found_N, *_ = self.words(hidden_ND, labels_N)
            return losses_N, found_N
        losses_N, found_N, _, (top_N, seen_N) = self.words(hidden_ND, labels_N, shown_K=shown_N)
        gate_N = self.copy(hidden_ND)[:, 0].float()
        # Logarithms, because the sigmoid of a large gate rounds to 0 or 1.
        copied_N, drawn_N = F.logsigmoid(gate_N), F.logsigmoid(-gate_N)
        kept_N = shown_N == labels_N
        drawn_loss_N = losses_N - drawn_N
        # If the shown word is right, copying adds to its probability; else only drawing helps.
        mixed_N = torch.where(kept_N, -torch.logaddexp(copied_N, -drawn_loss_N), drawn_loss_N)
        with torch.no_grad():
            # The shown word wins if, copied or drawn, it is as likely as the likeliest drawn one.
            shows_N = torch.logaddexp(copied_N, drawn_N + seen_N) >= drawn_N + top_N
            right_N = torch.where(kept_N, shows_N | found_N, ~shows_N & found_N)
        return mixed_N, right_N


def originals(inputs: Inputs) -> Tensor:
    """The unmasked words [T]."""
    ids_T, positions_K = inputs.input_ids_T, inputs.positions_K
    # Unused slots point at token 0 and write back what is there.
    labels_K = torch.where(inputs.weights_K > 0, inputs.labels_K, ids_T[positions_K])
    return ids_T.scatter(0, positions_K, labels_K)


def restored_sums(
    head: RestoringHead, hidden_TD: Tensor, shown_T: Tensor, weights_T: Tensor, inputs: Inputs
) -> Sums:
    """The sums of words, at the predicted positions, or with a copy probability at all tokens.

    shown_T: the input with the generator's words; weights_T: 1 for tokens of sequences. Counts the
    tokens that are replaced, and how many of these are restored.
    """
    labels_T = originals(inputs)
    places, weights = inputs.positions_K, inputs.weights_K
    if head.copy is not None:
        places, weights = torch.arange(len(shown_T), device=shown_T.device), weights_T
    shown, labels = shown_T[places], labels_T[places]
    losses, right = head(hidden_TD.index_select(0, places), labels, shown)
    replaced = (shown != labels) * weights
    return {
        "words_loss": (losses * weights).sum(),
        "words_correct": (right * weights).sum(),
        "words_replaced": replaced.sum(),
        "words_restored": (right * replaced).sum(),
    }
