"""Rules across sections: which values of different sections exclude each other.

Rules within one section are methods of that section; the range of a number is on its field. Each
rule yields messages: what, the values as path=value, the remedy. Values here may be out of range.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipeline.config.data_settings import DataSettings
from pipeline.config.formats import PAIR_FORMATS
from pipeline.config.training_settings import (
    BatchSettings,
    EarlierPhase,
    EncoderSettings,
    GeneratorSettings,
    ObjectiveSettings,
    OptimizerSettings,
    ScheduleSettings,
)


def attention_fits(batch: BatchSettings, data: DataSettings) -> Iterator[str]:
    """Attention per document needs full_sentences, whose rows hold several documents."""
    if batch.attention == "document" and data.format != "full_sentences":
        yield (
            f"batch.attention=document isolates the documents of a row, but data.format="
            f"{data.format} has one document or one pair per row; set batch.attention=row, or "
            "data.format=full_sentences"
        )


def positions_suffice(
    encoder: EncoderSettings, data: DataSettings, phases: Sequence[EarlierPhase]
) -> Iterator[str]:
    """Every phase's sequences fit the position table."""
    lengths = {f"phases.{n}": phase.sequence_length for n, phase in enumerate(phases)}
    for owner, length in (lengths | {"data": data.sequence_length}).items():
        if length > encoder.positions:
            yield (
                f"{owner}.sequence_length={length} is longer than encoder.positions="
                f"{encoder.positions}; raise encoder.positions too"
            )


def objective_fits(objective: ObjectiveSettings, data: DataSettings) -> Iterator[str]:
    """The shards hold the labels and masks that the objective needs."""
    if objective.kind == "mlm_pair" and data.segments.label == "none":
        yield (
            "objective.kind=mlm_pair predicts data.segments.label, which is none; set it to next "
            f"or order with data.format one of {', '.join(PAIR_FORMATS)}, or set objective.kind=mlm"
        )
    if objective.kind == "mlm_sbo" and data.masking != "span":
        yield (
            f"objective.kind=mlm_sbo predicts masked spans, but data.masking={data.masking} draws "
            "none; set data.masking=span, or objective.kind=mlm"
        )


def generator_sizes(encoder: EncoderSettings, shares: GeneratorSettings) -> tuple[int, int, int]:
    """Layers, width and heads of the generator, as google-research/electra derives them."""
    width = round(encoder.width * shares.width)
    return round(encoder.layers * shares.layers), width, max(1, width // 64)


def generator_fits(
    objective: ObjectiveSettings, encoder: EncoderSettings, data: DataSettings
) -> Iterator[str]:
    """The generator can be built, and is the only source of replaced tokens."""
    if objective.kind != "rtd":
        return
    shares = objective.generator
    layers, width, heads = generator_sizes(encoder, shares)
    if shares.tied and (shares.layers, shares.width) != (1, 1):
        yield (
            "objective.generator.tied=true uses the encoder itself, but objective.generator.layers="
            f"{shares.layers:g} and width={shares.width:g} are not both 1; set both to 1, or "
            "tied=false"
        )
    elif layers < 1 or width < 1 or width % heads:
        yield (
            f"objective.generator.layers={shares.layers:g} of {encoder.layers} and width="
            f"{shares.width:g} of {encoder.width} give {layers} layers of width {width} with "
            f"{heads} heads; choose shares that give at least one layer and a width divisible by "
            "the number of heads"
        )
    if data.masks.random_share > 0:
        yield (
            "objective.kind=rtd replaces tokens by a generator's, but data.masks.random_share="
            f"{data.masks.random_share} replaces them at random; set that to 0, as "
            "data.masking=electra requires, or set objective.kind=mlm"
        )
    if encoder.sharing != "none" or encoder.position_offset or encoder.activation != "gelu":
        yield (
            f"objective.kind=rtd has no transformers class for encoder.sharing="
            f"{encoder.sharing}, encoder.position_offset={encoder.position_offset} and "
            f"encoder.activation={encoder.activation}; set them to none, 0 and gelu"
        )


def schedule_fits(
    schedule: ScheduleSettings, optimizer: OptimizerSettings, steps: int
) -> Iterator[str]:
    """The learning rate ends at or below its peak, and the schedule fits the steps."""
    if schedule.end_lr > optimizer.peak_lr:
        yield (
            f"schedule.end_lr={schedule.end_lr} is above optimizer.peak_lr={optimizer.peak_lr}; "
            "lower it"
        )
    stable = steps - schedule.warmup_steps - schedule.decay_steps
    if schedule.kind == "warmup_stable_decay" and (stable < 0 or schedule.decay_steps == 0):
        yield (
            f"schedule.kind=warmup_stable_decay needs schedule.decay_steps={schedule.decay_steps} "
            f"above 0 and, with schedule.warmup_steps={schedule.warmup_steps}, at most steps="
            f"{steps}; change one of them"
        )


def phases_fit(phases: Sequence[EarlierPhase], data: DataSettings, steps: int) -> Iterator[str]:
    """Earlier phases leave steps for the last one, and their rows are long enough."""
    taken = sum(phase.steps for phase in phases)
    if phases and taken >= steps:
        yield (
            f"phases take {taken:,} of steps={steps:,} and leave none for the last phase, at "
            f"data.sequence_length={data.sequence_length}; raise steps above {taken:,}, lower "
            f"phases.{len(phases) - 1}.steps, or set phases=[] for a single phase"
        )
    for index, phase in enumerate(phases):
        yield from data.too_short(phase.sequence_length, f"phases.{index}.sequence_length")


def batch_warmup_fits(batch: BatchSettings, phases: Sequence[EarlierPhase]) -> Iterator[str]:
    """Batch warm-up ends within the first phase and starts at or below its batch."""
    if phases and batch.warmup_steps > phases[0].steps:
        yield (
            f"batch.warmup_steps={batch.warmup_steps} is longer than the first phase, which ends "
            f"at step {phases[0].steps:,}; lower it, or raise phases.0.steps"
        )
    first = phases[0].sequences if phases else batch.sequences
    if batch.warmup_steps and not batch.step_tokens and batch.first_sequences > first:
        owner = "phases.0" if phases else "batch"
        yield (
            f"batch.first_sequences={batch.first_sequences} is above {owner}.sequences={first}, "
            "and the batch only grows; lower it, or set batch.warmup_steps=0"
        )
