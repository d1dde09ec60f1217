"""Which runs are legal: ranges, and values that exclude each other.

`INTERVALS` holds the legal range of every number of a `Run`; what the settings mean is said in
`run.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

from pipeline.config.formats import PAIR_FORMATS, SEPARATORS
from pipeline.config.settings import inside, parts_per_million
from pipeline.errors import ConfigError

if TYPE_CHECKING:
    from pipeline.config.run import Data, Encoder, Run

INTERVALS = {
    "seed": "[0, 2**63)",
    "data.sequence_length": "[3, 65535]",  # two special tokens and a text token; uint16 positions
    "data.segments.short_share": "[0, 1]",
    "data.segments.single_share": "[0, 1)",
    "data.segments.draws": "[1, 1024]",
    "data.duplicates": "[0, inf)",
    "data.masks.rate": "(0, 1)",
    "data.masks.mask_share": "[0, 1]",
    "data.masks.random_share": "[0, 1]",
    "data.masks.max_ngram": "[1, 64]",
    "data.masks.span_p": "(0, 1]",
    "data.masks.max_span": "[1, 64]",
    "data.vocab_size": "[261, 2**32)",  # 256 bytes and five special tokens; uint32 ids
    "data.seed": "[0, 2**63)",
    "data.validation_fraction": "(0, 0.5]",
    "encoder.layers": "[1, inf)",
    "encoder.width": "[1, inf)",
    "encoder.heads": "[1, inf)",
    "encoder.embedding_width": "[0, inf)",
    "encoder.feed_forward": "[1, inf)",
    "encoder.groups": "[1, inf)",
    "encoder.dropout": "[0, 1)",
    "encoder.layer_norm_eps": "(0, 1)",
    "encoder.positions": "[3, 65535]",
    "encoder.position_offset": "[0, inf)",
    "encoder.segment_types": "[1, inf)",
    "encoder.initializer_range": "(0, inf)",
    "objective.pair_weight": "(0, inf)",
    "objective.boundary_weight": "(0, inf)",
    "objective.detection_weight": "(0, inf)",
    "objective.generator.layers": "(0, 1]",
    "objective.generator.width": "(0, 1]",
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
    "batch.step_tokens": "[0, inf)",
    "batch.per_device": "[1, inf)",
    "batch.warmup_steps": "[0, inf)",
    "batch.first_sequences": "[1, inf)",
    "batch.order_window": "[1, inf)",
    "steps": "[1, inf)",
    "spikes.deviations": "[0, inf)",
    "spikes.window": "[3, 10000]",  # a state.json of some 200 kB
    "spikes.rollbacks": "[0, inf)",
    "spikes.skip_before": "[0, inf)",
    "spikes.skip_after": "[0, inf)",
    "validation.every": "[1, inf)",
    "checkpoint.every": "[1, inf)",
    "checkpoint.keep": "[1, inf)",
    "checkpoint.keep_every": "[0, inf)",
    "logging.every": "[1, inf)",
    "logging.hang_seconds": "[1, inf)",
}
"""Legal range of every number, as errors print it: a round bracket excludes its end."""
PHASE_SETTINGS = {
    "steps": "steps", "sequence_length": "data.sequence_length", "sequences": "batch.sequences",
}  # fmt: skip
"""Settings of an entry of `phases`, and the ones that they stand in for."""


def check(run: Run) -> None:
    """Raise ConfigError for a value that is out of range or contradicts another."""
    for path, interval in INTERVALS.items():
        value = attrgetter(path)(run)
        if not inside(value, interval):
            raise ConfigError(f"{path}={value} is out of range; choose one in {interval}")
    for index, phase in enumerate(run.phases):
        for name, path in PHASE_SETTINGS.items():
            if not inside(value := getattr(phase, name), INTERVALS[path]):
                raise ConfigError(
                    f"phases.{index}.{name}={value} is out of range; choose one in "
                    f"{INTERVALS[path]}"
                )
    for contradiction in _contradictions(run):
        raise ConfigError(contradiction)


def _contradictions(run: Run) -> Iterator[str]:
    data, encoder, masks = run.data, run.encoder, run.data.masks
    if not re.fullmatch(r"[\w.-]+", run.name):
        yield f"name={run.name!r} cannot name a directory; use letters, digits, '_', '.' and '-'"
    if (
        parts_per_million(data.masks.mask_share) + parts_per_million(data.masks.random_share)
        > 10**6
    ):
        yield (
            f"data.masks.mask_share={masks.mask_share} and data.masks.random_share="
            f"{masks.random_share} add up to more than 1; lower one"
        )
    if data.masking == "electra" and masks.random_share > 0:
        share = f"data.masks.random_share={masks.random_share} to 0"
        yield f"data.masking=electra shows no random ids: set {share} (its paper keeps 15 %)"
    if data.tokenizer == "byte-bpe" and data.lower_case:
        yield (
            "data.lower_case=true does not go with data.tokenizer=byte-bpe, which keeps every "
            "byte; set it to false, or data.tokenizer to wordpiece or unigram"
        )
    legal = {"static": data.duplicates == 1, "per-epoch": data.duplicates == 0}
    if not legal.get(data.mask_mode, data.duplicates > 0):
        yield (
            f"data.mask_mode={data.mask_mode} does not go with data.duplicates={data.duplicates}: "
            "static stores 1 mask, duplicates 1 or more, per-epoch none (0); change one of them"
        )
    yield from _format_contradictions(data)
    if run.batch.attention == "document" and data.format != "full_sentences":
        yield (
            f"batch.attention=document isolates the documents of a row, data.format={data.format} "
            "has one in each, or a pair that is to be compared; set batch.attention=row, or "
            "data.format=full_sentences"
        )
    if data.reader == "read" and data.order != "blocks":
        yield (
            f"data.reader=read reads whole blocks, data.order={data.order} needs single rows; "
            "set data.order=blocks or data.reader=mmap"
        )
    lengths = {f"phases.{n}": phase.sequence_length for n, phase in enumerate(run.phases)}
    for owner, length in (lengths | {"data": data.sequence_length}).items():
        if length > encoder.positions:
            yield (
                f"{owner}.sequence_length={length} is longer than encoder.positions="
                f"{encoder.positions}; raise encoder.positions too"
            )
    yield from _encoder_contradictions(encoder)
    yield from _objective_contradictions(run)
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
    if run.spikes.rollbacks and run.spikes.deviations == 0:
        yield (
            f"spikes.rollbacks={run.spikes.rollbacks} answers spikes, spikes.deviations=0 looks "
            "for none; set spikes.deviations, e.g. to 10"
        )
    yield from _schedule_contradictions(run)
    yield from _phase_contradictions(run)


def _phase_contradictions(run: Run) -> Iterator[str]:
    """What is wrong with the order of lengths and batches."""
    steps, batch = sum(phase.steps for phase in run.phases), run.batch
    if run.phases and steps >= run.steps:
        yield (
            f"phases take {steps:,} of steps={run.steps:,} and leave none to the last phase, of "
            f"data.sequence_length={run.data.sequence_length}; raise steps above {steps:,}, lower "
            f"phases.{len(run.phases) - 1}.steps, or set phases=[] for a run of one"
        )
    for index, phase in enumerate(run.phases):
        for reason in _format_contradictions(
            replace(run.data, sequence_length=phase.sequence_length)
        ):
            yield reason.replace("data.sequence_length", f"phases.{index}.sequence_length")
    if run.phases and batch.warmup_steps > run.phases[0].steps:
        yield (
            f"batch.warmup_steps={batch.warmup_steps} goes on behind the first phase, which ends "
            f"at step {run.phases[0].steps:,}; lower it, or raise phases.0.steps"
        )
    first = run.phases[0].sequences if run.phases else batch.sequences
    if batch.warmup_steps and not batch.step_tokens and batch.first_sequences > first:
        owner = "phases.0" if run.phases else "batch"
        yield (
            f"batch.first_sequences={batch.first_sequences} is above {owner}.sequences={first}; a "
            "batch grows, so lower it or set batch.warmup_steps=0"
        )


def _encoder_contradictions(encoder: Encoder) -> Iterator[str]:
    if encoder.width % encoder.heads:
        yield (
            f"encoder.width={encoder.width} does not divide into encoder.heads={encoder.heads}; "
            "choose a number of heads that divides it"
        )
    if encoder.embedding_width >= encoder.width:
        yield (
            f"encoder.embedding_width={encoder.embedding_width} is not below encoder.width="
            f"{encoder.width}; lower it to factorise the word table, or set it to 0"
        )
    if encoder.sharing == "none" and encoder.groups != 1:
        yield (
            f"encoder.groups={encoder.groups} has no effect with encoder.sharing=none; set it to "
            "1, or encoder.sharing to all, attention or feed_forward"
        )
    if encoder.layers % encoder.groups:
        legal = [n for n in range(1, encoder.layers + 1) if encoder.layers % n == 0]
        yield (
            f"encoder.layers={encoder.layers} does not divide into encoder.groups="
            f"{encoder.groups} of equal size; set encoder.groups to one of "
            f"{', '.join(map(str, legal))}"
        )


def _objective_contradictions(run: Run) -> Iterator[str]:
    if run.objective.kind == "mlm_pair" and run.data.segments.label == "none":
        yield (
            "objective.kind=mlm_pair predicts data.segments.label, which is none; set it to next "
            f"or order, with data.format one of {', '.join(PAIR_FORMATS)}, or objective.kind=mlm"
        )
    if run.objective.kind == "rtd":
        yield from _generator_contradictions(run)
    if run.objective.kind == "mlm_sbo" and run.data.masking != "span":
        yield (
            f"objective.kind=mlm_sbo asks for the words of spans, data.masking={run.data.masking} "
            "draws none; set data.masking=span, or objective.kind=mlm"
        )


def generator_sizes(run: Run) -> tuple[int, int, int]:
    """Layers, width and heads of the generator, as google-research/electra derives them."""
    shares = run.objective.generator
    width = round(run.encoder.width * shares.width)
    return round(run.encoder.layers * shares.layers), width, max(1, width // 64)


def _generator_contradictions(run: Run) -> Iterator[str]:
    shares, encoder = run.objective.generator, run.encoder
    layers, width, heads = generator_sizes(run)
    if shares.tied and (shares.layers, shares.width) != (1, 1):
        yield (
            f"objective.generator.tied=True is the encoder itself, objective.generator.layers="
            f"{shares.layers:g} and width={shares.width:g} are not; set both to 1, or tied=false"
        )
    elif layers < 1 or width < 1 or width % heads:
        yield (
            f"objective.generator.layers={shares.layers:g} of {encoder.layers} and width="
            f"{shares.width:g} of {encoder.width} make {layers} layers of {width} in {heads} "
            "heads; choose shares of at least one layer, and a width that its heads divide"
        )
    if run.data.masks.random_share > 0:
        yield (
            f"objective.kind=rtd replaces tokens by its generator, data.masks.random_share="
            f"{run.data.masks.random_share} by random ids; set that to 0, as data.masking=electra "
            "does, or objective.kind=mlm"
        )
    if encoder.sharing != "none" or encoder.position_offset or encoder.activation != "gelu":
        yield (
            f"objective.kind=rtd has no class in transformers with encoder.sharing="
            f"{encoder.sharing}, encoder.position_offset={encoder.position_offset} and "
            f"encoder.activation={encoder.activation}; set them to none, 0 and gelu"
        )


def _format_contradictions(data: Data) -> Iterator[str]:
    segments, paired = data.segments, data.format in PAIR_FORMATS
    if segments.label != "none" and not paired:
        yield (
            f"data.segments.label={segments.label} needs two segments, data.format={data.format} "
            f"has none to compare; set data.format to one of {', '.join(PAIR_FORMATS)}, or "
            "data.segments.label=none"
        )
    least = 4 + SEPARATORS[data.tokenizer]
    if paired and data.sequence_length < least:
        yield (
            f"data.sequence_length={data.sequence_length} has no room for two segments of "
            f"data.format={data.format}; set {least} or more"
        )
    if segments.draws > 1 and not _draws_differ(data):
        yield (
            f"data.segments.draws={segments.draws} would store the same rows of data.format="
            f"{data.format} again and again; set it to 1, or choose segment_pair, sentence_pair "
            "with data.segments.label=next, or single_segment with data.segments.short_share > 0"
        )


def _draws_differ(data: Data) -> bool:
    """Whether anything of a row is drawn at random."""
    segments = data.segments
    return {
        "segment_pair": True,
        "sentence_pair": segments.label == "next",
        "single_segment": segments.short_share > 0,
    }.get(data.format, False)


def _schedule_contradictions(run: Run) -> Iterator[str]:
    schedule = run.schedule
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
