from dataclasses import MISSING, FrozenInstanceError, fields, is_dataclass, replace

import pytest

import pipeline.config.data_settings
import pipeline.config.encoder_settings
import pipeline.config.run
import pipeline.config.training_settings
from pipeline.base.errors import ConfigError
from pipeline.config.run import Run
from pipeline.config.schema import settings_of
from pipeline.config.settings_view import _meanings
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


def test_classes_are_frozen_without_defaults_and_say_what_each_field_means() -> None:
    assert len(CLASSES) == 17
    for kind in CLASSES:
        assert kind.__dataclass_params__.frozen, kind
        assert "__slots__" in vars(kind), kind
        assert _meanings(kind).keys() == {field.name for field in fields(kind)}, kind
        for field in fields(kind):
            assert field.kw_only, (kind, field)
            assert field.default is MISSING and field.default_factory is MISSING, (kind, field)


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
        (problem,) = problems("roberta_base", setting)
        assert problem.startswith(f"{setting.partition('=')[0]}={shown} ")
        assert problem.endswith(f" {interval}")


def test_all_problems_of_a_run_are_in_one_error() -> None:
    """Problems within sections, in lists, of the run itself and across sections."""
    phases = 'phases=[{"steps":0,"sequence_length":2,"sequences":0}]'
    settings = f"name=a/b steps=0 data.lower_case=true schedule.end_lr=1 {phases}"
    assert [found.split()[0] for found in problems("roberta_base", *settings.split())] == [
        "phases.0.steps=0", "phases.0.sequence_length=2", "phases.0.sequences=0", "steps=0",
        "data.lower_case=true", "name='a/b'", "schedule.end_lr=1.0",
    ]  # fmt: skip


def test_replacing_a_field_checks_too() -> None:
    with pytest.raises(FrozenInstanceError):
        RUN.data.seed = 1  # type: ignore[misc]
    with pytest.raises(ConfigError, match="steps=0 is out of range"):
        replace(RUN, steps=0)
    masks = replace(RUN.data.masks, mask_share=float("nan"))
    with pytest.raises(ConfigError, match=r"data.masks.mask_share=nan is out of range"):
        replace(RUN, data=replace(RUN.data, masks=masks))
