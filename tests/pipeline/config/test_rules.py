from __future__ import annotations

import pytest

from pipeline.config.settings import override
from pipeline.errors import ConfigError
from pipeline.recipes import recipe

RUN = recipe("roberta_base")


PHASES = 'phases=[{"steps":900,"sequence_length":128,"sequences":256}]'


@pytest.mark.parametrize(
    "settings, message",
    [
        (
            f"steps=900 {PHASES}",
            "phases take 900 of steps=900 and leave none for the last phase, at "
            "data.sequence_length=512; raise steps above 900, lower phases.0.steps, or set "
            "phases=[] for a single phase",
        ),
        (
            f"{PHASES} phases.0.steps=0",
            "phases.0.steps=0 is out of range; choose one in [1, inf)",
        ),
        (
            f"{PHASES} phases.0.sequence_length=2",
            "phases.0.sequence_length=2 is out of range; choose one in [3, 65535]",
        ),
        (
            f"{PHASES} phases.0.sequence_length=600",
            "phases.0.sequence_length=600 is longer than encoder.positions=512; raise "
            "encoder.positions too",
        ),
        (
            f"{PHASES} phases.0.sequence_length=5 data.format=segment_pair",
            "phases.0.sequence_length=5 is too short for two segments of data.format=segment_pair; "
            "set 6 or more",
        ),
        (
            f"{PHASES} batch.warmup_steps=901",
            "batch.warmup_steps=901 is longer than the first phase, which ends at step 900; lower "
            "it, or raise phases.0.steps",
        ),
        (
            f"{PHASES} batch.warmup_steps=9 batch.first_sequences=300",
            "batch.first_sequences=300 is above phases.0.sequences=256, and the batch only grows; "
            "lower it, or set batch.warmup_steps=0",
        ),
        (f"{PHASES} phases.0.steps=9 phases.0.sequences=9", ""),
    ],
)
def test_phases_fit_the_run(settings: str, message: str) -> None:
    try:
        override(RUN, settings.split())
    except ConfigError as error:
        assert str(error) == message
    else:
        assert not message


@pytest.mark.parametrize(
    "settings, message",
    [
        (
            "data.format=doc_sentences batch.attention=document",
            "batch.attention=document isolates the documents of a row, but data.format="
            "doc_sentences has one document or one pair per row; set batch.attention=row, or "
            "data.format=full_sentences",
        ),
        (
            "name=a/b",
            "name='a/b' cannot name a directory; use letters, digits, '_', '.' or '-'",
        ),
        (
            "data.sequence_length=1024",
            "data.sequence_length=1024 is longer than encoder.positions=512; "
            "raise encoder.positions too",
        ),
        (  # there is no such setting: layers that share weights have one width
            "encoder.sharing=all encoder.group_width=64",
            "unknown setting encoder.group_width; did you mean encoder.width?",
        ),
        (
            "objective.kind=mlm_pair",
            "objective.kind=mlm_pair predicts data.segments.label, which is none; set it to next "
            "or order with data.format one of segment_pair, sentence_pair, or set "
            "objective.kind=mlm",
        ),
        (
            "objective.kind=mlm_sbo",
            "objective.kind=mlm_sbo predicts masked spans, but data.masking=token draws none; "
            "set data.masking=span, or objective.kind=mlm",
        ),
        (
            "schedule.end_lr=1",
            "schedule.end_lr=1.0 is above optimizer.peak_lr=0.0025; lower it",
        ),
        (
            "schedule.kind=warmup_stable_decay schedule.decay_steps=62000",
            "schedule.kind=warmup_stable_decay needs schedule.decay_steps=62000 above 0 and, with "
            "schedule.warmup_steps=3125, at most steps=62500; change one of them",
        ),
        (
            "batch.warmup_steps=9 batch.first_sequences=9000",
            "batch.first_sequences=9000 is above batch.sequences=8192, and the batch only grows; "
            "lower it, or set batch.warmup_steps=0",
        ),
    ],
)
def test_an_illegal_run_is_refused_in_one_line(settings: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        override(RUN, settings.split())
    assert str(error.value) == message


@pytest.mark.parametrize(
    "settings, message",
    [
        (
            "data.masking=token data.masks.random_share=0.1",
            "objective.kind=rtd replaces tokens by a generator's, but data.masks.random_share=0.1 "
            "replaces them at random; set that to 0, as data.masking=electra requires, or set "
            "objective.kind=mlm",
        ),
        (
            "objective.generator.tied=true",
            "objective.generator.tied=true uses the encoder itself, but objective.generator."
            "layers=1 and width=0.333333 are not both 1; set both to 1, or tied=false",
        ),
        (
            "objective.generator.layers=0.01",
            "objective.generator.layers=0.01 of 12 and width=0.333333 of 768 give 0 layers of "
            "width 256 with 4 heads; choose shares that give at least one layer and a width "
            "divisible by the number of heads",
        ),
        (
            "objective.generator.width=0.45",
            "objective.generator.layers=1 of 12 and width=0.45 of 768 give 12 layers of width 346 "
            "with 5 heads; choose shares that give at least one layer and a width divisible by the "
            "number of heads",
        ),
        (
            "encoder.sharing=all",
            "objective.kind=rtd has no transformers class for encoder.sharing=all, "
            "encoder.position_offset=0 and encoder.activation=gelu; set them to none, 0 and gelu",
        ),
    ],
)
def test_an_invalid_generator_is_refused_in_one_line(settings: str, message: str) -> None:
    """Among other rules, the generator is the only source of replaced tokens."""
    with pytest.raises(ConfigError) as error:
        override(recipe("electra_base"), settings.split())
    assert str(error.value) == message


@pytest.mark.parametrize(
    "settings",
    [
        "data.mask_mode=static data.duplicates=1",
        "data.mask_mode=per-epoch data.duplicates=0",
        "data.masking=electra data.masks.random_share=0 data.masks.mask_share=0.85",
        "data.reader=read data.order=blocks",
        "data.format=doc_sentences",
        "data.format=single_segment data.segments.draws=2",
        "data.format=segment_pair data.segments.label=order data.segments.draws=10",
        "data.format=sentence_pair data.segments.label=next data.segments.draws=10",
        "data.sequence_length=1024 encoder.positions=1024",
        "data.masks.mask_share=0.9 data.masks.random_share=0.1",
        "data.masks.mask_share=1 data.masks.random_share=0",
        "objective.kind=mlm_sbo data.masking=span",
        "steps=20",  # shorter than the warm-up: a smoke test of the schedule's start
        "optimizer.kind=adamw",
        "seed=9223372036854775807",
    ],
)
def test_compatible_settings_are_accepted(settings: str) -> None:
    assert override(RUN, settings.split()) != RUN
