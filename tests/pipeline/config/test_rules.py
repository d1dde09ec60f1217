from __future__ import annotations

import ast
import inspect
import itertools
from collections.abc import Sequence
from typing import Literal, get_args, get_origin

import pytest

from pipeline.base.errors import ConfigError
from pipeline.config import data_settings, encoder_settings, rules, training_settings
from pipeline.config import run as run_module
from pipeline.config.run import Run
from pipeline.config.schema import setting_types
from pipeline.config.settings import override
from pipeline.recipes import recipe
from tests.remedies import alternatives, problems_of

RUN = recipe("roberta_base")


PHASES = 'phases=[{"steps":900,"sequence_length":128,"sequences":256}]'


@pytest.mark.parametrize(
    "settings, message",
    [
        (
            f"steps=900 {PHASES}",
            "phases take 900 of steps=900 and leave none for the last phase, at "
            "data.sequence_length=512; add --set steps=901 or more, --set phases.0.steps=899 or "
            "less, or --set phases=[] for a single phase",
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
            "phases.0.sequence_length=600 is longer than encoder.positions=512; add --set "
            "encoder.positions=600, or --set phases.0.sequence_length=512",
        ),
        (
            f"{PHASES} phases.0.sequence_length=5 data.format=segment_pair",
            "phases.0.sequence_length=5 is too short for two segments of "
            "data.format=segment_pair; add --set phases.0.sequence_length=6 or more",
        ),
        (
            f"{PHASES} batch.warmup_steps=901",
            "batch.warmup_steps=901 is longer than the first phase, which ends at step 900; add "
            "--set batch.warmup_steps=900, or --set phases.0.steps=901 --set steps=62501",
        ),
        (
            f"{PHASES} batch.warmup_steps=9 batch.first_sequences=300",
            "batch.first_sequences=300 is above phases.0.sequences=256, and the batch only grows; "
            "add --set batch.first_sequences=256, --set phases.0.sequences=300, or --set "
            "batch.warmup_steps=0",
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
            "batch.attention=document isolates the documents of a row, but "
            "data.format=doc_sentences has one document or one pair per row; add --set "
            "batch.attention=row, or --set data.format=full_sentences",
        ),
        (
            "name=a/b",
            "name='a/b' cannot name a directory, which has letters, digits, '_', '.' and '-'; add "
            "--set name=a-b",
        ),
        (
            "data.sequence_length=1024",
            "data.sequence_length=1024 is longer than encoder.positions=512; add --set "
            "encoder.positions=1024, or --set data.sequence_length=512",
        ),
        (  # there is no such setting: layers that share weights have one width
            "encoder.sharing=all encoder.group_width=64",
            "unknown setting encoder.group_width; did you mean encoder.width?",
        ),
        (
            "objective.kind=mlm_pair",
            "objective.kind=mlm_pair predicts data.segments.label, which is none; add --set "
            "data.format=segment_pair --set data.segments.label=next or --set "
            "data.format=segment_pair --set data.segments.label=order, or --set "
            "objective.kind=mlm",
        ),
        (
            "objective.kind=mlm_sbo",
            "objective.kind=mlm_sbo predicts masked spans, but data.masking=token draws none; add "
            "--set data.masking=span, or --set objective.kind=mlm",
        ),
        (
            "schedule.end_lr=1",
            "schedule.end_lr=1.0 is above optimizer.peak_lr=0.0025; add --set schedule.end_lr=0, "
            "or --set optimizer.peak_lr=1.0",
        ),
        (
            "schedule.kind=warmup_stable_decay schedule.decay_steps=62000",
            "schedule.kind=warmup_stable_decay needs schedule.decay_steps=62000 above 0 and, with "
            "schedule.warmup_steps=3125, at most steps=62500; add --set "
            "schedule.decay_steps=59375, or --set steps=65125",
        ),
        (
            "batch.warmup_steps=9 batch.first_sequences=9000",
            "batch.first_sequences=9000 is above batch.sequences=8192, and the batch only grows; "
            "add --set batch.first_sequences=8192, --set batch.sequences=9000, or --set "
            "batch.warmup_steps=0",
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
            "replaces them at random; add --set data.masks.random_share=0, or --set "
            "objective.kind=mlm",
        ),
        (
            "objective.generator.tied=true",
            "objective.generator.tied=true uses the encoder itself, but "
            "objective.generator.layers=1 and width=0.333333 are not both 1; add --set "
            "objective.generator.layers=1 --set objective.generator.width=1, or --set "
            "objective.generator.tied=false",
        ),
        (
            "objective.generator.tied=true objective.generator.embeddings=own "
            "objective.generator.width=1",
            "objective.generator.tied=true uses the encoder itself, but objective.generator."
            "embeddings=own; add --set objective.generator.embeddings=shared, or --set "
            "objective.generator.tied=false",
        ),
        (
            "objective.kind=replace_mlm data.masking=token data.masks.random_share=0.1",
            "objective.kind=replace_mlm replaces tokens by a generator's, but data.masks."
            "random_share=0.1 replaces them at random; add --set data.masks.random_share=0, or "
            "--set objective.kind=mlm",
        ),
        (
            "objective.generator.layers=0.01",
            "objective.generator.layers=0.01 of 12 and width=0.333333 of 768 give 0 layers of "
            "width 256 with 4 heads, but there must be a layer and a width divisible by the "
            "heads; add --set objective.generator.layers=0.0833333",
        ),
        (
            "objective.generator.width=0.45",
            "objective.generator.layers=1 of 12 and width=0.45 of 768 give 12 layers of width 346 "
            "with 5 heads, but there must be a layer and a width divisible by the heads; add "
            "--set objective.generator.width=0.416667",
        ),
        (
            "encoder.sharing=all",
            "objective.kind=rtd has no transformers class for encoder.sharing=all, "
            "encoder.position_offset=0 and encoder.activation=gelu; add --set "
            "encoder.sharing=none, or --set objective.kind=mlm",
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


def refused(recipe_name: str, settings: Sequence[str]) -> list[str]:
    """The problems of a recipe with these settings."""
    try:
        override(recipe(recipe_name), settings)
    except ConfigError as error:
        return problems_of(error)
    return []


@pytest.mark.parametrize(
    "recipe_name, settings",
    [
        ("roberta_base", "data.masks.random_share=0.3"),
        ("roberta_base", "data.masking=electra"),
        ("roberta_base", "data.masks.random_ids=unigram data.masks.random_share=0"),
        ("roberta_base", "data.lower_case=true"),
        ("roberta_base", "data.mask_mode=static"),
        ("roberta_base", "data.mask_mode=per-epoch"),
        ("roberta_base", "data.duplicates=0"),
        ("roberta_base", "data.duplicates=1 data.mask_mode=per-epoch"),
        ("roberta_base", "data.reader=read"),
        ("roberta_base", "data.segments.label=order"),
        ("bert_base", "data.format=full_sentences"),
        ("albert_base", "data.format=single_segment"),
        ("roberta_base", "data.segments.draws=2"),
        ("roberta_base", "data.format=sentence_pair data.segments.draws=2"),
        (
            "roberta_base",
            "data.format=single_segment data.segments.draws=2 data.segments.short_share=0",
        ),
        ("roberta_base", "encoder.heads=7"),
        ("roberta_base", "encoder.groups=5"),
        ("albert_base", "encoder.groups=5"),
        ("roberta_base", "optimizer.lamb_variant=nvlamb"),
        ("roberta_base", "optimizer.bias_correction=false"),
        ("bert_base_published", "optimizer.kind=lamb"),
        ("roberta_base", "schedule.kind=inverse_sqrt schedule.warmup_steps=0"),
        ("roberta_base", "spikes.rollbacks=2"),
        ("roberta_base", "checkpoint.keep_every=1500"),
        ("bert_base", "batch.attention=document"),
        ("roberta_base", "data.sequence_length=1024"),
        ("roberta_base", f"{PHASES} phases.0.sequence_length=600 data.sequence_length=700"),
        ("roberta_base", "objective.kind=mlm_pair"),
        ("roberta_base", "objective.kind=mlm_sbo"),
        ("roberta_base", "objective.kind=rtd"),
        ("electra_base", "data.masking=token data.masks.random_share=0.1"),
        ("electra_base", "objective.generator.tied=true"),
        ("electra_base", "encoder.sharing=all encoder.groups=2"),
        ("electra_base", "encoder.activation=gelu_tanh"),
        ("roberta_base", "schedule.end_lr=1"),
        ("roberta_base", "schedule.kind=warmup_stable_decay"),
        ("roberta_base", "schedule.kind=warmup_stable_decay schedule.decay_steps=62000"),
        ("roberta_base", "schedule.kind=warmup_stable_decay schedule.decay_steps=9 steps=3000"),
        ("roberta_base", f"{PHASES} steps=900"),
        ("roberta_base", f"{PHASES} batch.warmup_steps=901"),
        ("roberta_base", f"{PHASES} batch.warmup_steps=9 batch.first_sequences=300"),
        ("roberta_base", "batch.warmup_steps=9 batch.first_sequences=9000"),
    ],
)
def test_every_contradiction_names_settings_that_make_it_legal(
    recipe_name: str, settings: str
) -> None:
    """Each combination of the remedies is legal, and one keeps what was asked for."""
    asked = settings.split()
    problems = refused(recipe_name, asked)
    assert problems
    remedies = [alternatives(problem) for problem in problems]
    assert all(remedies), problems
    for chosen in itertools.product(*remedies):
        assert refused(recipe_name, [*asked, *itertools.chain(*chosen)]) == []
    for setting in asked:
        path = setting.partition("=")[0] + "="
        assert any(
            not any(each.startswith(path) for each in itertools.chain(*chosen))
            for chosen in itertools.product(*remedies)
        ), f"every remedy undoes {setting}"


@pytest.mark.parametrize(
    "recipe_name, settings",
    [
        ("roberta_base", "name=a/b"),
        ("bert_base", "data.sequence_length=4"),
        ("bert_base", f"{PHASES} phases.0.sequence_length=4"),
        ("roberta_base", "encoder.embedding_width=1000"),
        ("electra_base", "objective.generator.layers=0.01"),
        ("electra_base", "objective.generator.width=0.45"),
        ("electra_base", "objective.generator.width=0.95"),
        ("electra_tiny", "objective.generator.width=0.001 objective.generator.layers=0.01"),
    ],
)
def test_a_value_that_cannot_be_kept_gets_the_nearest_legal_one(
    recipe_name: str, settings: str
) -> None:
    (problem,) = refused(recipe_name, settings.split())
    (remedy,) = alternatives(problem)
    assert refused(recipe_name, [*settings.split(), *remedy]) == []


FAMILY_RECIPES = [
    "roberta_base", "bert_base", "albert_base", "electra_base", "spanbert_base", "modernbert_base",
]  # fmt: skip


@pytest.mark.parametrize("recipe_name", FAMILY_RECIPES)
def test_the_remedies_of_any_changed_choice_lead_to_a_legal_run(recipe_name: str) -> None:
    """Every choice and switch of every family: legal after the remedies, and theirs if need be."""
    changed = 0
    for path, kind in setting_types(Run).items():
        values = ("true", "false") if kind is bool else get_args(kind)
        for value in values if kind is bool or get_origin(kind) is Literal else ():
            for pick in (0, -1):
                settings = [f"{path}={value}"]
                for _ in range(2):
                    problems = refused(recipe_name, settings)
                    changed += bool(problems)
                    settings += itertools.chain(*(alternatives(each)[pick] for each in problems))
                assert refused(recipe_name, settings) == [], settings
    assert changed > 10


def test_every_rule_names_a_remedy() -> None:
    """A function that yields messages of its own writes a `--set` into each or some of them."""
    for module in (rules, data_settings, encoder_settings, training_settings, run_module):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.FunctionDef):
                yields = [each for each in ast.walk(node) if isinstance(each, ast.Yield)]
                written = ast.unparse(node).count("--set")
                assert written >= len(yields), f"{module.__name__}.{node.name}"
