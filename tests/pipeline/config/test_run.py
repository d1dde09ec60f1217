from __future__ import annotations

import ast
import inspect
from dataclasses import MISSING, FrozenInstanceError, fields, is_dataclass
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest

import pipeline.config.run
from pipeline.config.run import (
    READ_TIME_FIELDS,
    Data,
    Run,
    Segments,
    max_predictions,
    prediction_count,
    shard_settings,
)
from pipeline.config.settings import fingerprint, override, setting_types
from pipeline.recipes import recipe

RUN = recipe("roberta_base")
CLASSES = [value for value in vars(pipeline.config.run).values() if is_dataclass(value)]


def test_top_level_is_the_contract() -> None:
    names = " ".join(field.name for field in fields(Run))
    assert names == (
        "name seed precision data encoder objective optimizer schedule batch steps phases "
        "spikes validation checkpoint logging"
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


def test_a_run_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        RUN.steps = 1  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        RUN.data.seed = 1  # type: ignore[misc]


def test_shard_settings_leave_out_only_how_shards_are_read() -> None:
    settings = shard_settings(RUN.data)
    names = {path.split(".")[0] for path in settings}
    unread = {"segments"}  # by full sentences, see below
    assert names | unread | set(READ_TIME_FIELDS) == {field.name for field in fields(Data)}
    assert not set(settings) & set(READ_TIME_FIELDS)
    read_otherwise = override(RUN, ["data.order=blocks", "data.reader=read"])
    assert shard_settings(read_otherwise.data) == settings
    assert shard_settings(override(RUN, ["data.seed=1"]).data) != settings


def test_shard_settings_hold_the_lengths_that_the_scheme_draws() -> None:
    def of(*settings: str) -> dict[str, object]:
        return shard_settings(override(RUN, settings).data)

    assert of("data.masks.max_ngram=2", "data.masks.span_p=0.5") == of()
    assert of("data.masking=whole_word") == of() | {"masking": "whole_word"}
    assert of("data.masking=ngram") == of() | {"masking": "ngram", "masks.max_ngram": 3}
    spans = {"masking": "span", "masks.span_p": 0.2, "masks.max_span": 10}
    assert of("data.masking=span") == of() | spans


def test_shard_settings_hold_what_the_format_reads() -> None:
    def of(*settings: str) -> set[str]:
        found = shard_settings(override(RUN, settings).data)
        return {path for path in found if path.startswith("segments.")}

    assert of() == of("data.format=doc_sentences", "data.segments.short_share=0.2") == set()
    assert of("data.format=single_segment") == {"segments.short_share", "segments.draws"}
    assert of("data.format=sentence_pair") == {"segments.label", "segments.draws"}
    assert of("data.format=segment_pair") == {
        f"segments.{field.name}" for field in fields(Segments)
    }


def test_fingerprint_of_shard_settings_is_golden() -> None:
    """Another value disowns every shard that users have prepared: change it on purpose only."""
    assert fingerprint(shard_settings(RUN.data)) == "e56b4278f265595f"


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
