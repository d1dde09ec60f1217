"""Rules across sections, with the remedies that they name; refusals.py applies these."""

import ast
import inspect
import itertools
from typing import Literal, get_args, get_origin

from pipeline.config import data_settings, encoder_settings, rules, training_settings
from pipeline.config import run as run_module
from pipeline.config.run import Run
from pipeline.config.schema import setting_types
from tests.pipeline.config.refusals import assert_refused, problems
from tests.remedies import alternatives

PHASES = 'phases=[{"steps":900,"sequence_length":128,"sequences":256}]'
STABLE = "schedule.kind=warmup_stable_decay"
RANDOM = "data.masking=token data.masks.random_share=0.1"
TIED = "objective.generator.tied=true"


def test_every_contradiction_names_settings_that_make_it_legal() -> None:
    for name, settings in (
        # phases fit the run
        ("roberta_base", f"steps=900 {PHASES}"),
        ("roberta_base", f"{PHASES} phases.0.sequence_length=600"),
        ("roberta_base", f"{PHASES} batch.warmup_steps=901"),
        ("roberta_base", f"{PHASES} batch.warmup_steps=9 batch.first_sequences=300"),
        # sections fit each other
        ("roberta_base", "data.format=doc_sentences batch.attention=document"),
        ("bert_base", "batch.attention=document"),
        ("roberta_base", "data.sequence_length=1024"),
        ("roberta_base", "objective.kind=mlm_pair"),
        ("roberta_base", "objective.kind=mlm_sbo"),
        ("roberta_base", "schedule.end_lr=1"),
        ("roberta_base", f"{STABLE} schedule.decay_steps=62000"),
        ("roberta_base", STABLE),
        ("roberta_base", f"{STABLE} schedule.decay_steps=9 steps=3000"),
        ("roberta_base", "batch.warmup_steps=9 batch.first_sequences=9000"),
        # a generator is the only source of replaced tokens
        ("electra_base", RANDOM),
        ("electra_base", f"objective.kind=replace_mlm {RANDOM}"),
        ("electra_base", TIED),
        ("electra_base", f"{TIED} objective.generator.embeddings=own objective.generator.width=1"),
        ("electra_base", "encoder.sharing=all"),
        ("electra_base", "encoder.sharing=all encoder.groups=2"),
        ("electra_base", "encoder.activation=gelu_tanh"),
        # sections of which test_data_settings.py and its like have the rest
        ("roberta_base", "data.masks.random_ids=unigram data.masks.random_share=0"),
        ("roberta_base", "data.duplicates=1 data.mask_mode=per-epoch"),
        ("bert_base", "data.format=full_sentences"),
        ("albert_base", "data.format=single_segment"),
        ("roberta_base", "data.segments.draws=2"),
        (
            "roberta_base",
            "data.format=single_segment data.segments.draws=2 data.segments.short_share=0",
        ),
        ("roberta_base", "encoder.groups=5"),
        ("albert_base", "encoder.groups=5"),
        ("roberta_base", "optimizer.bias_correction=false"),
        ("bert_base_published", "optimizer.kind=lamb optimizer.bias_correction=false"),
    ):
        assert_refused(name, settings)
    long = f"{PHASES} phases.0.sequence_length=600 data.sequence_length=700"
    assert_refused("roberta_base", long, 2)
    assert_refused("roberta_base", "objective.kind=rtd", 2)


def test_a_value_that_cannot_be_kept_gets_the_nearest_legal_one() -> None:
    for name, settings in (
        ("roberta_base", "name=a/b"),
        ("bert_base", "data.sequence_length=4"),
        ("roberta_base", "data.format=segment_pair data.sequence_length=5"),
        ("bert_base", f"{PHASES} phases.0.sequence_length=4"),
        ("electra_base", "objective.generator.layers=0.01"),
        ("electra_base", "objective.generator.width=0.45"),
        ("electra_base", "objective.generator.width=0.95"),
        ("electra_tiny", "objective.generator.width=0.001 objective.generator.layers=0.01"),
    ):
        assert_refused(name, settings, keeps=False)


def test_compatible_settings_are_accepted() -> None:
    for settings in (
        f"{PHASES} phases.0.steps=9 phases.0.sequences=9",
        "data.masking=electra data.masks.random_share=0 data.masks.mask_share=0.85",
        "data.format=single_segment data.segments.draws=2",
        "data.format=segment_pair data.segments.label=order data.segments.draws=10",
        "data.format=sentence_pair data.segments.label=next data.segments.draws=10",
        "data.masks.mask_share=0.9 data.masks.random_share=0.1",
        "data.masks.mask_share=1 data.masks.random_share=0",
        "steps=20",  # shorter than the warm-up: a smoke test of the schedule's start
        "seed=9223372036854775807",
        "encoder.embedding_width=768",
        "optimizer.kind=adamw optimizer.lamb_variant=nvlamb",
        "optimizer.kind=stable_adamw optimizer.lamb_variant=nvlamb",
        'logging.to=["wandb"]',
        "logging.to=[]",
    ):
        assert problems("roberta_base", *settings.split()) == [], settings


def test_the_remedies_of_any_changed_choice_lead_to_a_legal_run() -> None:
    """Every choice and switch of every family: legal after the remedies, and theirs if need be."""
    choices = {
        path: ("true", "false") if kind is bool else get_args(kind)
        for path, kind in setting_types(Run).items()
        if kind is bool or get_origin(kind) is Literal
    }
    asked = [f"{path}={value}" for path, values in choices.items() for value in values]
    for family in ("roberta", "bert", "albert", "electra", "spanbert", "modernbert"):
        name = f"{family}_base"
        refused = [setting for setting in asked if problems(name, setting)]
        assert len(refused) > 5
        for setting, pick in itertools.product(refused, (0, -1)):
            settings = [setting]
            for _ in range(2):
                found = problems(name, *settings)
                settings += itertools.chain(*(alternatives(each)[pick] for each in found))
            assert problems(name, *settings) == [], settings


def test_every_rule_names_a_remedy() -> None:
    """A function that yields messages of its own writes a `--set` into each or some of them."""
    for module in (rules, data_settings, encoder_settings, training_settings, run_module):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.FunctionDef):
                yields = [each for each in ast.walk(node) if isinstance(each, ast.Yield)]
                written = ast.unparse(node).count("--set")
                assert written >= len(yields), f"{module.__name__}.{node.name}"
