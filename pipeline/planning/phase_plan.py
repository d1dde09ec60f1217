"""A phase of a Run, its data and its machines -> every number that follows from them.

Nothing here is a setting. The global batch is divided among the ranks, and each rank's share into
micro-batches: on a CPU of equally many rows, at most `batch.per_device`; on a GPU of equally many
tokens, at most those of `batch.per_device` full rows. What rows leave of these is dead; the plan
reports its share, because it costs compute.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil
from operator import mul
from typing import Any, cast

import numpy as np

from model.config import EncoderConfig
from model.hugging_face.families import changes_to_fit, family_of
from model.objectives.flops import (
    detection_flops,
    detection_parameters,
    parameter_count,
    step_flops,
)
from model.objectives.replaced_tokens import Kind
from pipeline.base.errors import ConfigError, DataError
from pipeline.config.rules import generator_sizes
from pipeline.config.run import Run
from pipeline.config.settings import as_set
from pipeline.config.training_settings import GENERATOR_KINDS, BatchSettings
from pipeline.data.shards.predicted import no_predictions
from pipeline.loading.dataset import Dataset
from pipeline.loading.placement import Capacity, expected_tokens
from pipeline.planning.mixtures import read_factors, words_per_row
from pipeline.planning.schedule import resolve_batch_size, sequences_until

ROUND = 64
"""A GPU's tokens are a multiple of this, which suits its products of matrices."""
UNFILLED = 0.25
"""Share of a full row that first fit leaves in a micro-batch on average, at most."""
MOST_SAMPLED = 64
"""Datasets of which every rank reads some rows to plan: those that are read most."""
MORE_ROWS = 1.25
"""Rows of a micro-batch, relative to rows of mean length: more short ones go to the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedBatches:
    """Micro-batches of one size, as a GPU needs them."""

    capacity: Capacity
    """The capacity of each."""
    accumulation: int
    """Micro-batches per step and rank; a step that needs more gets another one."""
    dead_share: float
    """Share of the tokens that is dead, on average."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The numbers of one optimizer step and of the whole phase."""

    world_size: int
    """Processes, one per device."""
    zero_stage: int
    """ZeRO partitions at 0 nothing, 1 optimizer state, 2 also gradients, 3 also weights."""
    sequences: int
    """Sequences per step, over all ranks; fewer at first if the batch grows."""
    matched_tokens: int
    """Mean number of tokens in these sequences if the batch is given in tokens, else 0."""
    growing_steps: int
    """Steps until the batch has its full size."""
    rows: int
    """Most rows per micro-batch on a CPU."""
    accumulation: int
    """Micro-batches per step and rank on a CPU."""
    on_gpu: FixedBatches
    """The micro-batches on a GPU."""
    parameters: int
    """Trained parameters."""
    step_flops: int
    """Model FLOPs per step, see `model.objectives.flops`."""
    train_sequences: int
    validation_sequences: int
    epochs: float
    """Passes over the data in the whole phase."""
    tokens: int
    """Tokens read in the whole phase, special tokens included; from the data's mean length."""
    words: int
    """Words between white space, likewise; 0 if shards do not say."""

    def lines(self) -> list[str]:
        """The plan in words."""
        growing = (
            [f"grows: over the first {self.growing_steps:,} steps"] if self.growing_steps else []
        )
        mean = self.matched_tokens / self.sequences
        matched = (
            [f"batch: about {self.matched_tokens:,} tokens per step, {mean:,.1f} per sequence"]
            if self.matched_tokens
            else []
        )
        ranks, parts = (
            format_count(self.world_size, "rank"),
            format_count(self.accumulation, "micro-batch"),
        )
        fixed = format_count(self.on_gpu.accumulation, "micro-batch")
        return [
            f"model: {self.parameters:,} parameters, heads included; "
            f"{format_digits(self.step_flops / 1e12, 3)} TFLOP per step",
            f"step: {self.sequences:,} sequences = {ranks} x {parts} x "
            f"{format_count(self.rows, 'row')}; ZeRO stage {self.zero_stage}",
            f"on a GPU: {fixed} of {self.on_gpu.capacity.tokens:,} tokens per rank, "
            f"{self.on_gpu.dead_share:.1%} of them dead",
            *matched,
            *growing,
            f"data: {self.tokens:,} tokens, {f'{self.words:,} words, ' if self.words else ''}"
            f"{self.epochs:,.2f} passes over {self.train_sequences:,} sequences; "
            f"{self.validation_sequences:,} held out",
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for run.json."""
        return asdict(self)


def format_count(count: int, noun: str) -> str:
    """`1 rank`, `2 ranks`, `2 micro-batches`."""
    plural = ("es" if noun.endswith("ch") else "s") * (count != 1)
    return f"{count:,} {noun}{plural}"


def format_digits(value: float, digits: int) -> str:
    """`0.0012`, `1.3` or `9,210`: a value to a number of digits, without an exponent."""
    return f"{float(f'{value:.{digits}g}'):,.15g}"


def make_plan(
    run: Run,
    world_size: int,
    zero_stage: int,
    train: Sequence[Dataset],
    validation: Sequence[Dataset],
    steps: int,
    owner: str = "batch",
) -> Plan:
    """The plan of `steps` steps of a run that has one phase; owner: section of its `sequences`.

    Raises ConfigError if a step has fewer sequences than ranks, or if the model could not be
    exported, and DataError if every training shard is damaged.
    """
    _check_family(run, train[0])
    rows_of = {
        split: sum(dataset.rows for dataset in sets)
        for split, sets in (("train", train), ("validation", validation))
    }
    factors = read_factors(run.batch, train)
    mean_tokens = sum(
        factor * dataset.tokens for factor, dataset in zip(factors, train, strict=True)
    ) / max(1, rows_of["train"])
    batch = resolve_batch_size(run.batch, mean_tokens)
    sequences = batch.sequences
    _check_batch(batch, world_size, mean_tokens, owner)
    accumulation, rows = micro_batches(sequences, world_size, batch.per_device)
    sampled, read = _most_read(train, factors)
    means = [dataset.mean_predictions for dataset in sampled]
    for dataset, mean in zip(sampled, means, strict=True):
        if mean == 0:  # only masks that the loader draws: files without any are refused before
            raise no_predictions(dataset.directory, dataset.manifest)
    mean_predictions = sum(map(mul, read, means)) / max(1, sum(read))
    total = sequences_until(batch, steps)
    return Plan(
        world_size=world_size,
        zero_stage=zero_stage,
        sequences=sequences,
        matched_tokens=batch.step_tokens,
        growing_steps=run.batch.warmup_steps,
        rows=rows,
        accumulation=accumulation,
        on_gpu=_fixed_batches(batch, train, factors, sequences, world_size),
        parameters=parameters_of(run),
        step_flops=flops_of(
            run,
            sequences,
            round(sequences * mean_predictions),
            round(mean_tokens),  # pads do not count
        ),
        train_sequences=rows_of["train"],
        validation_sequences=rows_of["validation"],
        epochs=total / rows_of["train"],
        tokens=round(total * mean_tokens),
        words=round(total * words_per_row(factors, train)),
    )


def has_pairs(run: Run) -> bool:
    """True if the model has a head for pairs of segments."""
    return run.objective.kind == "mlm_pair"


def has_generator(run: Run) -> bool:
    """True if the model has a generator of words."""
    return run.objective.kind in GENERATOR_KINDS


def parameters_of(run: Run) -> int:
    """Trained parameters of a run's model."""
    config, kind = encoder_config(run), run.objective.kind
    if has_generator(run):
        shares = run.objective.generator
        return detection_parameters(
            config, generator_config(run),
            tied=shares.tied, kind=cast(Kind, kind), own_embeddings=shares.embeddings == "own",
        )  # fmt: skip
    return parameter_count(config, pair_head=has_pairs(run), boundary_head=kind == "mlm_sbo")


def flops_of(run: Run, sequences: int, predictions: int, length: int) -> int:
    """Model FLOPs of a step, see `model.objectives.flops`; predictions: summed over its
    sequences, each of `length`."""
    config, kind = encoder_config(run), run.objective.kind
    if has_generator(run):
        return detection_flops(
            config, generator_config(run), kind=cast(Kind, kind),
            sequences=sequences, sequence_length=length, predictions=predictions,
        )  # fmt: skip
    return step_flops(
        config, sequences=sequences, sequence_length=length, predictions=predictions,
        pair_head=has_pairs(run), boundary_head=kind == "mlm_sbo",
    )  # fmt: skip


def _check_family(run: Run, dataset: Dataset) -> None:
    """Raises ConfigError if transformers has no class that the model can be exported to."""
    if not run.checkpoint.exportable:
        return
    if has_generator(run):
        return  # ELECTRA's class supports every allowed setting
    config, pad = encoder_config(run), dataset.manifest.tokenizer["pad"]
    try:
        family = family_of(config, has_pairs(run))
    except ValueError as error:
        families = changes_to_fit(config, has_pairs(run)).items()
        advice = ", or ".join(f"{_settings(run, each, pad)} for {name}" for name, each in families)
        raise ConfigError(
            f"{error}, so it could not be exported; add {advice}, or --set "
            "checkpoint.exportable=false to compare it only"
        ) from error
    if family.after_pad and run.encoder.position_offset != pad + 1:
        raise ConfigError(
            f"encoder.position_offset={run.encoder.position_offset} needs pad id "
            f"{run.encoder.position_offset - 1}, the tokenizer of {dataset.directory} has {pad}; "
            f"add --set encoder.position_offset={pad + 1} for RoBERTa's positions, which "
            "transformers derives from the pads, or --set encoder.position_offset=0 for BERT's; "
            "otherwise the model could not be exported"
        )


def _settings(run: Run, changes: Mapping[str, Any], pad: int) -> str:
    """The `--set` of changes to the encoder of a run and its heads; pad: id of <pad>."""
    found = {f"encoder.{name}": value for name, value in changes.items() if name != "pairs"}
    if found.get("encoder.position_offset"):
        found["encoder.position_offset"] = pad + 1
    if found.get("encoder.embedding_width") == run.encoder.width:
        found["encoder.embedding_width"] = 0
    if "pairs" in changes:
        found["objective.kind"] = "mlm"
    return " ".join(f"--set {path}={as_set(value)}" for path, value in found.items())


def _check_batch(batch: BatchSettings, world_size: int, mean_tokens: float, owner: str) -> None:
    """Raises ConfigError if the batch is too small; batch: with its sequences resolved."""
    in_tokens = f" (batch.step_tokens={batch.step_tokens})" if batch.step_tokens else ""
    for name in ("sequences", "first_sequences")[: 2 if batch.warmup_steps else 1]:
        if (value := getattr(batch, name)) < world_size:
            path = f"{owner if name == 'sequences' else 'batch'}.{name}"
            more = f"{path}={world_size}"
            if name == "sequences" and batch.step_tokens:
                more = f"batch.step_tokens={ceil(world_size * mean_tokens)}"
            raise ConfigError(
                f"{path}={value}{in_tokens} is smaller than the {world_size} ranks, so some would "
                f"have nothing to do; add --set {more}, or start fewer ranks"
            )
    if batch.warmup_steps and batch.first_sequences > batch.sequences:
        raise ConfigError(
            f"batch.first_sequences={batch.first_sequences} is above the {batch.sequences} "
            f"sequences of batch.step_tokens={batch.step_tokens}; add --set "
            f"batch.first_sequences={batch.sequences}, or --set batch.warmup_steps=0 for a batch "
            "of constant size"
        )


def _fixed_batches(
    batch: BatchSettings,
    train: Sequence[Dataset],
    factors: Sequence[float],
    sequences: int,
    world_size: int,
) -> FixedBatches:
    """A GPU's micro-batches for a rank's share of `sequences`.

    The fewest micro-batches of at most `batch.per_device` full rows, and then as few tokens each as
    a rank's rows of a step need, but for `EXCEEDED` of the steps. factors: see `read_factors`.
    """
    rows = -(-sequences // world_size)
    counts = [dataset.rows for dataset in train]
    sampled, read = _most_read(train, factors)
    found = [dataset.some_lengths() for dataset in sampled]
    weights = [np.full(len(own), count / len(own)) for own, count in zip(found, read, strict=True)]
    lengths = np.concatenate(found)
    length = train[0].manifest.sequence_length
    mean, most = expected_tokens(lengths, np.concatenate(weights), rows, world_size)
    full = batch.per_device * length
    enough = ceil(rows / batch.per_device)  # even of full rows
    parts = min(enough, ceil(most / (full - UNFILLED * length)))
    tokens = min(full, ROUND * ceil((most / parts + UNFILLED * length * (parts > 1)) / ROUND))
    rows_each = ceil(MORE_ROWS * tokens * rows / mean) + 1
    slots = max(dataset.manifest.max_predictions for dataset in train)
    documents, most_pieces = 1.0, 1
    if batch.attention == "document":
        most_pieces = length  # a row of documents of one token
        documents = 1 + max(  # a row begins inside a document
            dataset.manifest.totals["documents"] / max(1, count)
            for dataset, count in zip(train, counts, strict=True)
        )
    stored = [dataset.tokens for dataset in train]
    used = sequences * float(np.dot(factors, stored) / np.dot(factors, counts))
    capacity = Capacity(
        tokens=max(tokens, length),  # a full row must fit into a micro-batch
        predictions=ceil(slots * tokens / length) + rows_each,  # each row may round up
        rows=rows_each,
        pieces=max(most_pieces, ceil(MORE_ROWS * documents * rows_each)),
    )
    return FixedBatches(
        capacity=capacity,
        accumulation=parts,
        dead_share=max(0.0, 1 - used / (world_size * parts * capacity.tokens)),
    )


def _most_read(
    train: Sequence[Dataset], factors: Sequence[float]
) -> tuple[list[Dataset], list[float]]:
    """The datasets that are sampled, and how many sequences each has, counted by `factors`.

    Raises DataError if all are damaged.
    """
    readable = [
        (dataset, factor * dataset.rows)
        for dataset, factor in zip(train, factors, strict=True)
        if any(shard.name not in dataset.damaged for shard in dataset.shards)
    ]
    if not readable:
        raise all_damaged(train)
    # Stable, so that all ranks sample the same datasets where several are read equally often.
    most = np.argsort([-read for _, read in readable], kind="stable")[:MOST_SAMPLED]
    chosen = [readable[place] for place in sorted(most.tolist())]
    return [dataset for dataset, _ in chosen], [read for _, read in chosen]


def all_damaged(train: Sequence[Dataset]) -> DataError:
    """The error if nothing is left of what a phase reads."""
    named = (
        f"{', '.join(dataset.manifest.corpora)} in {dataset.directory}"
        if dataset.part
        else str(dataset.directory)
        for dataset in train
    )
    return DataError(f"every shard of {', '.join(named)} is damaged or missing; copy them again")


def micro_batches(sequences: int, world_size: int, per_device: int) -> tuple[int, int]:
    """(micro-batches per rank and step, rows of each): the fewest that fit."""
    share = -(-sequences // world_size)
    accumulation = -(-share // per_device)
    return accumulation, -(-share // accumulation)  # even, not full ones and a small rest


def encoder_config(run: Run) -> EncoderConfig:
    """The model configuration of the run's encoder."""
    encoder = asdict(run.encoder)
    del encoder["initializer"]  # the network does not depend on it
    encoder["embedding_width"] = run.encoder.embedding_width or run.encoder.width
    return EncoderConfig(vocab_size=run.data.vocab_size, **encoder)


def generator_config(run: Run) -> EncoderConfig:
    """The model configuration of a run's generator."""
    layers, width, heads = generator_sizes(run.encoder, run.objective.generator)
    config = encoder_config(run)
    own = run.objective.generator.embeddings == "own"
    size = width if own else config.embedding_width
    return replace(
        config, layers=layers, width=width, heads=heads, feed_forward=4 * width,
        embedding_width=size,
    )  # fmt: skip
