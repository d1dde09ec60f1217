"""ELECTRA's replaced-token detection: a small generator fills masks, the encoder detects its words.

Clark et al. 2020 and google-research/electra (run_pretraining.py). The generator fills all
predicted positions, including those that kept their own word, so the discriminator cannot see how
a position was masked. A generated word equal to the original counts as original. The loss covers
every token of a sequence, special tokens included as in their code (`input_mask`), but no dead one.
Legend: T tokens, K predicted positions, D width.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.config import EncoderConfig, Initializer
from model.dropout import keys_of_places
from model.encoder import Encoder, initialize
from model.linear import LinearGelu
from model.objectives.masked_language import Inputs, LossPart, Sums, compute_word_losses, word_sums
from model.objectives.replaced_words import RestoringHead, restored_sums
from model.objectives.word_heads import MaskedLanguageHead
from model.pieces import Pieces

BINS = 1 << 16
"""Bins of the histograms of logits, from -LARGEST to LARGEST, from which ROC AUC is computed: so
many that the area is right to 1e-4 even where the logits' standard deviation is 0.02."""
LARGEST = 16.0


class ReplacedTokenHead(nn.Module):
    """Predicts whether a token is replaced: dense, GELU, and one logit."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.dense = LinearGelu(config.width, config.width, config.activation)
        self.output = nn.Linear(config.width, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits [...] that a token is replaced, from hidden vectors [..., D]."""
        logits: Tensor = self.output(self.dense(hidden))[..., 0]
        return logits


Kind = Literal["rtd", "rtd_masked", "replace_mlm", "all_tokens_mlm"]
"""The encoder's task with a generator's words (Clark et al. 2020, sec. 3.5): judge every token
(ELECTRA), judge only those at the masked positions ("ELECTRA 15 %"), or restore the words, see
`replaced_words`."""
PARTS: dict[Kind, tuple[str, Literal["predictions", "tokens"]]] = {
    "rtd": ("rtd", "tokens"),
    "rtd_masked": ("rtd", "predictions"),
    "replace_mlm": ("words", "predictions"),
    "all_tokens_mlm": ("words", "tokens"),
}
"""The name of the encoder's part of the loss, and what it is a mean over."""


class ReplacedTokenModel(nn.Module):
    """A generator fills masked positions; the encoder detects or restores the changed words."""

    def __init__(
        self,
        config: EncoderConfig,
        generator: EncoderConfig | None,
        *,
        weight: float,
        seed: int,
        initializer: Initializer = "normal",
        kind: Kind = "rtd",
        own_embeddings: bool = False,
    ) -> None:
        """config: the discriminator, which is the encoder that is kept; generator: None if one
        encoder does both; weight: of the encoder's part relative to mlm; seed, initializer: see
        `model.encoder.initialize`.

        The generator shares the encoder's whole embedding block (words, positions, segments,
        LayerNorm), unless it has its `own_embeddings`, and its output words are its input words.
        """
        super().__init__()
        name, per = PARTS[kind]
        self.parts = (
            LossPart(name="mlm", weight=1.0, per="predictions"),
            LossPart(name=name, weight=weight, per=per),
        )
        self.config, self.kind = config, kind
        self.generator_config = generator or config
        self.encoder = Encoder(config)
        self.generator = Encoder(generator) if generator else None
        self.own_embeddings = own_embeddings
        embeddings = self.encoder.embeddings
        if self.generator and own_embeddings:
            embeddings = self.generator.embeddings
        elif self.generator:
            share_parameters(self.encoder.embeddings, self.generator.embeddings)
        self.head = MaskedLanguageHead(self.generator_config, embeddings.words)
        self.detection = ReplacedTokenHead(config) if name == "rtd" else None
        words, copies = self.encoder.embeddings.words, kind == "all_tokens_mlm"
        self.restoring = RestoringHead(config, words, copies=copies) if name == "words" else None
        outputs = [self.detection.output] if self.detection else []
        # After sharing, so that a shared table is drawn once.
        initialize(self, config, seed, initializer, outputs)

    def encoders(self) -> list[Encoder]:
        """The discriminator, and the generator if it is a separate encoder."""
        return [self.encoder, *([self.generator] if self.generator else [])]

    def forward(self, inputs: Inputs) -> Sums:
        """The sums of mlm (the generator's) and of the encoder's part; for rtd in eval mode also a
        histogram of logits.

        Without draws nothing is replaced, and only the sums of mlm are returned.
        """
        if inputs.words_only:
            return compute_word_losses(self.generator or self.encoder, self.head, inputs)
        seen = inputs.pieces, inputs.segment_ids_T
        of_generator_T, of_encoder_T = None, None
        if inputs.dropout_keys_T is not None:
            of_generator_T, of_encoder_T = keys_of_places(inputs.dropout_keys_T, 2)
        hidden_TD = self._generate(inputs.input_ids_T, *seen, of_generator_T)
        hidden_KD = hidden_TD.index_select(0, inputs.positions_K)
        if inputs.draws_K is None:
            losses_K, found_K, *_ = self.head(hidden_KD, inputs.labels_K)
            return word_sums(losses_K, found_K, inputs)
        losses_K, found_K, words_K, _ = self.head(hidden_KD, inputs.labels_K, inputs.draws_K)
        sums = word_sums(losses_K, found_K, inputs)
        shown_T, replaced_T = replace_tokens(inputs, words_K)
        hidden_TD = self.encoder(shown_T, *seen, dropout_keys_T=of_encoder_T)
        weights_T = token_weights(inputs)
        if self.restoring:
            return sums | restored_sums(self.restoring, hidden_TD, shown_T, weights_T, inputs)
        return sums | self._judge(hidden_TD, replaced_T, weights_T, inputs)

    def _judge(
        self, hidden_TD: Tensor, replaced_T: Tensor, weights_T: Tensor, inputs: Inputs
    ) -> Sums:
        """The sums of rtd, over all tokens or the predicted positions."""
        assert self.detection
        hidden, changed, weights = hidden_TD, replaced_T, weights_T
        if self.kind == "rtd_masked":
            hidden = hidden_TD.index_select(0, inputs.positions_K)
            changed, weights = replaced_T[inputs.positions_K], inputs.weights_K
        logits = self.detection(hidden)
        sums = detection_sums(logits, changed, weights)
        if not self.training:
            sums["rtd_histogram"] = histograms(logits, changed, weights)
        return sums

    def detect(
        self, input_ids_T: Tensor, pieces: Pieces, segment_ids_T: Tensor | None = None
    ) -> Tensor:
        """Logits [T] that each token is replaced; only for a model that detects."""
        assert self.detection
        logits: Tensor = self.detection(self.encoder(input_ids_T, pieces, segment_ids_T))
        return logits

    def restored(
        self, input_ids_T: Tensor, pieces: Pieces, segment_ids_T: Tensor | None = None
    ) -> Tensor:
        """The encoder's logits of words [T, V], before any copying; only for a model that
        restores."""
        assert self.restoring
        return self.restoring.words.logits(self.encoder(input_ids_T, pieces, segment_ids_T))

    def logits(
        self, input_ids_T: Tensor, pieces: Pieces, segment_ids_T: Tensor | None = None
    ) -> Tensor:
        """The generator's logits [T, V] at every token."""
        return self.head.logits(self._generate(input_ids_T, pieces, segment_ids_T))

    def _generate(
        self,
        input_ids_T: Tensor,
        pieces: Pieces,
        segment_ids_T: Tensor | None,
        dropout_keys_T: Tensor | None = None,
    ) -> Tensor:
        encoder = self.generator or self.encoder
        hidden_TD: Tensor = encoder(
            input_ids_T, pieces, segment_ids_T, dropout_keys_T=dropout_keys_T
        )
        return hidden_TD


def share_parameters(owner: nn.Module, other: nn.Module) -> None:
    """Make `other` use the parameters of `owner`, a module of the same structure."""
    for ours, theirs in zip(owner.modules(), other.modules(), strict=True):
        for name, parameter in ours.named_parameters(recurse=False):
            setattr(theirs, name, parameter)


def replace_tokens(inputs: Inputs, words_K: Tensor) -> tuple[Tensor, Tensor]:
    """The discriminator's input [T], and which tokens differ from the original [T], float32.

    words_K: sampled from the generator.
    """
    ids_T, positions_K = inputs.input_ids_T, inputs.positions_K
    used_K = inputs.weights_K > 0
    # Unused slots point at the very first token: they write back what is there.
    shown_T = ids_T.scatter(0, positions_K, torch.where(used_K, words_K, ids_T[positions_K]))
    changed_T = torch.zeros(len(ids_T), device=ids_T.device)
    # Unused slots write 0 for that token, which is right: it is never predicted.
    changed_T.scatter_(0, positions_K, ((words_K != inputs.labels_K) & used_K).float())
    return shown_T, changed_T


def token_weights(inputs: Inputs) -> Tensor:
    """1 for tokens of sequences [T], 0 for dead ones; float32."""
    if inputs.token_weights_T is not None:
        return inputs.token_weights_T
    return torch.ones(len(inputs.input_ids_T), device=inputs.input_ids_T.device)


def detection_sums(logits: Tensor, replaced: Tensor, weights: Tensor) -> Sums:
    """Sums of rtd: counts of tokens that are replaced, suspected (logit above 0), and both.

    The shape may be any. weights: 1 for tokens of sequences, 0 for dead ones.
    """
    logits = logits.float()
    losses = F.binary_cross_entropy_with_logits(logits, replaced, reduction="none")
    suspected = (logits.detach() > 0).float()  # as in their code, a logit of 0 is not suspected
    return {
        "rtd_loss": (losses * weights).sum(),
        "rtd_correct": ((suspected == replaced) * weights).sum(),
        "rtd_replaced": (replaced * weights).sum(),
        "rtd_suspected": (suspected * weights).sum(),
        "rtd_found": (suspected * replaced * weights).sum(),
    }


def histograms(logits: Tensor, replaced: Tensor, weights: Tensor) -> Tensor:
    """Histograms [2, BINS] of logits: original tokens, then replaced tokens; float64.

    Arguments as those of `detection_sums`. A logit that is nan makes its bin nan, and so the area.
    """
    scaled = (logits.detach().double() + LARGEST) * (BINS / (2 * LARGEST))
    # nan has no bin of its own: as an index it would be outside of all
    bins = scaled.nan_to_num().clamp(0, BINS - 1).long() + BINS * replaced.long()
    counts = torch.zeros(2 * BINS, dtype=torch.float64, device=bins.device)
    # float64, as float32 does not count beyond 2^24.
    each = weights.double().masked_fill(scaled.isnan(), math.nan)
    counts.scatter_add_(0, bins.flatten(), each.flatten())
    return counts.view(2, BINS)


def area_under_curve(original: Tensor, changed: Tensor) -> float:
    """Probability that a replaced token has a higher logit than an original one; ties count half.

    original, changed: histograms [BINS]. 0.5 is chance; nan if either is empty.
    """
    below = original.cumsum(0) - original  # original tokens of lower bins
    return float((changed * (below + original / 2)).sum() / (original.sum() * changed.sum()))
