"""Hidden vectors at predicted positions -> their losses, without a second array of logits.

On a GPU `fusible_word_losses` is compiled, which then reads the logits once in each pass. Otherwise
`_WordLosses` works in place, in chunks that stay in a CPU's cache.

Legend: B batch, K predicted positions, D width of hidden vectors, E of embeddings, V vocabulary,
W vocabulary padded to a multiple of 128.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.config import EncoderConfig
from model.linear import LinearGelu, linear
from model.objectives.sampling import first_word, race

CHUNK_BYTES = {"cpu": 16 << 20, "cuda": 1 << 30, "meta": 1 << 30}
"""Most bytes of float32 logits processed at a time; on a CPU they should fit in its cache. Tensors
of the meta device have only shapes, and stand for those of a GPU."""


class WordLosses(NamedTuple):
    """Results for each predicted position; only `losses` has a gradient."""

    losses: Tensor
    """Cross-entropy [K] in nats, float32."""
    found: Tensor
    """True if the label is the likeliest word [K]."""
    sampled: Tensor | None
    """A word [K] drawn from the distribution; None if not asked for."""
    log_probabilities: Tensor | None
    """[2, K], of the likeliest word and of the word that is shown; None if not asked for."""


class MaskedLanguageHead(nn.Module):
    """Predicts a word: dense, GELU, LayerNorm, then the word table and a bias per word."""

    def __init__(self, config: EncoderConfig, words: nn.Embedding) -> None:
        """words: the encoder's own word table [W, E], whose weight is tied."""
        super().__init__()
        size, biases = config.embedding_width, config.biases
        self.dense = LinearGelu(config.width, size, config.activation, bias=biases)
        self.norm = nn.LayerNorm(size, config.layer_norm_eps, bias=biases)
        self.words = words.weight
        self.bias = nn.Parameter(torch.zeros(config.padded_vocab_size))
        self.vocab_size = config.vocab_size
        self.word_losses: Callable[..., WordLosses] = word_losses

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits [..., V] of hidden vectors [..., D]."""
        transformed = self.norm(self.dense(hidden))
        return linear(transformed, self.words, self.bias)[..., : self.vocab_size]

    def forward(
        self,
        hidden_KD: Tensor,
        labels_K: Tensor,
        draws_K: Tensor | None = None,
        shown_K: Tensor | None = None,
    ) -> WordLosses:
        """draws_K: seeds to sample words, see `sampling.race`; shown_K: words whose probabilities
        are asked for."""
        transformed_KE = self.norm(self.dense(hidden_KD))
        waits = None if draws_K is None else race(draws_K, self.vocab_size)
        return self.word_losses(
            transformed_KE, self.words, self.bias, labels_K, self.vocab_size, waits, shown_K
        )


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
    hidden_KD: Tensor, words_WD: Tensor, bias_W: Tensor, labels_K: Tensor, vocab_size: int,
    waits_K: Tensor | None = None, shown_K: Tensor | None = None,
) -> WordLosses:  # fmt: skip
    """Cross-entropy of softmax(hidden words^T + bias) over the first `vocab_size` words.

    The gradient of the padding words is exactly 0. waits_K: of `sampling.race`, to sample.
    """
    results = _WordLosses.apply(  # type: ignore[no-untyped-call]
        hidden_KD, words_WD, bias_W, labels_K, vocab_size, waits_K, shown_K,
        torch.is_grad_enabled(),  # inside `forward` it is always False
    )  # fmt: skip
    losses_K, found_K, sampled_K, log_2K = cast(tuple[Tensor, ...], results)
    return WordLosses(
        losses_K,
        found_K,
        None if waits_K is None else sampled_K,
        None if shown_K is None else log_2K,
    )


def compiled_word_losses(backend: str | Callable[..., Any]) -> Callable[..., WordLosses]:
    """`word_losses` for a GPU."""
    return cast(
        Callable[..., WordLosses],
        torch.compile(fusible_word_losses, dynamic=False, fullgraph=True, backend=backend),
    )


def fusible_word_losses(
    hidden_KD: Tensor, words_WD: Tensor, bias_W: Tensor, labels_K: Tensor, vocab_size: int,
    waits_K: Tensor | None = None, shown_K: Tensor | None = None,
) -> WordLosses:  # fmt: skip
    """The losses of `word_losses`, in operations that a compiler fuses.

    A logit is chosen by comparing indices and not by gathering, whose gradient would be scattered.
    """
    logits_KV = F.linear(hidden_KD, words_WD, bias_W)[:, :vocab_size].float()
    words_V = torch.arange(vocab_size, device=logits_KV.device)

    def of(words_K: Tensor) -> Tensor:
        return torch.where(words_V == words_K[:, None], logits_KV, 0.0).sum(-1)

    total_K = logits_KV.logsumexp(-1)
    losses_K = total_K - of(labels_K)
    sampled_K = log_2K = None
    with torch.no_grad():
        found_K = logits_KV.argmax(-1) == labels_K
        top_K = logits_KV.amax(-1)
        if waits_K is not None:
            # Less the largest logit, exp cannot overflow; the race needs no sum of 1.
            sampled_K = first_word((logits_KV - top_K[:, None]).exp(), waits_K)
        if shown_K is not None:
            log_2K = torch.stack([top_K, of(shown_K)]) - total_K
    return WordLosses(losses_K, found_K, sampled_K, log_2K)


class _WordLosses(torch.autograd.Function):
    """Keeps one array [K, W]: logits become probabilities, then their gradient, in place."""

    @staticmethod
    def forward(
        ctx: Any, hidden_KD: Tensor, words_WD: Tensor, bias_W: Tensor, labels_K: Tensor, size: int,
        waits_K: Tensor | None, shown_K: Tensor | None, recorded: bool,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
        # Gradients are disabled in here, so `linear` cannot tell training from inference.
        if recorded:
            logits_KW = torch.addmm(bias_W, hidden_KD, words_WD.T)
        else:
            logits_KW = linear(hidden_KD, words_WD, bias_W)
        losses_K = torch.empty(len(labels_K), device=logits_KW.device)
        found_K = torch.empty(len(labels_K), dtype=torch.bool, device=logits_KW.device)
        sampled_K = torch.empty_like(labels_K)
        log_2K = torch.empty(2, 0 if shown_K is None else len(labels_K), device=logits_KW.device)
        # 4 bytes: logits are widened to float32 a chunk at a time.
        chunk = max(1, CHUNK_BYTES[logits_KW.device.type] // (4 * size))
        for start in range(0, len(labels_K), chunk):
            part = slice(start, start + chunk)
            logits, labels = logits_KW[part, :size], labels_K[part]
            top, likeliest = logits.max(-1)
            found_K[part] = likeliest == labels
            shifted = logits.float() - top.float()[:, None]  # so exp cannot overflow
            of_label = shifted.gather(1, labels[:, None])[:, 0]
            if shown_K is not None:
                log_2K[0, part] = 0  # the likeliest word's, shifted
                log_2K[1, part] = shifted.gather(1, shown_K[part][:, None])[:, 0]
            # From here on `shifted` holds probabilities, not yet normalised.
            total = shifted.exp_().sum(-1)
            if shown_K is not None:
                log_2K[:, part] -= total.log()
            if waits_K is not None:
                sampled_K[part] = first_word(shifted, waits_K[part])
            losses_K[part] = total.log() - of_label
            if recorded:
                logits.copy_(shifted.div_(total[:, None]))
        if recorded:
            logits_KW[:, size:] = 0  # padding words get no gradient
            ctx.probabilities = logits_KW
            ctx.save_for_backward(hidden_KD, words_WD, labels_K)
        ctx.mark_non_differentiable(found_K, sampled_K, log_2K)
        return losses_K, found_K, sampled_K, log_2K

    @staticmethod
    def backward(ctx: Any, grad_K: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        hidden_KD, words_WD, labels_K = ctx.saved_tensors
        assert ctx.probabilities is not None, "the backward pass works in place and runs only once"
        grad_KW, ctx.probabilities = ctx.probabilities, None
        # The gradient of the logits is their probabilities, less 1 at the label.
        minus_one = torch.full_like(labels_K[:, None], -1, dtype=grad_KW.dtype)
        grad_KW.scatter_add_(1, labels_K[:, None], minus_one)
        grad_KW *= grad_K[:, None].to(grad_KW.dtype)
        return grad_KW @ words_WD, grad_KW.T @ hidden_KD, grad_KW.sum(0), *[None] * 5
