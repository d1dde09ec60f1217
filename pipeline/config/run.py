"""Run: one frozen value that is the whole description of a training run.

What each setting means is said here, once, below the field; what it is set to is said in
`recipes/`, with its source: nothing has a default, so no value can come from two places. Everything
here may change what is learned, except where a field says otherwise; how memory and nodes are spent
is said elsewhere (`ds_configs/`, `slurm/`).

A Run checks itself when it is built; which values are legal is said in `legality.py`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from pipeline.config.formats import SEGMENT_FIELDS
from pipeline.config.rules import check
from pipeline.config.settings import parts_per_million


@dataclass(frozen=True, kw_only=True, slots=True)
class Masks:
    """How many positions of a sequence are predicted, what they show, how long a choice is."""

    rate: float
    """Share of a sequence's text tokens that are predicted."""
    mask_share: float
    """Share of the predicted positions that show [MASK]."""
    random_share: float
    """Share of the predicted positions that show a random id; the rest keep their own."""
    max_ngram: int
    """Words of the longest n-gram of masking=ngram; n words have a probability like 1/n."""
    span_p: float
    """masking=span: a span of k words has a probability like span_p x (1 - span_p)**(k - 1)."""
    max_span: int
    """Words of the longest span of masking=span; spans that touch are longer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Segments:
    """How formats of one or two segments fill a row, see `data.pairs`; others read none of it."""

    label: Literal["none", "next", "order"]
    """What two segments teach: nothing, next sentence (NSP), or sentence order (SOP)."""
    short_share: float
    """Share of the rows that are filled up to a random shorter length only."""
    single_share: float
    """Share of segment_pair's rows that show one segment, without a label."""
    draws: int
    """Sets of train rows, each all documents in rows that are drawn anew."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Data:
    """Sequences and masks; all fields but READ_TIME_FIELDS decide the bytes of shards."""

    format: Literal[
        "full_sentences", "doc_sentences", "segment_pair", "sentence_pair", "single_segment"
    ]
    """How documents become sequences; the names are those of Liu et al. 2019, sec. 4.2."""
    segments: Segments
    """How the formats that are not full or doc sentences fill a row."""
    sequence_length: int
    """Tokens per sequence, special tokens included."""
    masking: Literal["token", "whole_word", "ngram", "span", "electra"]
    """Scheme that chooses the predicted positions of a sequence."""
    mask_mode: Literal["static", "duplicates", "per-epoch"]
    """Which masks epoch e reads: the only one, duplicate (e-1) mod `duplicates`, or new ones."""
    duplicates: int
    """Masks stored with every sequence; 0 with mask_mode=per-epoch, whose loader draws them."""
    masks: Masks
    """How much is predicted, and what is shown there."""
    tokenizer: Literal["byte-bpe", "wordpiece", "unigram"]
    """Kind of vocabulary."""
    lower_case: bool
    """Uncased: no capitals, no accents; for wordpiece as in BERT, for unigram as in ALBERT."""
    vocab_size: int
    """Ids of the vocabulary, special tokens included, before any padding inside the model."""
    seed: int
    """Chooses the validation documents and the masks; the run's own `seed` does not touch data."""
    validation_fraction: float
    """Share of the documents held out, drawn before any duplicate is made."""
    order: Literal["global", "blocks"]
    """Order of samples: all rows permuted, or blocks of 1,024 rows permuted and a window mixed."""
    reader: Literal["mmap", "read"]
    """Memory map, or plain reads of whole blocks; never changes what is learned."""
    damaged: Literal["stop", "skip"]
    """At a damaged or missing shard of training rows: end, or go on without any of its rows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Encoder:
    """The network below the heads; its vocabulary is `data.vocab_size`."""

    layers: int
    """Transformer layers."""
    width: int
    """Size of a hidden vector."""
    embedding_width: int
    """Size of an embedding, with a matrix from it to the first layer (ALBERT); 0: `width`, none."""
    heads: int
    """Attention heads per layer; each is width / heads wide."""
    feed_forward: int
    """Inner size of the feed-forward part of a layer."""
    sharing: Literal["none", "all", "attention", "feed_forward"]
    """What layers of a group have in common: nothing, all weights, or those of one part."""
    groups: int
    """Groups of neighbouring layers that share, of equal size; 1 with sharing=none."""
    activation: Literal["gelu", "gelu_tanh"]
    """Non-linearity of the feed-forward part and the heads: GELU, exact or by tanh."""
    dropout: float
    """Probability of dropping a hidden unit, and an attention weight."""
    layer_norm_eps: float
    """Added to the variance in every LayerNorm."""
    positions: int
    """Longest sequence that the position table serves, in tokens."""
    position_offset: int
    """Row of the position table for the first token; the table has positions + offset rows."""
    segment_types: int
    """Rows of the segment (token type) table."""
    initializer_range: float
    """Standard deviation of the normal law that weights start from."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Generator:
    """ELECTRA's generator; it has the encoder's embeddings, heads of 64 and 4 x its own width."""

    layers: float
    """Its layers, as a share of the encoder's."""
    width: float
    """Size of its hidden vectors, as a share of the encoder's."""
    tied: bool
    """Whether it is the encoder itself, with layers=1 and width=1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Objective:
    """What is predicted."""

    kind: Literal["mlm", "mlm_pair", "mlm_sbo", "rtd"]
    """mlm: the original ids at the predicted positions; mlm_pair: data.segments.label too; mlm_sbo:
    those ids once more from outside their span; rtd: which tokens a generator has replaced."""
    pair_weight: float
    """Weight of the pairs' part in the loss, where mlm's is 1; kind=mlm_pair alone reads it."""
    boundary_weight: float
    """Weight of the span boundary part, where mlm's is 1; kind=mlm_sbo alone reads it."""
    detection_weight: float
    """Weight of the detection part, where that of the generator's mlm is 1; kind=rtd reads it."""
    generator: Generator
    """What replaces tokens; kind=rtd alone reads it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Optimizer:
    """How gradients become updates."""

    kind: Literal["lamb", "adamw"]
    """LAMB (You et al. 2020) or Adam with decoupled weight decay."""
    lamb_variant: Literal["paper", "nvlamb", "albert", "deepspeed"]
    """Which published LAMB; kind=adamw does not read it."""
    peak_lr: float
    """Learning rate at the end of warm-up."""
    beta1: float
    """Decay of the gradient's running mean, per step."""
    beta2: float
    """Decay of the squared gradient's running mean, per step."""
    eps: float
    """Added to the root of the squared gradient's mean."""
    weight_decay: float
    """Decoupled weight decay of matrices and embeddings."""
    decay_vectors: bool
    """Whether biases and LayerNorm weights decay too."""
    adapt_vectors: bool
    """Whether LAMB's trust ratio scales their updates too; kind=adamw does not read it."""
    clip_norm: float
    """Largest norm of the global gradient; 0 clips nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """Learning rate over the run's steps."""

    kind: Literal["linear", "polynomial", "inverse_sqrt", "warmup_stable_decay", "constant"]
    """From 0 up to optimizer.peak_lr, then on as `training.schedule` says for each kind."""
    warmup_steps: int
    """Optimizer steps of the rise."""
    end_lr: float
    """Learning rate at the last step; kind=constant does not read it, inverse_sqrt stays above."""
    power: float
    """Exponent of kind=polynomial and of warmup_stable_decay's decay: 1 is a straight line."""
    decay_steps: int
    """Last optimizer steps, in which kind=warmup_stable_decay decays; others do not read it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """Sequences per step."""

    sequences: int
    """Sequences per optimizer step, over all ranks; batch.step_tokens > 0 takes its place."""
    step_tokens: int
    """Tokens per optimizer step: as many sequences as hold so many on average; 0: `sequences`."""
    per_device: int
    """Most rows on one device at a time: memory and speed, never what is learned."""
    packing: Literal["none", "rows"]
    """A row of the model's input for each sequence, or as many as it has room for, each as if it
    were alone: speed where sequences are short, never what is learned."""
    attention: Literal["row", "document"]
    """What a token sees: its sequence, or its own document in it, where positions begin anew."""
    warmup_steps: int
    """Optimizer steps over which a step grows from `first_sequences` to `sequences`; 0: none."""
    first_sequences: int
    """Sequences of the first step, and what it grows by; without warmup_steps nobody reads it."""
    order_window: int
    """Blocks of 1,024 rows that steps draw from, mixed; data.order=global does not read it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Spikes:
    """What counts as a spike of the loss, and what is done about it, see `training.spikes`."""

    deviations: float
    """Standard deviations, by a robust estimate, above the usual loss; 0 looks for no spikes."""
    window: int
    """Optimizer steps of a phase whose losses say what is usual; it has no spike before there are
    so many."""
    rollbacks: int
    """Most times that the run goes back and skips what was read around a spike; 0: only tells."""
    skip_before: int
    """Optimizer steps before the spike whose sequences are skipped with its own."""
    skip_after: int
    """Optimizer steps after the spike whose sequences would have followed and are skipped too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Validation:
    """When the held-out documents are scored."""

    every: int
    """Optimizer steps between evaluations."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """When the run is saved."""

    every: int
    """Optimizer steps between checkpoints; the last step always has one."""
    keep: int
    """Newest checkpoints kept."""
    keep_every: int
    """Those of steps that it divides are kept for ever; 0 keeps none of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Logging:
    """When metrics are written."""

    every: int
    """Optimizer steps between lines of metrics."""
    hang_seconds: int
    """A rank that finishes no micro-batch for so long is taken for hung, and ends the job."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlierPhase:
    """A part of a run before its last one, at another sequence length or batch."""

    steps: int
    """Optimizer steps of it."""
    sequence_length: int
    """As data.sequence_length, in its place."""
    sequences: int
    """As batch.sequences, in its place; batch.per_device becomes as many rows as hold the same
    tokens."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """The whole description of a training run; building an illegal one raises ConfigError."""

    name: str
    """Name of the recipe; part of directory names."""
    seed: int
    """Chooses initial weights, dropout and the order of samples."""
    precision: Literal["fp32", "bf16"]
    """Arithmetic of the network; bf16 keeps weights, gradient sums and optimizer state in fp32."""
    data: Data
    """Sequences and masks."""
    encoder: Encoder
    """The network."""
    objective: Objective
    """What is predicted."""
    optimizer: Optimizer
    """How gradients become updates."""
    schedule: Schedule
    """Learning rate over steps."""
    batch: Batch
    """Sequences per step."""
    steps: int
    """Optimizer steps of the whole run."""
    phases: tuple[EarlierPhase, ...]
    """What comes first, in order; the rest of `steps` is the last phase, as data and batch say."""
    spikes: Spikes
    """What is done about spikes of the loss."""
    validation: Validation
    """When held-out documents are scored."""
    checkpoint: Checkpoint
    """When the run is saved."""
    logging: Logging
    """When metrics are written."""

    def __post_init__(self) -> None:
        check(self)


READ_TIME_FIELDS = ("order", "reader", "damaged")
"""Fields of Data that say how finished shards are read; every other one decides their bytes."""

LENGTH_FIELDS = {"max_ngram": "ngram", "span_p": "span", "max_span": "span"}
"""Fields of Masks that one scheme reads, and which."""


def shard_settings(data: Data) -> dict[str, Any]:
    """The settings that decide the bytes of shards, by their paths below `data`."""
    settings = {name: value for name, value in asdict(data).items() if name not in READ_TIME_FIELDS}
    for name, value in settings.pop("masks").items():
        if LENGTH_FIELDS.get(name, data.masking) == data.masking:
            settings[f"masks.{name}"] = value
    for name, value in settings.pop("segments").items():
        if name in SEGMENT_FIELDS.get(data.format, ()):
            settings[f"segments.{name}"] = value
    return settings


def prediction_count(text_tokens: int, mask_rate: float) -> int:
    """Positions predicted among `text_tokens` >= 1: the nearest count, halves up, at least one."""
    return max(1, (text_tokens * parts_per_million(mask_rate) + 500_000) // 1_000_000)


def max_predictions(data: Data) -> int:
    """Most predicted positions of a sequence: all its tokens but the first and last are text."""
    text = data.sequence_length - 2
    rounded_up = -(-text * parts_per_million(data.masks.rate) // 1_000_000)
    return rounded_up if data.masking == "span" else prediction_count(text, data.masks.rate)
