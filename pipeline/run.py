"""Run: one frozen value that is the whole description of a training run.

What each setting means is said here, once, below the field; what it is set to is said in
`recipes/`, with its source: nothing has a default, so no value can come from two places. Everything
here may change what is learned, except where a field says otherwise; how memory and nodes are spent
is said elsewhere (`ds_configs/`, `slurm/`).

A Run checks itself when it is built: `INTERVALS` holds the legal range of every number,
`IMPLEMENTED` the choices carried out today, `_contradictions` the values that exclude each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import Any, Literal

from pipeline.errors import ConfigError
from pipeline.settings import inside, parts_per_million


@dataclass(frozen=True, kw_only=True, slots=True)
class Words:
    """How many words the schemes of n-grams and spans draw at a time; others read none of it."""

    max_ngram: int
    """Words of the longest n-gram of masking=ngram; n words have a probability like 1/n."""
    span_p: float
    """masking=span: a span of k words has a probability like span_p x (1 - span_p)**(k - 1)."""
    max_span: int
    """Words of the longest span of masking=span; spans that touch are longer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Data:
    """Sequences and masks; all fields but READ_TIME_FIELDS decide the bytes of shards."""

    format: Literal[
        "full_sentences", "doc_sentences", "segment_pair", "sentence_pair", "single_segment"
    ]
    """How documents become sequences; the names are those of Liu et al. 2019, sec. 4.2."""
    sequence_length: int
    """Tokens per sequence, special tokens included."""
    masking: Literal["token", "whole_word", "ngram", "span", "electra"]
    """Scheme that chooses the predicted positions of a sequence."""
    mask_mode: Literal["static", "duplicates", "per-epoch"]
    """Which masks epoch e reads: the only one, duplicate (e-1) mod `duplicates`, or new ones."""
    duplicates: int
    """Masks stored with every sequence; 0 with mask_mode=per-epoch, whose loader draws them."""
    mask_rate: float
    """Share of a sequence's text tokens that are predicted."""
    mask_token_share: float
    """Share of the predicted positions that show [MASK]."""
    mask_random_share: float
    """Share of the predicted positions that show a random id; the rest keep their own."""
    words: Words
    """Lengths of n-grams and spans."""
    tokenizer: Literal["byte-bpe", "wordpiece", "unigram"]
    """Kind of vocabulary."""
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Encoder:
    """The network below the heads; its vocabulary is `data.vocab_size`."""

    layers: int
    """Transformer layers."""
    width: int
    """Size of a hidden vector, and of an embedding."""
    heads: int
    """Attention heads per layer; each is width / heads wide."""
    feed_forward: int
    """Inner size of the feed-forward part of a layer."""
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
class Objective:
    """What is predicted."""

    kind: Literal["mlm"]
    """mlm: the original ids at the predicted positions."""


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
    """Sequences per optimizer step, over all ranks."""
    per_device: int
    """Most sequences on one device at a time: memory and speed, never what is learned."""
    warmup_steps: int
    """Optimizer steps over which a step grows from `first_sequences` to `sequences`; 0: none."""
    first_sequences: int
    """Sequences of the first step, and what it grows by; without warmup_steps nobody reads it."""
    order_window: int
    """Blocks of 1,024 rows that steps draw from, mixed; data.order=global does not read it."""


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
    validation: Validation
    """When held-out documents are scored."""
    checkpoint: Checkpoint
    """When the run is saved."""
    logging: Logging
    """When metrics are written."""

    def __post_init__(self) -> None:
        validate(self)


READ_TIME_FIELDS = ("order", "reader")
"""Fields of Data that say how finished shards are read; every other one decides their bytes."""

WORD_FIELDS = {"ngram": ("max_ngram",), "span": ("span_p", "max_span")}
"""Fields of Words that each scheme reads."""

IMPLEMENTED = {
    "data.format": ("full_sentences",),
    "data.tokenizer": ("byte-bpe",),
}
"""Choices carried out today, for settings with names that are planned only."""

INTERVALS = {
    "seed": "[0, 2**63)",
    "data.sequence_length": "[3, 65535]",  # two special tokens and a text token; uint16 positions
    "data.duplicates": "[0, inf)",
    "data.mask_rate": "(0, 1)",
    "data.mask_token_share": "[0, 1]",
    "data.mask_random_share": "[0, 1]",
    "data.words.max_ngram": "[1, 64]",
    "data.words.span_p": "(0, 1]",
    "data.words.max_span": "[1, 64]",
    "data.vocab_size": "[261, 2**32)",  # 256 bytes and five special tokens; uint32 ids
    "data.seed": "[0, 2**63)",
    "data.validation_fraction": "(0, 0.5]",
    "encoder.layers": "[1, inf)",
    "encoder.width": "[1, inf)",
    "encoder.heads": "[1, inf)",
    "encoder.feed_forward": "[1, inf)",
    "encoder.dropout": "[0, 1)",
    "encoder.layer_norm_eps": "(0, 1)",
    "encoder.positions": "[3, 65535]",
    "encoder.position_offset": "[0, inf)",
    "encoder.segment_types": "[1, inf)",
    "encoder.initializer_range": "(0, inf)",
    "optimizer.peak_lr": "(0, inf)",
    "optimizer.beta1": "[0, 1)",
    "optimizer.beta2": "[0, 1)",
    "optimizer.eps": "(0, 1)",
    "optimizer.weight_decay": "[0, 1)",
    "optimizer.clip_norm": "[0, inf)",
    "schedule.warmup_steps": "[0, inf)",
    "schedule.end_lr": "[0, inf)",
    "schedule.power": "(0, inf)",
    "schedule.decay_steps": "[0, inf)",
    "batch.sequences": "[1, inf)",
    "batch.per_device": "[1, inf)",
    "batch.warmup_steps": "[0, inf)",
    "batch.first_sequences": "[1, inf)",
    "batch.order_window": "[1, inf)",
    "steps": "[1, inf)",
    "validation.every": "[1, inf)",
    "checkpoint.every": "[1, inf)",
    "checkpoint.keep": "[1, inf)",
    "checkpoint.keep_every": "[0, inf)",
    "logging.every": "[1, inf)",
    "logging.hang_seconds": "[1, inf)",
}
"""Legal range of every number, as errors print it: a round bracket excludes its end."""


def validate(run: Run) -> None:
    """Raise ConfigError for a value that is out of range, not built yet, or contradicts another."""
    for path, interval in INTERVALS.items():
        value = attrgetter(path)(run)
        if not inside(value, interval):
            raise ConfigError(f"{path}={value} is out of range; choose one in {interval}")
    for path, built in IMPLEMENTED.items():
        value = attrgetter(path)(run)
        if value not in built:
            raise ConfigError(f"{path}={value} is not built yet; choose one of {', '.join(built)}")
    for contradiction in _contradictions(run):
        raise ConfigError(contradiction)


def shard_settings(data: Data) -> dict[str, Any]:
    """The settings that decide the bytes of shards, by their paths below `data`."""
    settings = {name: value for name, value in asdict(data).items() if name not in READ_TIME_FIELDS}
    words = settings.pop("words")
    return settings | {f"words.{name}": words[name] for name in WORD_FIELDS.get(data.masking, ())}


def prediction_count(text_tokens: int, mask_rate: float) -> int:
    """Positions predicted among `text_tokens` >= 1: the nearest count, halves up, at least one."""
    return max(1, (text_tokens * parts_per_million(mask_rate) + 500_000) // 1_000_000)


def max_predictions(data: Data) -> int:
    """Most predicted positions of a sequence: all its tokens but the first and last are text."""
    text = data.sequence_length - 2
    rounded_up = -(-text * parts_per_million(data.mask_rate) // 1_000_000)
    return rounded_up if data.masking == "span" else prediction_count(text, data.mask_rate)


def _contradictions(run: Run) -> Iterator[str]:
    data, encoder = run.data, run.encoder
    if not re.fullmatch(r"[\w.-]+", run.name):
        yield f"name={run.name!r} cannot name a directory; use letters, digits, '_', '.' and '-'"
    if parts_per_million(data.mask_token_share) + parts_per_million(data.mask_random_share) > 10**6:
        yield (
            f"data.mask_token_share={data.mask_token_share} and data.mask_random_share="
            f"{data.mask_random_share} add up to more than 1; lower one"
        )
    if data.masking == "electra" and data.mask_random_share > 0:
        share = f"data.mask_random_share={data.mask_random_share} to 0"
        yield f"data.masking=electra shows no random ids: set {share} (its paper keeps 15 %)"
    legal = {"static": data.duplicates == 1, "per-epoch": data.duplicates == 0}
    if not legal.get(data.mask_mode, data.duplicates > 0):
        yield (
            f"data.mask_mode={data.mask_mode} does not go with data.duplicates={data.duplicates}: "
            "static stores 1 mask, duplicates 1 or more, per-epoch none (0); change one of them"
        )
    if data.reader == "read" and data.order != "blocks":
        yield (
            f"data.reader=read reads whole blocks, data.order={data.order} needs single rows; "
            "set data.order=blocks or data.reader=mmap"
        )
    if data.sequence_length > encoder.positions:
        yield (
            f"data.sequence_length={data.sequence_length} is longer than encoder.positions="
            f"{encoder.positions}; raise encoder.positions too"
        )
    if encoder.width % encoder.heads:
        yield (
            f"encoder.width={encoder.width} does not divide into encoder.heads={encoder.heads}; "
            "choose a number of heads that divides it"
        )
    optimizer = run.optimizer
    scales_all = optimizer.kind == "lamb" and optimizer.lamb_variant in ("nvlamb", "deepspeed")
    if scales_all and not optimizer.adapt_vectors:
        yield (
            f"optimizer.lamb_variant={optimizer.lamb_variant} scales every weight by its trust "
            "ratio, optimizer.adapt_vectors=False leaves out biases and LayerNorms; set "
            "optimizer.adapt_vectors=true or optimizer.lamb_variant=paper"
        )
    if run.schedule.end_lr > run.optimizer.peak_lr:
        yield (
            f"schedule.end_lr={run.schedule.end_lr} is above optimizer.peak_lr="
            f"{run.optimizer.peak_lr}; lower it"
        )
    if run.checkpoint.keep_every % run.checkpoint.every:
        yield (
            f"checkpoint.keep_every={run.checkpoint.keep_every} is no multiple of checkpoint.every="
            f"{run.checkpoint.every}, so most of its steps are never saved; make it one, or 0"
        )
    yield from _schedule_contradictions(run)


def _schedule_contradictions(run: Run) -> Iterator[str]:
    schedule, batch = run.schedule, run.batch
    if schedule.kind == "inverse_sqrt" and schedule.warmup_steps == 0:
        yield (
            "schedule.kind=inverse_sqrt measures time in warm-ups, schedule.warmup_steps=0 has "
            "none; set schedule.warmup_steps or another kind"
        )
    stable = run.steps - schedule.warmup_steps - schedule.decay_steps
    if schedule.kind == "warmup_stable_decay" and (stable < 0 or schedule.decay_steps == 0):
        yield (
            f"schedule.kind=warmup_stable_decay needs schedule.decay_steps={schedule.decay_steps} "
            f"above 0 and, with schedule.warmup_steps={schedule.warmup_steps}, at most steps="
            f"{run.steps}; change one of them"
        )
    if batch.warmup_steps and batch.first_sequences > batch.sequences:
        yield (
            f"batch.first_sequences={batch.first_sequences} is above batch.sequences="
            f"{batch.sequences}; a batch grows, so lower it or set batch.warmup_steps=0"
        )
