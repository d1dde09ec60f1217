from __future__ import annotations

import ast
import inspect
from dataclasses import MISSING, FrozenInstanceError, fields, is_dataclass, replace
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest

import pipeline.run
from pipeline.errors import ConfigError
from pipeline.recipes import recipe
from pipeline.run import (
    IMPLEMENTED,
    INTERVALS,
    READ_TIME_FIELDS,
    Data,
    Run,
    max_predictions,
    prediction_count,
    shard_settings,
)
from pipeline.settings import fingerprint, override, setting_types

RUN = recipe("roberta_base")
CLASSES = [value for value in vars(pipeline.run).values() if is_dataclass(value)]


def test_top_level_is_the_contract() -> None:
    names = " ".join(field.name for field in fields(Run))
    assert names == (
        "name seed precision data encoder objective optimizer schedule batch steps "
        "validation checkpoint logging"
    )


def test_paths_and_choices_that_scripts_rely_on() -> None:
    kinds = setting_types(Run)
    contract = """steps seed precision batch.sequences batch.per_device optimizer.kind
        optimizer.peak_lr schedule.warmup_steps encoder.dropout data.sequence_length data.format
        data.masking data.duplicates data.order validation.every checkpoint.every checkpoint.keep
        checkpoint.keep_every logging.every logging.hang_seconds"""
    assert set(contract.split()) <= set(kinds)
    choices = {path: get_args(kind) for path, kind in kinds.items() if get_origin(kind) is Literal}
    assert choices["precision"] == ("fp32", "bf16")
    assert choices["optimizer.kind"] == ("lamb", "adamw")
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
    assert len(fields(kind)) <= 15
    for field in fields(kind):
        assert field.kw_only
        assert field.default is MISSING and field.default_factory is MISSING


def test_every_field_is_followed_by_its_meaning() -> None:
    tree = ast.parse(Path(inspect.getfile(Run)).read_text())
    for node in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        for item, after in zip(node.body, [*node.body[1:], None]):
            if isinstance(item, ast.AnnAssign):
                assert isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant), (
                    f"{node.name}.{ast.unparse(item.target)} has no docstring"
                )


def test_every_number_has_a_legal_range() -> None:
    kinds = setting_types(Run)
    assert set(INTERVALS) == {path for path, kind in kinds.items() if kind in (int, float)}


def test_implemented_choices_are_choices() -> None:
    kinds = setting_types(Run)
    for path, built in IMPLEMENTED.items():
        assert set(built) <= set(get_args(kinds[path]))


def test_a_run_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        RUN.steps = 1  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        RUN.data.seed = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    "settings, message",
    [
        ("data.mask_rate=0", "data.mask_rate=0.0 is out of range; choose one in (0, 1)"),
        ("data.mask_rate=1", "data.mask_rate=1.0 is out of range; choose one in (0, 1)"),
        ("data.duplicates=-1", "data.duplicates=-1 is out of range; choose one in [0, inf)"),
        ("data.words.span_p=0", "data.words.span_p=0.0 is out of range; choose one in (0, 1]"),
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
            "data.format=segment_pair",
            "data.format=segment_pair is not built yet; choose one of full_sentences",
        ),
        (
            "data.masking=electra",
            "data.masking=electra shows no random ids: set data.mask_random_share=0.1 to 0 "
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
            "data.mask_random_share=0.3",
            "data.mask_token_share=0.8 and data.mask_random_share=0.3 add up to more than 1; "
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
    "settings",
    [
        "data.mask_mode=static data.duplicates=1",
        "data.mask_mode=per-epoch data.duplicates=0",
        "data.masking=electra data.mask_random_share=0 data.mask_token_share=0.85",
        "data.reader=read data.order=blocks",
        "data.sequence_length=1024 encoder.positions=1024",
        "data.mask_token_share=0.9 data.mask_random_share=0.1",
        "data.mask_token_share=1 data.mask_random_share=0",
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


def test_shard_settings_leave_out_only_how_shards_are_read() -> None:
    settings = shard_settings(RUN.data)
    assert {*settings, *READ_TIME_FIELDS, "words"} == {field.name for field in fields(Data)}
    assert not set(settings) & set(READ_TIME_FIELDS)
    read_otherwise = override(RUN, ["data.order=blocks", "data.reader=read"])
    assert shard_settings(read_otherwise.data) == settings
    assert shard_settings(override(RUN, ["data.seed=1"]).data) != settings


def test_shard_settings_hold_the_lengths_that_the_scheme_draws() -> None:
    def of(*settings: str) -> dict[str, object]:
        return shard_settings(override(RUN, settings).data)

    assert of("data.words.max_ngram=2", "data.words.span_p=0.5") == of()
    assert of("data.masking=whole_word") == of() | {"masking": "whole_word"}
    assert of("data.masking=ngram") == of() | {"masking": "ngram", "words.max_ngram": 3}
    spans = {"masking": "span", "words.span_p": 0.2, "words.max_span": 10}
    assert of("data.masking=span") == of() | spans


def test_fingerprint_of_shard_settings_is_golden() -> None:
    """Another value disowns every shard that users have prepared: change it on purpose only."""
    assert fingerprint(shard_settings(RUN.data)) == "38b1cd26e3351352"


@pytest.mark.parametrize(
    "text_tokens, mask_rate, count",
    [
        (510, 0.15, 77),  # 76.5 rounds up
        (126, 0.15, 19),  # 18.9
        (10, 0.15, 2),  # 1.5 rounds up
        (9, 0.15, 1),  # 1.35
        (1, 0.15, 1),  # at least one
        (1, 0.999, 1),
        (510, 0.4, 204),
        (65_533, 0.15, 9_830),  # 9829.95
    ],
)
def test_prediction_count(text_tokens: int, mask_rate: float, count: int) -> None:
    assert prediction_count(text_tokens, mask_rate) == count


def test_max_predictions_counts_all_but_two_special_tokens() -> None:
    assert max_predictions(RUN.data) == 77
    assert max_predictions(recipe("roberta_tiny").data) == 5


def test_max_predictions_of_spans_rounds_up() -> None:
    """ceil(0.15 x 30) = 5, ceil(0.15 x 40) = 6, ceil(0.15 x 31) = 5."""
    for length, count in ((32, 5), (42, 6), (33, 5)):
        data = override(RUN, ["data.masking=span", f"data.sequence_length={length}"]).data
        assert max_predictions(data) == count
