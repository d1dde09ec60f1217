from __future__ import annotations

import ast
import inspect
from dataclasses import MISSING, FrozenInstanceError, fields, is_dataclass, replace
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest

import pipeline.config.data_settings
import pipeline.config.encoder_settings
import pipeline.config.run
import pipeline.config.training_settings
from pipeline.base.errors import ConfigError
from pipeline.config.run import Run
from pipeline.config.schema import setting_types, settings_of
from pipeline.config.settings import from_dict, override, to_dict
from pipeline.config.training_settings import EarlierPhase
from pipeline.recipes import recipe

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


def test_top_level_is_the_contract() -> None:
    assert len(CLASSES) == 17  # the checks below cover all sections
    names = " ".join(field.name for field in fields(Run))
    assert names == (
        "name seed precision data encoder objective optimizer schedule batch steps phases "
        "spikes validation checkpoint logging"
    )


def test_paths_and_choices_that_scripts_rely_on() -> None:
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
        "full_sentences",
        "doc_sentences",
        "segment_pair",
        "sentence_pair",
        "single_segment",
    )
    assert choices["data.masking"] == ("token", "whole_word", "ngram", "span", "electra")
    assert choices["data.mask_mode"] == ("static", "duplicates", "per-epoch")
    assert choices["data.order"] == ("global", "blocks")


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_classes_are_frozen_slotted_keyword_only_small_and_without_defaults(kind: type) -> None:
    assert kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert "__slots__" in vars(kind)
    assert len(vars(kind)["__annotations__"]) <= 15
    for field in fields(kind):
        assert field.kw_only
        assert field.default is MISSING and field.default_factory is MISSING


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_field_is_followed_by_its_meaning(kind: type) -> None:
    tree = ast.parse(Path(inspect.getfile(kind)).read_text())
    for node in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        for item, after in zip(node.body, [*node.body[1:], None]):
            if isinstance(item, ast.AnnAssign):
                assert isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant), (
                    f"{node.name}.{ast.unparse(item.target)} has no docstring"
                )


def test_a_run_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        RUN.steps = 1  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        RUN.data.seed = 1  # type: ignore[misc]


def test_every_number_has_a_legal_range() -> None:
    for path, setting in (settings_of(Run) | settings_of(EarlierPhase, "phases.")).items():
        assert (setting.range is not None) == (setting.kind in (int, float)), path


@pytest.mark.parametrize(
    "settings, message",
    [
        ("data.masks.rate=0", "data.masks.rate=0.0 is out of range; choose one in (0, 1)"),
        ("data.masks.rate=1", "data.masks.rate=1.0 is out of range; choose one in (0, 1)"),
        ("data.masks.span_p=0", "data.masks.span_p=0.0 is out of range; choose one in (0, 1]"),
        ("data.duplicates=-1", "data.duplicates=-1 is out of range; choose one in [0, inf)"),
        (
            "data.sequence_length=65536",
            "data.sequence_length=65536 is out of range; choose one in [3, 65535]",
        ),
        ("optimizer.peak_lr=-1", "optimizer.peak_lr=-1.0 is out of range; choose one in (0, inf)"),
        ("steps=-5", "steps=-5 is out of range; choose one in [1, inf)"),
        ("encoder.dropout=1", "encoder.dropout=1.0 is out of range; choose one in [0, 1)"),
        ("data.vocab_size=260", "data.vocab_size=260 is out of range; choose one in [261, 2**32)"),
        (
            "seed=9223372036854775808",
            "seed=9223372036854775808 is out of range; choose one in [0, 2**63)",
        ),
    ],
)
def test_a_number_out_of_range_is_refused_in_one_line(settings: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        override(RUN, settings.split())
    assert str(error.value) == message


@pytest.mark.parametrize(
    "settings, problems",
    [
        (
            "name=a/b steps=0 encoder.heads=0 data.masks.mask_share=0.95 data.lower_case=true "
            'data.reader=read objective.kind=mlm_sbo schedule.end_lr=1 phases=[{"steps":0,'
            '"sequence_length":600,"sequences":0}] checkpoint.keep_every=7',
            [
                "encoder.heads=0 is out of range; choose one in [1, inf)",
                "phases.0.steps=0 is out of range; choose one in [1, inf)",
                "phases.0.sequences=0 is out of range; choose one in [1, inf)",
                "steps=0 is out of range; choose one in [1, inf)",
                "data.masks.mask_share=0.95 and data.masks.random_share=0.1 add up to more than "
                "1; add --set data.masks.random_share=0.05, or --set data.masks.mask_share=0.9",
                "data.lower_case=true conflicts with data.tokenizer=byte-bpe, which keeps every "
                "byte; add --set data.lower_case=false, or --set data.tokenizer=wordpiece or "
                "--set data.tokenizer=unigram",
                "data.reader=read reads whole blocks, but data.order=global needs single rows; "
                "add --set data.order=blocks, or --set data.reader=mmap",
                "checkpoint.keep_every=7 is not a multiple of checkpoint.every=1000, so most of "
                "its steps are never saved; add --set checkpoint.keep_every=1000, or --set "
                "checkpoint.every=1",
                "name='a/b' cannot name a directory, which has letters, digits, '_', '.' and '-'; "
                "add --set name=a-b",
                "phases.0.sequence_length=600 is longer than encoder.positions=512; add --set "
                "encoder.positions=600, or --set phases.0.sequence_length=512",
                "objective.kind=mlm_sbo predicts masked spans, but data.masking=token draws none; "
                "add --set data.masking=span, or --set objective.kind=mlm",
                "schedule.end_lr=1.0 is above optimizer.peak_lr=0.0025; add --set "
                "schedule.end_lr=0, or --set optimizer.peak_lr=1.0",
            ],
        ),
    ],
)
def test_all_problems_of_a_run_are_in_one_error(settings: str, problems: list[str]) -> None:
    """Problems within sections, in lists, of the run itself and across sections."""
    with pytest.raises(ConfigError) as error:
        override(RUN, settings.split())
    title = f"the settings have {len(problems)} problems; fix each:"
    assert str(error.value).split("\n  ") == [title, *problems]
    stored = to_dict(RUN) | {"steps": 0, "seed": -1}
    with pytest.raises(ConfigError, match=r"seed=-1 is out of range(.|\n)*steps=0 is out of range"):
        from_dict(Run, stored)


def test_replacing_a_field_checks_too() -> None:
    with pytest.raises(ConfigError, match="steps=0 is out of range"):
        replace(RUN, steps=0)


def test_nan_is_out_of_range() -> None:
    masks = replace(RUN.data.masks, mask_share=float("nan"))
    with pytest.raises(ConfigError, match=r"data.masks.mask_share=nan is out of range"):
        replace(RUN, data=replace(RUN.data, masks=masks))
