"""Hidden vectors at predicted positions -> their losses, without a second array of logits.

Legend: B batch, K predicted positions, D width of hidden vectors, E of embeddings, V vocabulary,
W vocabulary padded to a multiple of 128.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from model.config import EncoderConfig
from model.linear import LinearGelu, linear
from model.objectives.sampling import sample

CHUNK_BYTES = {"cpu": 16 << 20, "cuda": 1 << 30, "meta": 1 << 30}
"""Most bytes of float32 logits processed at a time; on a CPU they should fit in its cache. Tensors
of the meta device have shapes alone, and stand for those of a GPU."""


class MaskedLanguageHead(nn.Module):
    """Predicts a word: dense, GELU, LayerNorm, then the word table and a bias per word."""

    def __init__(self, config: EncoderConfig, words: nn.Embedding) -> None:
        """words: the encoder's own word table [W, E], whose weight is tied."""
        super().__init__()
        self.dense = LinearGelu(config.width, config.embedding_width, config.activation)
        self.norm = nn.LayerNorm(config.embedding_width, config.layer_norm_eps)
        self.words = words.weight
        self.bias = nn.Parameter(torch.zeros(config.padded_vocab_size))
        self.vocab_size = config.vocab_size

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits [..., V] of hidden vectors [..., D]."""
        transformed = self.norm(self.dense(hidden))
        return linear(transformed, self.words, self.bias)[..., : self.vocab_size]

    def forward(self, hidden_KD: Tensor, labels_K: Tensor) -> tuple[Tensor, Tensor]:
        """Cross-entropy per position in float32 [K], and whether the prediction is correct [K]."""
        transformed_KE = self.norm(self.dense(hidden_KD))
        return word_losses(transformed_KE, self.words, self.bias, labels_K, self.vocab_size)

    def sample(
        self, hidden_KD: Tensor, labels_K: Tensor, draws_K: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As `forward`, plus a word [K] sampled from each position's distribution, no gradient.

        draws_K: see `sampling.sample`.
        """
        transformed_KE = self.norm(self.dense(hidden_KD))
        size = self.vocab_size
        losses_K, found_K, sampled_K, _ = _word_losses(
            transformed_KE, self.words, self.bias, labels_K, size, draws_K=draws_K
        )
        return losses_K, found_K, sampled_K

    def beside(
        self, hidden_KD: Tensor, labels_K: Tensor, shown_K: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As `forward`, plus log probabilities [2, K], no gradient: of the likeliest word and of
        the word `shown_K`."""
        transformed_KE = self.norm(self.dense(hidden_KD))
        size = self.vocab_size
        losses_K, found_K, _, log_2K = _word_losses(
            transformed_KE, self.words, self.bias, labels_K, size, shown_K=shown_K
        )
        return losses_K, found_K, log_2K


class PairHead(nn.Module):
    """Predicts whether two segments follow each other: BERT's pooler, then two logits."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.pooler = nn.Linear(config.width, config.width)
        self.classifier = nn.Linear(config.width, 2)

    def forward(self, first_BD: Tensor) -> Tensor:
        """Logits [B, 2] of labels 0 and 1; first_BD: the hidden vector of each row's [CLS]."""
        logits_B2: Tensor = self.classifier(torch.tanh(self.pooler(first_BD)))
        return logits_B2


def word_losses(
    hidden_KD: Tensor, words_WD: Tensor, bias_W: Tensor, labels_K: Tensor, vocab_size: int
) -> tuple[Tensor, Tensor]:
    """Cross-entropy of softmax(hidden words^T + bias) over the first `vocab_size` words.

    Returns losses [K] in float32 and whether the label has the highest logit [K]. The gradient of
    the padding words is exactly 0.
    """
    losses_K, found_K, _, _ = _word_losses(hidden_KD, words_WD, bias_W, labels_K, vocab_size)
    return losses_K, found_K


def _word_losses(
    hidden_KD: Tensor, words_WD: Tensor, bias_W: Tensor, labels_K: Tensor, size: int,
    draws_K: Tensor | None = None, shown_K: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """`_WordLosses` of these, told whether a gradient is recorded, which it cannot see itself."""
    results = _WordLosses.apply(  # type: ignore[no-untyped-call]
        hidden_KD, words_WD, bias_W, labels_K, size, draws_K, shown_K, torch.is_grad_enabled()
    )
    return cast(tuple[Tensor, Tensor, Tensor, Tensor], results)


class _WordLosses(torch.autograd.Function):
    """Keeps one array [K, W]: logits become probabilities, then their gradient, in place."""

    @staticmethod
    def forward(
        ctx: Any, hidden_KD: Tensor, words_WD: Tensor, bias_W: Tensor, labels_K: Tensor, size: int,
        draws_K: Tensor | None, shown_K: Tensor | None, recorded: bool,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
        # gradients are disabled in here, so `linear` alone cannot tell training from inference
        if recorded:
            logits_KW = torch.addmm(bias_W, hidden_KD, words_WD.T)
        else:
            logits_KW = linear(hidden_KD, words_WD, bias_W)
        losses_K = torch.empty(len(labels_K), device=logits_KW.device)
        found_K = torch.empty(len(labels_K), dtype=torch.bool, device=logits_KW.device)
        sampled_K = torch.empty_like(labels_K)
        log_2K = torch.empty(2, 0 if shown_K is None else len(labels_K), device=logits_KW.device)
        chunk = max(1, CHUNK_BYTES[logits_KW.device.type] // (4 * size))
        for start in range(0, len(labels_K), chunk):
            part = slice(start, start + chunk)
            logits, labels = logits_KW[part, :size], labels_K[part]
            top, likeliest = logits.max(-1)
            found_K[part] = likeliest == labels
            shifted = logits.float() - top.float()[:, None]
            of_label = shifted.gather(1, labels[:, None])[:, 0]
            if shown_K is not None:
                log_2K[0, part] = 0  # the likeliest word's, shifted
                log_2K[1, part] = shifted.gather(1, shown_K[part][:, None])[:, 0]
            total = shifted.exp_().sum(-1)
            if shown_K is not None:
                log_2K[:, part] -= total.log()
            if draws_K is not None:
                sampled_K[part] = sample(shifted, draws_K[part])
            losses_K[part] = total.log() - of_label
            if recorded:
                logits.copy_(shifted.div_(total[:, None]))
        if recorded:
            logits_KW[:, size:] = 0
            ctx.probabilities = logits_KW
            ctx.save_for_backward(hidden_KD, words_WD, labels_K)
        ctx.mark_non_differentiable(found_K, sampled_K, log_2K)
        return losses_K, found_K, sampled_K, log_2K

    @staticmethod
    def backward(ctx: Any, grad_K: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        hidden_KD, words_WD, labels_K = ctx.saved_tensors
        assert ctx.probabilities is not None, "the backward pass works in place and runs only once"
        grad_KW, ctx.probabilities = ctx.probabilities, None
        minus_one = torch.full_like(labels_K[:, None], -1, dtype=grad_KW.dtype)
        grad_KW.scatter_add_(1, labels_K[:, None], minus_one)
        grad_KW *= grad_K[:, None].to(grad_KW.dtype)
        return grad_KW @ words_WD, grad_KW.T @ hidden_KD, grad_KW.sum(0), *[None] * 5
