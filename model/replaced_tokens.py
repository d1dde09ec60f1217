"""ELECTRA's question to every token: is it the text's own, or did a small generator put it there?

Clark et al. 2020 and google-research/electra (run_pretraining.py). The generator's words go to all
predicted positions, also to those that showed their own word, so what was masked how is no longer
to be seen. A word that happens to be the original one counts as original. Asked is every token of
a sequence, special tokens included as in their code, where the loss is over `input_mask`; no pads.

Legend: B batch, S sequence, K predicted positions, D width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.config import EncoderConfig
from model.encoder import Encoder, initialize
from model.heads import MaskedLanguageHead
from model.layers import gelu
from model.objectives import Inputs, LossPart, Sums, word_sums

BINS = 512
"""Of the histograms of logits, from -LARGEST to LARGEST: for the area under the ROC curve."""
LARGEST = 16.0


class ReplacedTokenHead(nn.Module):
    """Is it replaced: dense, GELU, and one number."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.width, config.width)
        self.activation = gelu(config.activation)
        self.output = nn.Linear(config.width, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits [...] of being replaced, from hidden vectors [..., D]."""
        logits: Tensor = self.output(self.activation(self.dense(hidden)))[..., 0]
        return logits


class ReplacedTokenModel(nn.Module):
    """A generator fills masked positions, and the encoder tells its words from the text's."""

    def __init__(
        self, config: EncoderConfig, generator: EncoderConfig | None, *, weight: float, seed: int
    ) -> None:
        """config: of the encoder that is kept, the discriminator; generator: None for one encoder
        that does both; weight: of rtd beside mlm; seed: see `model.encoder.initialize`.

        The generator's whole embedding block (words, positions, segments, LayerNorm) is the
        encoder's own.
        """
        super().__init__()
        self.parts = (
            LossPart(name="mlm", weight=1.0, per="predictions"),
            LossPart(name="rtd", weight=weight, per="tokens"),
        )
        self.config = config
        self.generator_config = generator or config
        self.encoder = Encoder(config)
        self.generator = Encoder(generator) if generator else None
        if self.generator:
            share_parameters(self.encoder.embeddings, self.generator.embeddings)
        self.head = MaskedLanguageHead(self.generator_config, self.encoder.embeddings.words)
        self.detection = ReplacedTokenHead(config)
        initialize(self, config, seed)

    def encoders(self) -> list[Encoder]:
        """The discriminator, and the generator where it is another one."""
        return [self.encoder, *([self.generator] if self.generator else [])]

    def forward(self, inputs: Inputs) -> Sums:
        """The sums of mlm, which are the generator's, and of rtd; in eval mode a histogram too.

        Without draws there is nothing to detect: those of mlm alone.
        """
        seen = inputs.lengths_B, inputs.segment_ids_BS, inputs.cu_seqlens
        hidden_BSD = self._generate(inputs.input_ids_BS, *seen)
        hidden_KD = hidden_BSD.flatten(0, 1).index_select(0, inputs.positions_K)
        if inputs.draws_K is None:
            losses_K, found_K = self.head(hidden_KD, inputs.labels_K)
            return word_sums(losses_K, found_K, inputs)
        losses_K, found_K, words_K = self.head.sample(hidden_KD, inputs.labels_K, inputs.draws_K)
        shown_BS, replaced_BS = replaced(inputs, words_K)
        hidden_BSD = self.encoder(shown_BS, *seen)
        logits_BS = self.detection(hidden_BSD)
        weights_BS = token_weights(inputs)
        sums = word_sums(losses_K, found_K, inputs)
        sums |= detection_sums(logits_BS, replaced_BS, weights_BS)
        if not self.training:
            sums["rtd_histogram"] = histograms(logits_BS, replaced_BS, weights_BS)
        return sums

    def detect(
        self, input_ids_BS: Tensor, lengths_B: Tensor | None, segment_ids_BS: Tensor | None = None
    ) -> Tensor:
        """Logits [B, S] of each token to be replaced."""
        logits: Tensor = self.detection(self.encoder(input_ids_BS, lengths_B, segment_ids_BS))
        return logits

    def logits(
        self, input_ids_BS: Tensor, lengths_B: Tensor | None, segment_ids_BS: Tensor | None = None
    ) -> Tensor:
        """The generator's logits [B, S, V] at every position."""
        return self.head.logits(self._generate(input_ids_BS, lengths_B, segment_ids_BS))

    def _generate(
        self,
        input_ids_BS: Tensor,
        lengths_B: Tensor | None,
        segment_ids_BS: Tensor | None,
        cu_seqlens: Tensor | None = None,
    ) -> Tensor:
        hidden_BSD: Tensor = (self.generator or self.encoder)(
            input_ids_BS, lengths_B, segment_ids_BS, cu_seqlens
        )
        return hidden_BSD


def share_parameters(owner: nn.Module, other: nn.Module) -> None:
    """Make the parameters of `other` those of `owner`, a module of the same kind."""
    for ours, theirs in zip(owner.modules(), other.modules(), strict=True):
        for name, parameter in ours.named_parameters(recurse=False):
            setattr(theirs, name, parameter)


def replaced(inputs: Inputs, words_K: Tensor) -> tuple[Tensor, Tensor]:
    """What the discriminator sees [B, S], and which of it is not the original [B, S], as float32.

    words_K: of the generator.
    """
    ids, positions_K = inputs.input_ids_BS.flatten(), inputs.positions_K
    used = inputs.weights_K > 0
    # Unused slots point at the first token of all: they write what is there.
    shown = ids.scatter(0, positions_K, torch.where(used, words_K, ids[positions_K]))
    changed = torch.zeros(len(ids), device=ids.device)
    changed.scatter_(0, positions_K, ((words_K != inputs.labels_K) & used).float())
    return shown.view_as(inputs.input_ids_BS), changed.view_as(inputs.input_ids_BS)


def token_weights(inputs: Inputs) -> Tensor:
    """1 for the tokens of sequences [B, S], 0 for pads and for rows of filling; float32."""
    weights_BS = torch.ones(inputs.input_ids_BS.shape, device=inputs.input_ids_BS.device)
    if inputs.row_weights_B is not None:
        weights_BS = weights_BS * inputs.row_weights_B[:, None]
    if inputs.lengths_B is None:
        return weights_BS
    places_S = torch.arange(weights_BS.shape[1], device=weights_BS.device)
    return weights_BS * (places_S < inputs.lengths_B[:, None])


def detection_sums(logits_BS: Tensor, replaced_BS: Tensor, weights_BS: Tensor) -> Sums:
    """Sums of rtd; replaced, suspected and found (both) are tokens.

    weights_BS: 1 for tokens of sequences, 0 for pads and filling.
    """
    logits = logits_BS.float()
    losses = F.binary_cross_entropy_with_logits(logits, replaced_BS, reduction="none")
    suspected = (logits.detach() > 0).float()  # as theirs: no suspicion at 0
    return {
        "rtd_loss": (losses * weights_BS).sum(),
        "rtd_correct": ((suspected == replaced_BS) * weights_BS).sum(),
        "rtd_replaced": (replaced_BS * weights_BS).sum(),
        "rtd_suspected": (suspected * weights_BS).sum(),
        "rtd_found": (suspected * replaced_BS * weights_BS).sum(),
    }


def histograms(logits_BS: Tensor, replaced_BS: Tensor, weights_BS: Tensor) -> Tensor:
    """Tokens [2, BINS] by their logit: the original ones, and the replaced ones; float64."""
    scaled = (logits_BS.detach().double() + LARGEST) * (BINS / (2 * LARGEST))
    bins = scaled.clamp(0, BINS - 1).long() + BINS * replaced_BS.long()
    counts = torch.zeros(2 * BINS, dtype=torch.float64, device=bins.device)
    counts.scatter_add_(0, bins.flatten(), weights_BS.double().flatten())
    return counts.view(2, BINS)


def area_under_curve(original: Tensor, changed: Tensor) -> float:
    """How often a replaced token has the higher logit of two; a tie in a bin counts half.

    original, changed: histograms [BINS]. 0.5 is guessing; nan when there are none of either.
    """
    below = original.cumsum(0) - original
    return float((changed * (below + original / 2)).sum() / (original.sum() * changed.sum()))
