"""Training settings: every section of a Run except `data` and `encoder`, and the rules within each.

Every setting here can change what is learned unless its docstring says otherwise. Memory and nodes
are configured elsewhere (`ds_configs/`, `slurm/`). Rules across sections are in `rules.py`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from pipeline.config.data_settings import SequenceLength
from pipeline.config.schema import (
    BelowOne,
    Count,
    CountOrZero,
    Legacy,
    Positive,
    Range,
    Share,
    Tiny,
)

GENERATOR_KINDS = ("rtd", "rtd_masked", "replace_mlm", "all_tokens_mlm")
"""Values of objective.kind with a generator."""
BOARDS = ("tensorboard", "wandb")
"""Values of logging.to."""
MOST_MARKS = 1_000
"""Counts in an item of `checkpoint.at_words`, at most."""
PositiveShare = Annotated[float, Range("(0, 1]")]
NotNegative = Annotated[float, Range("[0, inf)")]


@dataclass(frozen=True, kw_only=True, slots=True)
class GeneratorSettings:
    """ELECTRA's generator, which has heads of 64 and a feed-forward part of 4 x width."""

    layers: PositiveShare
    """Layers of the generator, as a share of the encoder's."""
    width: PositiveShare
    """Hidden size of the generator, as a share of the encoder's."""
    tied: bool
    """Use the encoder itself as the generator; needs layers=1 and width=1."""
    embeddings: Literal["shared", "own"]
    """The encoder's words, positions and segments, or own ones of the generator's width."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectiveSettings:
    """What the model predicts."""

    kind: Literal[
        "mlm", "mlm_pair", "mlm_sbo", "rtd", "rtd_masked", "replace_mlm", "all_tokens_mlm"
    ]  # fmt: skip
    """mlm: masked tokens; mlm_pair: also data.segments.label (BERT, ALBERT); mlm_sbo: masked tokens
    also from the boundary of their span (SpanBERT); rtd: replaced token detection (ELECTRA), with
    rtd_masked only at masked positions; replace_mlm: masked tokens, shown as a generator's
    words; all_tokens_mlm: every token of that input (ELECTRA's comparisons)."""
    pair_weight: Positive
    """Weight of the pair loss, relative to the mlm loss; only kind=mlm_pair reads it."""
    boundary_weight: Positive
    """Weight of the span boundary loss, relative to the mlm loss; only kind=mlm_sbo reads it."""
    detection_weight: Positive
    """Weight of the detection loss, relative to the generator's mlm; kind=rtd and kind=rtd_masked
    read it."""
    words_weight: Positive
    """Weight of the loss of restored words, relative to the generator's mlm; kind=replace_mlm and
    kind=all_tokens_mlm read it."""
    generator: GeneratorSettings
    """Model that replaces tokens, of every kind that has a generator."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerSettings:
    """How gradients become updates."""

    kind: Literal["lamb", "adamw", "stable_adamw"]
    """LAMB (You et al. 2020), Adam with decoupled weight decay, or StableAdamW, which is AdamW with
    AdaFactor's update clipping for each weight tensor (Wortsman et al. 2023)."""
    lamb_variant: Literal["paper", "nvlamb", "albert", "deepspeed"]
    """Published variant of LAMB to follow; only kind=lamb reads it."""
    peak_lr: Positive
    """Peak learning rate, at the end of warm-up."""
    beta1: BelowOne
    """Decay rate of the first moment (running mean of the gradient), per step."""
    beta2: BelowOne
    """Decay rate of the second moment (running mean of the squared gradient), per step."""
    eps: Tiny
    """Epsilon, added to the square root of the second moment."""
    weight_decay: BelowOne
    """Decoupled weight decay of matrices and embeddings, multiplied by the learning rate."""
    decay_vectors: bool
    """Apply weight decay to biases and LayerNorm weights too."""
    adapt_vectors: bool
    """Apply LAMB's trust ratio to biases and LayerNorm weights too; only kind=lamb reads it."""
    clip_norm: NotNegative
    """Largest global gradient norm; larger gradients are scaled down. 0: no clipping."""
    bias_correction: bool
    """Divide Adam's moments, which start at zero, by 1 - beta**updates (kind=adamw). Google's BERT
    and ELECTRA do not. LAMB's is that of its variant, StableAdamW always corrects."""

    def contradictions(self) -> Iterator[str]:
        """A LAMB variant that adapts what `adapt_vectors` excludes, or a kind that corrects
        otherwise."""
        if self.kind == "stable_adamw" and not self.bias_correction:
            yield (
                "optimizer.bias_correction=false is for optimizer.kind=adamw; StableAdamW corrects "
                "its moments, or its RMS would clip the first updates: add --set "
                "optimizer.bias_correction=true, or --set optimizer.kind=adamw"
            )
        if self.kind == "lamb" and not self.bias_correction:
            yield (
                "optimizer.bias_correction=false is for optimizer.kind=adamw; LAMB's variants "
                "decide this: add --set optimizer.bias_correction=true --set "
                "optimizer.lamb_variant=albert for LAMB without bias correction, --set "
                f"optimizer.bias_correction=true for {self.lamb_variant}'s, or --set "
                "optimizer.kind=adamw"
            )
        # As their code does: with exclusions they would be other optimizers of the same name.
        scales_all = self.kind == "lamb" and self.lamb_variant in ("nvlamb", "deepspeed")
        if scales_all and not self.adapt_vectors:
            yield (
                f"optimizer.lamb_variant={self.lamb_variant} applies the trust ratio to every "
                "weight, but optimizer.adapt_vectors=false excludes biases and LayerNorms; add "
                "--set optimizer.adapt_vectors=true, or --set optimizer.lamb_variant=paper"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleSettings:
    """Learning rate over the optimizer steps of the run."""

    kind: Literal[
        "linear",
        "linear_from_start",
        "linear_times_warmup",
        "polynomial",
        "cosine",
        "inverse_sqrt",
        "warmup_stable_decay",
        "constant",
    ]
    """Shape of the decay after a linear warm-up from 0 to optimizer.peak_lr. linear falls from the
    peak; linear_from_start (BERT, ALBERT) and linear_times_warmup (ELECTRA) from the first step."""
    warmup_steps: CountOrZero
    """Optimizer steps of the learning rate's warm-up."""
    end_lr: NotNegative
    """Final learning rate; kind=inverse_sqrt does not fall below it, kind=constant ignores it."""
    power: Positive
    """Exponent of the decay for kind=polynomial, and of decay_shape=power; 1 is linear."""
    decay_steps: CountOrZero
    """Optimizer steps of the decay at the end; only kind=warmup_stable_decay reads it."""
    decay_shape: Literal["power", "one_minus_sqrt"]
    """Shape of the decay of kind=warmup_stable_decay: a power of what is left of it, or 1 minus the
    square root of what has passed."""

    def contradictions(self) -> Iterator[str]:
        """A kind that needs a warm-up."""
        if self.kind == "inverse_sqrt" and self.warmup_steps == 0:
            yield (
                "schedule.kind=inverse_sqrt needs a warm-up, and schedule.warmup_steps=0 gives "
                "none; add, for instance, --set schedule.warmup_steps=1000, or --set "
                "schedule.kind=linear"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class CorpusWeight:
    """The weight of one corpus in a mixture."""

    corpus: str
    """Name of the corpus, as `pipeline.inspect` shows it."""
    weight: Positive
    """Its share of the sequences, relative to the other weights."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchSettings:
    """Sequences per step."""

    sequences: Count
    """Global batch size in sequences per optimizer step; batch.step_tokens > 0 replaces it."""
    step_tokens: CountOrZero
    """Global batch size in tokens per optimizer step: takes the number of sequences that hold as
    many tokens on average; 0: use `sequences`."""
    per_device: Count
    """Most rows per micro-batch on each device; on a GPU, most tokens, as of so many full rows.
    Affects memory and speed, never what is learned."""
    attention: Literal["row", "document"]
    """What a token attends to: its sequence, or only its document in it, with positions from 0."""
    warmup_steps: CountOrZero
    """Optimizer steps over which the batch grows from `first_sequences` to `sequences`; 0: none."""
    first_sequences: Count
    """Sequences of the first step, and growth increment; warmup_steps=0 does not read it."""
    order_window: Count
    """Shuffle window in blocks of 1,024 rows; data.order=global does not read it."""
    mixture: tuple[CorpusWeight, ...]
    """Shares of the corpora in the sequences that are read, and no other corpus. []: by
    `mixture_exponent`."""
    mixture_exponent: Annotated[Share, Legacy(1.0)]
    """Corpora are read in proportion to their training tokens to this power: 1 reads all sequences
    equally often, 0 all corpora."""
    mixture_over: Annotated[Literal["corpora", "languages"], Legacy("corpora")]
    """What `mixture_exponent` weighs: each corpus, or each language, as the shards record it, whose
    corpora are then read by size; a corpus without a language counts as one."""
    corpora: Annotated[tuple[str, ...], Legacy(())]
    """Names of the corpora that are read, as `pipeline.inspect` shows them; []: all of --data, or
    those of `mixture`."""

    @property
    def is_mixed(self) -> bool:
        """True if some corpora are read more often than others."""
        return bool(self.mixture) or self.mixture_exponent != 1

    @property
    def named(self) -> tuple[str, ...]:
        """The corpora that are read; empty: all."""
        return tuple(entry.corpus for entry in self.mixture) or self.corpora

    def contradictions(self) -> Iterator[str]:
        """A corpus named twice, and two ways to weigh the corpora."""
        path = "batch.mixture" if self.mixture else "batch.corpora"
        if twice := sorted({name for name in self.named if self.named.count(name) > 1}):
            yield (
                f"{path} names {', '.join(twice)} twice; name each corpus once, or add --set "
                f"{path}=[] to read all"
            )
        if self.mixture and self.mixture_exponent != 1:
            yield (
                f"batch.mixture_exponent={self.mixture_exponent:g} weighs the corpora by their "
                f"size, but batch.mixture has weights for {len(self.mixture)}; add --set "
                "batch.mixture=[] --set 'batch.corpora=[...]' to name them only, or --set "
                "batch.mixture_exponent=1"
            )
        if self.mixture and self.mixture_over == "languages":
            yield (
                "batch.mixture_over=languages is for batch.mixture_exponent, but batch.mixture "
                "weighs corpora; add --set batch.mixture_over=corpora, or --set batch.mixture=[]"
            )
        if self.mixture and self.corpora:
            yield (
                "batch.corpora names corpora, but batch.mixture names those that are read with "
                "their weights; add --set batch.corpora=[], or --set batch.mixture=[]"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class SpikeSettings:
    """What counts as a loss spike, and how the run responds."""

    deviations: NotNegative
    """A loss this many robust standard deviations above the recent losses is a spike; 0: off."""
    window: Annotated[int, Range("[3, 10000]")]  # a state.json of some 200 kB
    """Recent losses that spikes are compared with, in optimizer steps; the first `window` steps of
    a phase are never spikes."""
    rollbacks: CountOrZero
    """Most rollbacks of a run, each of which skips the data around a spike; 0: only report."""
    skip_before: CountOrZero
    """Optimizer steps before the spike whose sequences are skipped after a rollback."""
    skip_after: CountOrZero
    """Optimizer steps after the spike whose sequences are skipped after a rollback."""

    def contradictions(self) -> Iterator[str]:
        """Rollbacks without detection."""
        if self.rollbacks and self.deviations == 0:
            yield (
                f"spikes.rollbacks={self.rollbacks} needs spike detection, and spikes.deviations=0 "
                "turns it off; add --set spikes.deviations=10, or --set spikes.rollbacks=0"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class ValidationSettings:
    """When the model is scored during training, and on what."""

    every: Count
    """Optimizer steps between evaluations on the held-out documents."""
    grammar: str
    """Minimal pairs that are scored too, as by `evaluate --grammar`: a directory, a file or a zip;
    empty: none."""
    grammar_pairs: Count
    """Most pairs per paradigm, evenly spaced in its file; grammar="" does not read it."""
    mask_rate: BelowOne
    """Rate of the held-out masks, in place of data.masks.rate: drawn by the scheme and shares of
    the shards, the same in every phase and validation. 0: the masks that the shards store."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointSettings:
    """When checkpoints are saved, and which are kept."""

    every: Count
    """Optimizer steps between checkpoints; the last step is always saved."""
    keep: Count
    """Number of newest checkpoints to keep."""
    keep_every: CountOrZero
    """Optimizer steps between checkpoints that are never deleted; 0: none."""
    at_words: Annotated[str, Legacy("")]
    """Words read after which a checkpoint is saved that is never deleted, as FIRST..LAST/BY or one
    number, several with spaces: "1e6..10e6/1e6 20e6..100e6/10e6". Empty: none."""
    exportable: bool
    """Refuse a model for which transformers has no class; false: train and evaluate it anyway, for
    comparisons. It is never exported or fine-tuned."""

    def most_kept(self, steps: int) -> int:
        """Checkpoints that a run of so many steps has at most, with the one being written."""
        # + 1: old ones are removed only after the new one is published.
        kept = self.keep + 1 + (steps // self.keep_every if self.keep_every else 0)
        return kept + len(self.word_marks())

    def word_marks(self) -> list[int]:
        """The counts of `at_words`, ascending. Raises ValueError if it cannot be read."""
        marks: set[int] = set()
        for item in self.at_words.split():
            span, _, by = item.partition("/")
            first, dots, last = span.partition("..")
            if bool(dots) != bool(by):
                raise ValueError(item)
            start, stop, step = (int(float(text)) for text in (first, last or first, by or "1"))
            if not 1 <= start <= stop or step < 1 or (stop - start) // step >= MOST_MARKS:
                raise ValueError(item)
            marks.update(range(start, stop + 1, step))
        return sorted(marks)

    def contradictions(self) -> Iterator[str]:
        """Steps to keep that are never saved, and marks that cannot be read."""
        try:
            self.word_marks()
        except (ValueError, OverflowError):
            yield (
                f"checkpoint.at_words={self.at_words!r} is not FIRST..LAST/BY or a count of words, "
                f"or has over {MOST_MARKS:,} in an item; add --set "
                "checkpoint.at_words=1e6..10e6/1e6 for ten of them"
            )
        if self.every > 0 and self.keep_every % self.every:
            above = -(-self.keep_every // self.every) * self.every
            yield (
                f"checkpoint.keep_every={self.keep_every} is not a multiple of checkpoint.every="
                f"{self.every}, so most of its steps are never saved; add --set "
                f"checkpoint.keep_every={above}, or --set checkpoint.every="
                f"{math.gcd(self.keep_every, self.every)}"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class LoggingSettings:
    """When and where metrics are logged, and when a rank counts as hung."""

    every: Count
    """Optimizer steps between lines of the training log."""
    hang_seconds: Count
    """Seconds without a finished micro-batch before a rank counts as hung and the job ends."""
    to: tuple[str, ...]
    """Boards that show the metrics besides metrics.jsonl: of tensorboard and wandb; [] for none."""

    def contradictions(self) -> Iterator[str]:
        """A board that does not exist, or twice."""
        # Each once, in the given order: also the remedy that the message offers.
        known = [name for name in dict.fromkeys(self.to) if name in BOARDS]
        if known != [*self.to]:
            yield (
                f"logging.to={json.dumps(self.to)} may name each of {', '.join(BOARDS)} once; add "
                f"--set 'logging.to={json.dumps(known)}'"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlierPhase:
    """A phase before the last one, with its own sequence length and batch size."""

    steps: Count
    """Optimizer steps of this phase."""
    sequence_length: SequenceLength
    """Tokens per sequence in this phase, in place of data.sequence_length."""
    sequences: Count
    """Sequences per step, in place of batch.sequences; per_device scales to the same tokens."""
    settings: Annotated[tuple[str, ...], Legacy(())]  # so that a phase typed by hand can omit it
    """Other settings of this phase, as `--set` takes them, e.g. ["encoder.dropout=0.1"]: of
    data.masking, data.masks, data.mask_mode, data.duplicates, batch.mixture,
    batch.mixture_exponent, batch.mixture_over, batch.corpora, encoder.dropout,
    encoder.attention_dropout, encoder.rotary_base and encoder.local_rotary_base."""
