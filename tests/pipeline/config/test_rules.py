from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.config.rules import INTERVALS
from pipeline.config.run import Run
from pipeline.config.settings import override, setting_types
from pipeline.errors import ConfigError
from pipeline.recipes import recipe

RUN = recipe("roberta_base")


PHASES = 'phases=[{"steps":900,"sequence_length":128,"sequences":256}]'


@pytest.mark.parametrize(
    "settings, message",
    [
        (
            f"steps=900 {PHASES}",
            "phases take 900 of steps=900 and leave none to the last phase, of "
            "data.sequence_length=512; raise steps above 900, lower phases.0.steps, or set "
            "phases=[] for a run of one",
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
            "phases.0.sequence_length=5 has no room for two segments of data.format=segment_pair; "
            "set 6 or more",
        ),
        (
            f"{PHASES} batch.warmup_steps=901",
            "batch.warmup_steps=901 goes on behind the first phase, which ends at step 900; lower "
            "it, or raise phases.0.steps",
        ),
        (
            f"{PHASES} batch.warmup_steps=9 batch.first_sequences=300",
            "batch.first_sequences=300 is above phases.0.sequences=256; a batch grows, so lower it "
            "or set batch.warmup_steps=0",
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


def test_every_number_has_a_legal_range() -> None:
    kinds = setting_types(Run)
    assert set(INTERVALS) == {path for path, kind in kinds.items() if kind in (int, float)}


@pytest.mark.parametrize(
    "settings, message",
    [
        ("data.masks.rate=0", "data.masks.rate=0.0 is out of range; choose one in (0, 1)"),
        (
            "data.lower_case=true",
            "data.lower_case=true does not go with data.tokenizer=byte-bpe, which keeps every "
            "byte; set it to false, or data.tokenizer to wordpiece or unigram",
        ),
        ("data.masks.rate=1", "data.masks.rate=1.0 is out of range; choose one in (0, 1)"),
        ("data.duplicates=-1", "data.duplicates=-1 is out of range; choose one in [0, inf)"),
        ("data.masks.span_p=0", "data.masks.span_p=0.0 is out of range; choose one in (0, 1]"),
        ("steps=-5", "steps=-5 is out of range; choose one in [1, inf)"),
        ("encoder.dropout=1", "encoder.dropout=1.0 is out of range; choose one in [0, 1)"),
        ("data.vocab_size=260", "data.vocab_size=260 is out of range; choose one in [261, 2**32)"),
        (
            "seed=9223372036854775808",
            "seed=9223372036854775808 is out of range; choose one in [0, 2**63)",
        ),
        (
            "data.sequence_length=65536",
            "data.sequence_length=65536 is out of range; choose one in [3, 65535]",
        ),
        (
            "data.segments.label=order",
            "data.segments.label=order needs two segments, data.format=full_sentences has none to "
            "compare; set data.format to one of segment_pair, sentence_pair, or "
            "data.segments.label=none",
        ),
        (
            "data.format=single_segment data.segments.label=next",
            "data.segments.label=next needs two segments, data.format=single_segment has none to "
            "compare; set data.format to one of segment_pair, sentence_pair, or "
            "data.segments.label=none",
        ),
        (
            "data.format=doc_sentences batch.attention=document",
            "batch.attention=document isolates the documents of a row, data.format=doc_sentences "
            "has one in each, or a pair that is to be compared; set batch.attention=row, or "
            "data.format=full_sentences",
        ),
        (
            "data.format=segment_pair data.sequence_length=5",
            "data.sequence_length=5 has no room for two segments of data.format=segment_pair; "
            "set 6 or more",
        ),
        (
            "data.format=sentence_pair data.segments.draws=2",
            "data.segments.draws=2 would store the same rows of data.format=sentence_pair again "
            "and again; set it to 1, or choose segment_pair, sentence_pair with "
            "data.segments.label=next, or single_segment with data.segments.short_share > 0",
        ),
        (
            "data.masking=electra",
            "data.masking=electra shows no random ids: set data.masks.random_share=0.1 to 0 "
            "(its paper keeps 15 %)",
        ),
        (
            "data.mask_mode=per-epoch",
            "data.mask_mode=per-epoch does not go with data.duplicates=10: static stores 1 mask, "
            "duplicates 1 or more, per-epoch none (0); change one of them",
        ),
        (
            "data.duplicates=0",
            "data.mask_mode=duplicates does not go with data.duplicates=0: static stores 1 mask, "
            "duplicates 1 or more, per-epoch none (0); change one of them",
        ),
        (
            "name=a/b",
            "name='a/b' cannot name a directory; use letters, digits, '_', '.' and '-'",
        ),
        (
            "data.masks.random_share=0.3",
            "data.masks.mask_share=0.8 and data.masks.random_share=0.3 add up to more than 1; "
            "lower one",
        ),
        (
            "data.mask_mode=static",
            "data.mask_mode=static does not go with data.duplicates=10: static stores 1 mask, "
            "duplicates 1 or more, per-epoch none (0); change one of them",
        ),
        (
            "data.reader=read",
            "data.reader=read reads whole blocks, data.order=global needs single rows; "
            "set data.order=blocks or data.reader=mmap",
        ),
        (
            "data.sequence_length=1024",
            "data.sequence_length=1024 is longer than encoder.positions=512; "
            "raise encoder.positions too",
        ),
        (
            "encoder.heads=7",
            "encoder.width=768 does not divide into encoder.heads=7; "
            "choose a number of heads that divides it",
        ),
        (
            "encoder.embedding_width=768",
            "encoder.embedding_width=768 is not below encoder.width=768; lower it to factorise "
            "the word table, or set it to 0",
        ),
        (
            "encoder.sharing=all encoder.groups=5",
            "encoder.layers=12 does not divide into encoder.groups=5 of equal size; set "
            "encoder.groups to one of 1, 2, 3, 4, 6, 12",
        ),
        (  # nothing says it: layers that share have one width
            "encoder.sharing=all encoder.group_width=64",
            "unknown setting encoder.group_width; did you mean encoder.width?",
        ),
        (
            "encoder.groups=2",
            "encoder.groups=2 has no effect with encoder.sharing=none; set it to 1, or "
            "encoder.sharing to all, attention or feed_forward",
        ),
        (
            "objective.kind=mlm_pair",
            "objective.kind=mlm_pair predicts data.segments.label, which is none; set it to next "
            "or order, with data.format one of segment_pair, sentence_pair, or objective.kind=mlm",
        ),
        (
            "objective.kind=mlm_sbo",
            "objective.kind=mlm_sbo asks for the words of spans, data.masking=token draws none; "
            "set data.masking=span, or objective.kind=mlm",
        ),
        (
            "schedule.end_lr=1",
            "schedule.end_lr=1.0 is above optimizer.peak_lr=0.0025; lower it",
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
            "objective.kind=rtd replaces tokens by its generator, data.masks.random_share=0.1 by "
            "random ids; set that to 0, as data.masking=electra does, or objective.kind=mlm",
        ),
        (
            "objective.generator.tied=true",
            "objective.generator.tied=True is the encoder itself, objective.generator.layers=1 "
            "and width=0.333333 are not; set both to 1, or tied=false",
        ),
        (
            "objective.generator.layers=0.01",
            "objective.generator.layers=0.01 of 12 and width=0.333333 of 768 make 0 layers of 256 "
            "in 4 heads; choose shares of at least one layer, and a width that its heads divide",
        ),
        (
            "objective.generator.width=0.45",
            "objective.generator.layers=1 of 12 and width=0.45 of 768 make 12 layers of 346 in 5 "
            "heads; choose shares of at least one layer, and a width that its heads divide",
        ),
        (
            "encoder.sharing=all",
            "objective.kind=rtd has no class in transformers with encoder.sharing=all, "
            "encoder.position_offset=0 and encoder.activation=gelu; set them to none, 0 and gelu",
        ),
    ],
)
def test_a_generator_that_cannot_be_is_refused_in_one_line(settings: str, message: str) -> None:
    """TRAPS 4: no random ids beside a generator's."""
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
        "steps=20",  # below the warm-up: a smoke test of the same schedule's start
        "optimizer.kind=adamw",
        "seed=9223372036854775807",
    ],
)
def test_legal_pairs_pass_together(settings: str) -> None:
    assert override(RUN, settings.split()) != RUN


def test_replacing_a_field_checks_too() -> None:
    with pytest.raises(ConfigError, match="steps=0 is out of range"):
        replace(RUN, steps=0)
