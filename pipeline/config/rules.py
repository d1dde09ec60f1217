"""Rules across sections: which values of different sections exclude each other.

Rules within one section are methods of that section; the range of a number is on its field. Each
rule yields messages: what, the values as path=value, the remedy. Values here may be out of range.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipeline.config.data_settings import DataSettings
from pipeline.config.encoder_settings import EncoderSettings
from pipeline.config.formats import PAIR_FORMATS
from pipeline.config.training_settings import (
    GENERATOR_KINDS,
    BatchSettings,
    EarlierPhase,
    GeneratorSettings,
    ObjectiveSettings,
    OptimizerSettings,
    ScheduleSettings,
)


def _without_pairs(data: DataSettings, objective: ObjectiveSettings) -> str:
    """The `--set` of what a format without pairs needs besides itself."""
    needed = {
        "data.segments.label=none": data.segments.label != "none",
        "data.segments.draws=1": data.segments.draws > 1 and data.format in PAIR_FORMATS,
        "objective.kind=mlm": objective.kind == "mlm_pair",
    }
    return "".join(f" --set {change}" for change, is_needed in needed.items() if is_needed)


def attention_fits(
    batch: BatchSettings, data: DataSettings, objective: ObjectiveSettings
) -> Iterator[str]:
    """Attention per document needs full_sentences, whose rows hold several documents."""
    if batch.attention == "document" and data.format != "full_sentences":
        yield (
            f"batch.attention=document isolates the documents of a row, but data.format="
            f"{data.format} has one document or one pair per row; add --set batch.attention=row, "
            f"or --set data.format=full_sentences{_without_pairs(data, objective)}"
        )


def label_fits(data: DataSettings, objective: ObjectiveSettings) -> Iterator[str]:
    """A label of two segments needs a format with pairs."""
    if data.segments.label != "none" and data.format not in PAIR_FORMATS:
        pairs = " or ".join(f"--set data.format={name}" for name in PAIR_FORMATS)
        yield (
            f"data.segments.label={data.segments.label} needs two segments, and data.format="
            f"{data.format} has no pairs; add {pairs}, or{_without_pairs(data, objective)}"
        )


def positions_suffice(
    encoder: EncoderSettings, data: DataSettings, phases: Sequence[EarlierPhase]
) -> Iterator[str]:
    """Every phase's sequences fit the position table."""
    lengths = {f"phases.{n}": phase.sequence_length for n, phase in enumerate(phases)}
    # The last phase, whose length is that of the data.
    lengths["data"] = data.sequence_length
    for owner, length in lengths.items():
        if length > encoder.positions:
            yield (
                f"{owner}.sequence_length={length} is longer than encoder.positions="
                f"{encoder.positions}; add --set encoder.positions={max(lengths.values())}, or "
                f"--set {owner}.sequence_length={encoder.positions}"
            )


def objective_fits(
    objective: ObjectiveSettings, data: DataSettings, encoder: EncoderSettings
) -> Iterator[str]:
    """The shards hold the labels and masks that the objective needs, the encoder its segments."""
    if objective.kind == "mlm_pair" and data.segments.label == "none":
        pairs = "" if data.format in PAIR_FORMATS else "--set data.format=segment_pair "
        yield (
            "objective.kind=mlm_pair predicts data.segments.label, which is none; add "
            f"{pairs}--set data.segments.label=next or {pairs}--set data.segments.label=order, or "
            "--set objective.kind=mlm"
        )
    if objective.kind == "mlm_pair":
        yield from _as_bert(encoder, "objective.kind=mlm_pair has a head of segment pairs")
    if objective.kind == "mlm_sbo" and data.masking != "span":
        yield (
            f"objective.kind=mlm_sbo predicts masked spans, but data.masking={data.masking} draws "
            "none; add --set data.masking=span, or --set objective.kind=mlm"
        )


def _as_bert(encoder: EncoderSettings, reason: str) -> Iterator[str]:
    """Layers are BERT's: transformers has no class for the heads of others."""
    if changes := encoder.departures():
        yield (
            f"{reason}, for which transformers has no class with {', '.join(changes.values())}; "
            f"add --set objective.kind=mlm, or {' '.join(f'--set {each}' for each in changes)}"
        )


def generator_sizes(encoder: EncoderSettings, shares: GeneratorSettings) -> tuple[int, int, int]:
    """Layers, width and heads of the generator, as google-research/electra derives them."""
    width = round(encoder.width * shares.width)
    return round(encoder.layers * shares.layers), width, max(1, width // 64)


def generator_fits(
    objective: ObjectiveSettings, encoder: EncoderSettings, data: DataSettings
) -> Iterator[str]:
    """The generator can be built, and is the only source of replaced tokens."""
    if objective.kind not in GENERATOR_KINDS:
        return
    shares = objective.generator
    layers, width, heads = generator_sizes(encoder, shares)
    if shares.tied and (shares.layers, shares.width) != (1, 1):
        yield (
            "objective.generator.tied=true uses the encoder itself, but objective.generator.layers="
            f"{shares.layers:g} and width={shares.width:g} are not both 1; add --set "
            "objective.generator.layers=1 --set objective.generator.width=1, or --set "
            "objective.generator.tied=false"
        )
    elif layers < 1 or width < 1 or width % heads:
        yield (
            f"objective.generator.layers={shares.layers:g} of {encoder.layers} and width="
            f"{shares.width:g} of {encoder.width} give {layers} layers of width {width} with "
            f"{heads} heads, but there must be a layer and a width divisible by the heads; add "
            f"{_nearest_shares(encoder, shares)}"
        )
    if shares.tied and shares.embeddings == "own":
        yield (
            "objective.generator.tied=true uses the encoder itself, but objective.generator."
            "embeddings=own; add --set objective.generator.embeddings=shared, or --set "
            "objective.generator.tied=false"
        )
    if data.masks.random_share > 0:
        yield (
            f"objective.kind={objective.kind} replaces tokens by a generator's, but "
            f"data.masks.random_share={data.masks.random_share} replaces them at random; add --set "
            "data.masks.random_share=0, or --set objective.kind=mlm"
        )
    yield from _as_bert(encoder, f"objective.kind={objective.kind} has a generator")
    if encoder.sharing != "none" or encoder.position_offset or encoder.activation != "gelu":
        needed = {
            "encoder.sharing=none": encoder.sharing != "none",
            "encoder.groups=1": encoder.groups != 1,
            "encoder.position_offset=0": encoder.position_offset > 0,
            "encoder.activation=gelu": encoder.activation != "gelu",
        }
        changes = " ".join(f"--set {change}" for change, is_needed in needed.items() if is_needed)
        yield (
            f"objective.kind={objective.kind} has no transformers class for encoder.sharing="
            f"{encoder.sharing}, encoder.position_offset={encoder.position_offset} and "
            f"encoder.activation={encoder.activation}; add {changes}, or --set objective.kind=mlm"
        )


def _nearest_shares(encoder: EncoderSettings, shares: GeneratorSettings) -> str:
    """The `--set` of shares that give a generator, nearest to those asked for."""
    layers, width, heads = generator_sizes(encoder, shares)
    changes = []
    if layers < 1:
        changes.append(f"--set objective.generator.layers={1 / max(1, encoder.layers):.6g}")
    if width < 1 or width % heads:
        # Heads are 64 wide, so a multiple of 64 always divides.
        steps = min(max(1, round(width / 64)), encoder.width // 64)  # 0: an encoder below 64
        share = (64 * steps or 1) / max(1, encoder.width)
        changes.append(f"--set objective.generator.width={share:.6g}")
    return " ".join(changes)


def schedule_fits(
    schedule: ScheduleSettings, optimizer: OptimizerSettings, steps: int
) -> Iterator[str]:
    """The learning rate ends at or below its peak, and the schedule fits the steps."""
    if schedule.end_lr > optimizer.peak_lr:
        yield (
            f"schedule.end_lr={schedule.end_lr} is above optimizer.peak_lr={optimizer.peak_lr}; "
            f"add --set schedule.end_lr=0, or --set optimizer.peak_lr={schedule.end_lr}"
        )
    stable = steps - schedule.warmup_steps - schedule.decay_steps
    if schedule.kind == "warmup_stable_decay" and (stable < 0 or schedule.decay_steps == 0):
        yield (
            f"schedule.kind=warmup_stable_decay needs schedule.decay_steps={schedule.decay_steps} "
            f"above 0 and, with schedule.warmup_steps={schedule.warmup_steps}, at most steps="
            f"{steps}; add {_decays_that_fit(schedule, steps)}"
        )


def _decays_that_fit(schedule: ScheduleSettings, steps: int) -> str:
    """The `--set` of what makes room for a decay: shorter, or in a longer run."""
    room = steps - schedule.warmup_steps
    tenth = max(1, steps // 10)  # a common share of a decay
    shorter = f"--set schedule.decay_steps={min(schedule.decay_steps or tenth, max(1, room))}"
    if room < 1:
        shorter = f"--set schedule.warmup_steps={steps // 10} --set schedule.decay_steps={tenth}"
    if schedule.decay_steps == 0:
        return shorter
    return f"{shorter}, or --set steps={schedule.warmup_steps + schedule.decay_steps}"


def phases_fit(phases: Sequence[EarlierPhase], data: DataSettings, steps: int) -> Iterator[str]:
    """Earlier phases leave steps for the last one, and their rows are long enough."""
    taken = sum(phase.steps for phase in phases)
    if phases and taken >= steps:
        fits = steps - 1 - sum(phase.steps for phase in phases[:-1])
        lower = f"--set phases.{len(phases) - 1}.steps={fits} or less, " if fits > 0 else ""
        yield (
            f"phases take {taken:,} of steps={steps:,} and leave none for the last phase, at "
            f"data.sequence_length={data.sequence_length}; add --set steps={taken + 1} or more, "
            f"{lower}or --set phases=[] for a single phase"
        )
    for index, phase in enumerate(phases):
        yield from data.too_short(phase.sequence_length, f"phases.{index}.sequence_length")


def batch_warmup_fits(
    batch: BatchSettings, phases: Sequence[EarlierPhase], steps: int
) -> Iterator[str]:
    """Batch warm-up ends within the first phase and starts at or below its batch."""
    if phases and batch.warmup_steps > phases[0].steps:
        grown = steps + batch.warmup_steps - phases[0].steps
        yield (
            f"batch.warmup_steps={batch.warmup_steps} is longer than the first phase, which ends "
            f"at step {phases[0].steps:,}; add --set batch.warmup_steps={phases[0].steps}, or "
            f"--set phases.0.steps={batch.warmup_steps} --set steps={grown}"
        )
    first = phases[0].sequences if phases else batch.sequences
    if batch.warmup_steps and not batch.step_tokens and batch.first_sequences > first:
        owner = "phases.0" if phases else "batch"
        yield (
            f"batch.first_sequences={batch.first_sequences} is above {owner}.sequences={first}, "
            f"and the batch only grows; add --set batch.first_sequences={first}, --set "
            f"{owner}.sequences={batch.first_sequences}, or --set batch.warmup_steps=0"
        )
