"""The settings that say how a model is trained: every section of a Run but `data`, and their rules.

Everything here may change what is learned, except where a field says otherwise; how memory and
nodes are used is set elsewhere (`ds_configs/`, `slurm/`). Rules that involve other sections are in
`rules.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from pipeline.config.data_settings import SequenceLength
from pipeline.config.schema import Count, CountOrZero, Range

Positive = Annotated[float, Range("(0, inf)")]
PositiveShare = Annotated[float, Range("(0, 1]")]
BelowOne = Annotated[float, Range("[0, 1)")]
Tiny = Annotated[float, Range("(0, 1)")]
NotNegative = Annotated[float, Range("[0, inf)")]


@dataclass(frozen=True, kw_only=True, slots=True)
class EncoderSettings:
    """The network below the heads; its vocabulary is `data.vocab_size`."""

    layers: Count
    """Transformer layers."""
    width: Count
    """Size of a hidden vector."""
    embedding_width: CountOrZero
    """Size of an embedding, with a matrix from it to the first layer (ALBERT); 0: `width`, none."""
    heads: Count
    """Attention heads per layer; each is width / heads wide."""
    feed_forward: Count
    """Inner size of the feed-forward part of a layer."""
    sharing: Literal["none", "all", "attention", "feed_forward"]
    """What the layers of a group share: nothing, all weights, or those of one part."""
    groups: Count
    """Groups of neighbouring layers that share, of equal size; 1 with sharing=none."""
    activation: Literal["gelu", "gelu_tanh"]
    """Non-linearity of the feed-forward part and the heads: GELU, exact or by tanh."""
    dropout: BelowOne
    """Probability of dropping a hidden unit, and an attention weight."""
    layer_norm_eps: Tiny
    """Added to the variance in every LayerNorm."""
    positions: Annotated[int, Range("[3, 65535]")]
    """Longest sequence that the position table serves, in tokens."""
    position_offset: CountOrZero
    """Row of the position table for the first token; the table has positions + offset rows."""
    segment_types: Count
    """Rows of the segment (token type) table."""
    initializer_range: Positive
    """Standard deviation of the normal distribution that weights are initialized from."""

    def contradictions(self) -> Iterator[str]:
        """Sizes that do not divide, or sharing that has no effect."""
        if self.heads > 0 and self.width % self.heads:
            yield (
                f"encoder.width={self.width} does not divide into encoder.heads={self.heads}; "
                "choose a number of heads that divides it"
            )
        if self.embedding_width >= self.width:
            yield (
                f"encoder.embedding_width={self.embedding_width} is not below encoder.width="
                f"{self.width}; lower it to factorise the word table, or set it to 0"
            )
        if self.sharing == "none" and self.groups != 1:
            yield (
                f"encoder.groups={self.groups} has no effect with encoder.sharing=none; set it to "
                "1, or encoder.sharing to all, attention or feed_forward"
            )
        if self.groups > 0 and self.layers % self.groups:
            legal = [n for n in range(1, self.layers + 1) if self.layers % n == 0]
            yield (
                f"encoder.layers={self.layers} does not divide into encoder.groups={self.groups} "
                f"of equal size; set encoder.groups to one of {', '.join(map(str, legal))}"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class GeneratorSettings:
    """ELECTRA's generator; it has the encoder's embeddings, heads of 64 and 4 x its own width."""

    layers: PositiveShare
    """Its layers, as a share of the encoder's."""
    width: PositiveShare
    """Size of its hidden vectors, as a share of the encoder's."""
    tied: bool
    """Whether it is the encoder itself, with layers=1 and width=1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectiveSettings:
    """What is predicted."""

    kind: Literal["mlm", "mlm_pair", "mlm_sbo", "rtd"]
    """mlm: the original ids at the predicted positions; mlm_pair: data.segments.label too; mlm_sbo:
    those ids again, from outside their span; rtd: which tokens a generator has replaced."""
    pair_weight: Positive
    """Weight of the pairs' part of the loss, mlm's being 1; only kind=mlm_pair reads it."""
    boundary_weight: Positive
    """Weight of the span boundary part, mlm's being 1; only kind=mlm_sbo reads it."""
    detection_weight: Positive
    """Weight of the detection part, the generator's mlm being 1; only kind=rtd reads it."""
    generator: GeneratorSettings
    """What replaces tokens; only kind=rtd reads it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerSettings:
    """How gradients become updates."""

    kind: Literal["lamb", "adamw"]
    """LAMB (You et al. 2020) or Adam with decoupled weight decay."""
    lamb_variant: Literal["paper", "nvlamb", "albert", "deepspeed"]
    """Which published LAMB; kind=adamw does not read it."""
    peak_lr: Positive
    """Learning rate at the end of warm-up."""
    beta1: BelowOne
    """Decay of the gradient's running mean, per step."""
    beta2: BelowOne
    """Decay of the squared gradient's running mean, per step."""
    eps: Tiny
    """Added to the root of the squared gradient's mean."""
    weight_decay: BelowOne
    """Decoupled weight decay of matrices and embeddings."""
    decay_vectors: bool
    """Whether biases and LayerNorm weights decay too."""
    adapt_vectors: bool
    """Whether LAMB's trust ratio scales their updates too; kind=adamw does not read it."""
    clip_norm: NotNegative
    """Largest norm of the global gradient; 0 clips nothing."""

    def contradictions(self) -> Iterator[str]:
        """A LAMB variant that adapts what `adapt_vectors` excludes."""
        scales_all = self.kind == "lamb" and self.lamb_variant in ("nvlamb", "deepspeed")
        if scales_all and not self.adapt_vectors:
            yield (
                f"optimizer.lamb_variant={self.lamb_variant} scales every weight by its trust "
                "ratio, optimizer.adapt_vectors=false excludes biases and LayerNorms; set "
                "optimizer.adapt_vectors=true or optimizer.lamb_variant=paper"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleSettings:
    """Learning rate over the run's steps."""

    kind: Literal["linear", "polynomial", "inverse_sqrt", "warmup_stable_decay", "constant"]
    """Rises from 0 to optimizer.peak_lr; `training.schedule` says what each kind does then."""
    warmup_steps: CountOrZero
    """Optimizer steps of the rise."""
    end_lr: NotNegative
    """Learning rate at the last step; kind=constant does not read it, inverse_sqrt stays above."""
    power: Positive
    """Exponent of kind=polynomial and of warmup_stable_decay's decay: 1 is a straight line."""
    decay_steps: CountOrZero
    """Last optimizer steps, in which kind=warmup_stable_decay decays; others do not read it."""

    def contradictions(self) -> Iterator[str]:
        """A kind that needs a warm-up."""
        if self.kind == "inverse_sqrt" and self.warmup_steps == 0:
            yield (
                "schedule.kind=inverse_sqrt measures time in warm-ups, schedule.warmup_steps=0 has "
                "none; set schedule.warmup_steps or another kind"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchSettings:
    """Sequences per step."""

    sequences: Count
    """Sequences per optimizer step, over all ranks; batch.step_tokens > 0 replaces it."""
    step_tokens: CountOrZero
    """Tokens per optimizer step, as the number of sequences that hold them on average; 0: use
    `sequences`."""
    per_device: Count
    """Most rows on one device at a time: memory and speed, never what is learned."""
    packing: Literal["none", "rows"]
    """One sequence in a row of the model's input, or as many as fit, each computed as if it were
    alone: speed where sequences are short, never what is learned."""
    attention: Literal["row", "document"]
    """What a token sees: its sequence, or only its own document in it, with positions from 0."""
    warmup_steps: CountOrZero
    """Optimizer steps over which a step grows from `first_sequences` to `sequences`; 0: none."""
    first_sequences: Count
    """Sequences of the first step, and what it grows by; warmup_steps=0 does not read it."""
    order_window: Count
    """Blocks of 1,024 rows that steps draw from, mixed; data.order=global does not read it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SpikeSettings:
    """What counts as a spike of the loss, and what is done about it, see `training.recovery`."""

    deviations: NotNegative
    """Standard deviations, by a robust estimate, above the usual loss; 0 looks for no spikes."""
    window: Annotated[int, Range("[3, 10000]")]  # a state.json of some 200 kB
    """Optimizer steps of a phase whose losses say what is usual; as many first steps of a phase are
    never spikes."""
    rollbacks: CountOrZero
    """Most times that the run rolls back and skips the data around a spike; 0: only reports it."""
    skip_before: CountOrZero
    """Optimizer steps before the spike whose sequences are skipped with its own."""
    skip_after: CountOrZero
    """Optimizer steps after the spike whose sequences would have followed and are skipped too."""

    def contradictions(self) -> Iterator[str]:
        """An answer to spikes that are never looked for."""
        if self.rollbacks and self.deviations == 0:
            yield (
                f"spikes.rollbacks={self.rollbacks} answers spikes, spikes.deviations=0 looks for "
                "none; set spikes.deviations, e.g. to 10"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class ValidationSettings:
    """When held-out documents are scored."""

    every: Count
    """Optimizer steps between evaluations."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointSettings:
    """When the run is saved."""

    every: Count
    """Optimizer steps between checkpoints; the last step always has one."""
    keep: Count
    """Newest checkpoints kept."""
    keep_every: CountOrZero
    """Checkpoints of steps that it divides are kept for ever; 0 keeps none of them."""

    def contradictions(self) -> Iterator[str]:
        """Checkpoints to keep that are never saved."""
        if self.every > 0 and self.keep_every % self.every:
            yield (
                f"checkpoint.keep_every={self.keep_every} is not a multiple of checkpoint.every="
                f"{self.every}, so most of its steps are never saved; make it one, or 0"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class LoggingSettings:
    """When metrics are written."""

    every: Count
    """Optimizer steps between lines of metrics."""
    hang_seconds: Count
    """A rank that finishes no micro-batch for this long counts as hung, and ends the job."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlierPhase:
    """A part of a run before its last one, at another sequence length or batch."""

    steps: Count
    """Optimizer steps of this phase."""
    sequence_length: SequenceLength
    """Replaces data.sequence_length."""
    sequences: Count
    """Replaces batch.sequences; batch.per_device becomes as many rows as hold the same tokens."""
