import ast
import inspect
from dataclasses import MISSING, FrozenInstanceError, fields, is_dataclass, replace
from typing import Literal, get_args, get_origin

import pytest

import pipeline.config.data_settings
import pipeline.config.encoder_settings
import pipeline.config.run
import pipeline.config.training_settings
from pipeline.base.errors import ConfigError
from pipeline.config.run import Run
from pipeline.config.schema import setting_types, settings_of
from pipeline.config.settings import from_dict, to_dict
from pipeline.config.training_settings import EarlierPhase
from pipeline.recipes import recipe
from tests.pipeline.config.refusals import problems

RUN = recipe("roberta_base")
MODULES = (
    pipeline.config.data_settings, pipeline.config.encoder_settings,
    pipeline.config.training_settings, pipeline.config.run,
)  # fmt: skip
CLASSES = [
    value
    for module in MODULES
    for value in vars(module).values()
    if is_dataclass(value) and getattr(value, "__module__", "") == module.__name__
]


def test_names_and_choices_that_scripts_rely_on() -> None:
    assert len(CLASSES) == 17  # the checks below cover all sections
    names = " ".join(field.name for field in fields(Run))
    assert names == (
        "name seed precision data encoder objective optimizer schedule batch steps phases "
        "spikes validation checkpoint logging"
    )
    kinds = setting_types(Run)
    contract = """steps seed precision batch.sequences batch.per_device optimizer.kind
        optimizer.peak_lr schedule.warmup_steps encoder.dropout
        encoder.attention_dropout data.sequence_length data.format
        data.masking data.duplicates data.order validation.every checkpoint.every checkpoint.keep
        checkpoint.keep_every logging.every logging.hang_seconds logging.to"""
    assert set(contract.split()) <= set(kinds)
    choices = {path: get_args(kind) for path, kind in kinds.items() if get_origin(kind) is Literal}
    assert choices["precision"] == ("fp32", "bf16")
    assert choices["optimizer.kind"] == ("lamb", "adamw", "stable_adamw")
    assert choices["data.format"] == (
        "full_sentences", "doc_sentences", "segment_pair", "sentence_pair", "single_segment",
    )  # fmt: skip
    assert choices["data.masking"] == ("token", "whole_word", "ngram", "span", "electra")
    assert choices["data.mask_mode"] == ("static", "duplicates", "per-epoch")
    assert choices["data.order"] == ("global", "blocks")


def test_classes_are_frozen_slotted_keyword_only_small_and_without_defaults() -> None:
    for kind in CLASSES:
        assert kind.__dataclass_params__.frozen, kind
        assert "__slots__" in vars(kind), kind
        assert len(vars(kind)["__annotations__"]) <= 15, kind
        for field in fields(kind):
            assert field.kw_only, (kind, field)
            assert field.default is MISSING and field.default_factory is MISSING, (kind, field)


def test_every_field_is_followed_by_its_meaning() -> None:
    for module in MODULES:
        for node in ast.parse(inspect.getsource(module)).body:
            body = node.body if isinstance(node, ast.ClassDef) else []
            for item, after in zip(body, [*body[1:], None]):
                if isinstance(item, ast.AnnAssign):
                    assert isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant), (
                        f"{module.__name__}: {ast.unparse(item.target)} has no docstring"
                    )


def test_every_number_has_a_legal_range() -> None:
    for path, setting in (settings_of(Run) | settings_of(EarlierPhase, "phases.")).items():
        assert (setting.range is not None) == (setting.kind in (int, float)), path


def test_a_number_out_of_range_is_refused_in_one_line() -> None:
    for setting, shown, interval in (
        ("data.masks.rate=0", "0.0", "(0, 1)"), ("data.masks.rate=1", "1.0", "(0, 1)"),
        ("data.masks.span_p=0", "0.0", "(0, 1]"), ("data.duplicates=-1", "-1", "[0, inf)"),
        ("data.sequence_length=65536", "65536", "[3, 65535]"), ("steps=-5", "-5", "[1, inf)"),
        ("optimizer.peak_lr=-1", "-1.0", "(0, inf)"), ("encoder.dropout=1", "1.0", "[0, 1)"),
        ("data.vocab_size=260", "260", "[261, 2**32)"),
        ("seed=9223372036854775808", "9223372036854775808", "[0, 2**63)"),
    ):  # fmt: skip
        said = f"{setting.partition('=')[0]}={shown} is out of range; choose one in {interval}"
        assert problems("roberta_base", setting) == [said]


def test_all_problems_of_a_run_are_in_one_error() -> None:
    """Problems within sections, in lists, of the run itself and across sections."""
    phases = 'phases=[{"steps":0,"sequence_length":2,"sequences":0}]'
    settings = f"name=a/b steps=0 data.lower_case=true schedule.end_lr=1 {phases}"
    assert [found.split()[0] for found in problems("roberta_base", *settings.split())] == [
        "phases.0.steps=0", "phases.0.sequence_length=2", "phases.0.sequences=0", "steps=0",
        "data.lower_case=true", "name='a/b'", "schedule.end_lr=1.0",
    ]  # fmt: skip
    stored = to_dict(RUN) | {"steps": 0, "seed": -1}
    with pytest.raises(ConfigError, match=r"seed=-1 is out of range(.|\n)*steps=0 is out of range"):
        from_dict(Run, stored)


def test_replacing_a_field_checks_too() -> None:
    with pytest.raises(FrozenInstanceError):
        RUN.data.seed = 1  # type: ignore[misc]
    with pytest.raises(ConfigError, match="steps=0 is out of range"):
        replace(RUN, steps=0)
    masks = replace(RUN.data.masks, mask_share=float("nan"))
    with pytest.raises(ConfigError, match=r"data.masks.mask_share=nan is out of range"):
        replace(RUN, data=replace(RUN.data, masks=masks))
