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


def test_every_contradiction_names_settings_that_make_it_legal() -> None:
    for name, settings, message in (
        # phases fit the run
        ("roberta_base", f"steps=900 {PHASES}", "phases take 900 of steps=900 and leave none"),
        ("roberta_base", f"{PHASES} phases.0.sequence_length=600", "phases.0.sequence_length=600"),
        ("roberta_base", f"{PHASES} phases.0.sequence_length=600 data.sequence_length=700", ""),
        ("roberta_base", f"{PHASES} batch.warmup_steps=901", "batch.warmup_steps=901 is longer"),
        (
            "roberta_base", f"{PHASES} batch.warmup_steps=9 batch.first_sequences=300",
            "batch.first_sequences=300 is above phases.0.sequences=256",
        ),
        # sections fit each other
        (
            "roberta_base", "data.format=doc_sentences batch.attention=document",
            "batch.attention=document isolates the documents of a row, but data.format=doc",
        ),
        ("bert_base", "batch.attention=document", ""),
        (
            "roberta_base", "data.sequence_length=1024",
            "data.sequence_length=1024 is longer than encoder.positions=512",
        ),
        ("roberta_base", "objective.kind=mlm_pair", "objective.kind=mlm_pair predicts data.segm"),
        ("roberta_base", "objective.kind=mlm_sbo", "objective.kind=mlm_sbo predicts masked spans"),
        ("roberta_base", "objective.kind=rtd", ""),
        (
            "roberta_base", "schedule.end_lr=1",
            "schedule.end_lr=1.0 is above optimizer.peak_lr=0.0025",
        ),
        (
            "roberta_base", f"{STABLE} schedule.decay_steps=62000",
            f"{STABLE} needs schedule.decay_steps=62000 above 0 and, with schedule.warmup_steps=31",
        ),
        ("roberta_base", STABLE, f"{STABLE} needs schedule.decay_steps=0 above 0"),
        ("roberta_base", f"{STABLE} schedule.decay_steps=9 steps=3000", ""),
        (
            "roberta_base", "batch.warmup_steps=9 batch.first_sequences=9000",
            "batch.first_sequences=9000 is above batch.sequences=8192",
        ),
        # a generator is the only source of replaced tokens
        (
            "electra_base", "data.masking=token data.masks.random_share=0.1",
            "objective.kind=rtd replaces tokens by a generator's, but data.masks.random_share=0.1",
        ),
        (
            "electra_base",
            "objective.kind=replace_mlm data.masking=token data.masks.random_share=0.1",
            "objective.kind=replace_mlm replaces tokens by a generator's, but data.masks.random_sh",
        ),
        (
            "electra_base", "objective.generator.tied=true",
            "objective.generator.tied=true uses the encoder itself, but objective.generator.layers"
            "=1 and width=0.333333",
        ),
        (
            "electra_base",
            "objective.generator.tied=true objective.generator.embeddings=own "
            "objective.generator.width=1",
            "objective.generator.tied=true uses the encoder itself, but objective.generator."
            "embeddings=own",
        ),
        (
            "electra_base", "encoder.sharing=all",
            "objective.kind=rtd has no transformers class for encoder.sharing=all",
        ),
        ("electra_base", "encoder.sharing=all encoder.groups=2", ""),
        ("electra_base", "encoder.activation=gelu_tanh", ""),
        # sections of which test_data_settings.py and its like have the rest
        ("roberta_base", "data.masks.random_ids=unigram data.masks.random_share=0", ""),
        ("roberta_base", "data.duplicates=1 data.mask_mode=per-epoch", ""),
        ("bert_base", "data.format=full_sentences", ""),
        ("albert_base", "data.format=single_segment", ""),
        ("roberta_base", "data.segments.draws=2", ""),
        (
            "roberta_base",
            "data.format=single_segment data.segments.draws=2 data.segments.short_share=0", "",
        ),
        ("roberta_base", "encoder.groups=5", ""),
        ("albert_base", "encoder.groups=5", ""),
        ("roberta_base", "optimizer.bias_correction=false", ""),
        ("bert_base_published", "optimizer.kind=lamb", ""),
    ):  # fmt: skip
        assert_refused(name, settings, message)


def test_a_value_that_cannot_be_kept_gets_the_nearest_legal_one() -> None:
    for name, settings, message in (
        ("roberta_base", "name=a/b", "name='a/b' cannot name a directory"),
        ("bert_base", "data.sequence_length=4", "data.sequence_length=4 is too short for two"),
        (
            "roberta_base", "data.format=segment_pair data.sequence_length=5",
            "data.sequence_length=5 is too short for two",
        ),
        ("bert_base", f"{PHASES} phases.0.sequence_length=4", "phases.0.sequence_length=4 is too"),
        ("electra_base", "objective.generator.layers=0.01", "objective.generator.layers=0.01 of"),
        ("electra_base", "objective.generator.width=0.45", "objective.generator.layers=1 of 12 "),
        ("electra_base", "objective.generator.width=0.95", "objective.generator.layers=1 of 12 "),
        (
            "electra_tiny", "objective.generator.width=0.001 objective.generator.layers=0.01",
            "objective.generator.layers=0.01 of",
        ),
    ):  # fmt: skip
        assert_refused(name, settings, message, keeps=False)


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
