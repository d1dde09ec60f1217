from dataclasses import dataclass, fields
from typing import Annotated

import pytest

import pipeline.config.data_settings
from pipeline.base.errors import DataError
from pipeline.config.data_settings import (
    READ_TIME_FIELDS,
    DataSettings,
    MaskSettings,
    SegmentSettings,
    all_shard_settings,
    max_predictions,
    prediction_count,
    prepared_settings,
    shard_settings,
)
from pipeline.config.schema import Legacy, Range
from pipeline.config.settings import fingerprint, from_dict, override, to_dict
from pipeline.recipes import recipe
from tests.pipeline.config.refusals import assert_refused

RUN = recipe("roberta_base")
GOLDEN = "5a3253e547d6bc0b"
"""Another fingerprint invalidates every shard that users have prepared: change it on purpose."""


def test_contradictory_data_settings_name_remedies_that_are_legal() -> None:
    for settings in (
        "data.lower_case=true",
        "data.segments.label=order",
        "data.format=single_segment data.segments.label=next",
        "data.format=sentence_pair data.segments.draws=2",
        "data.masking=electra",
        "data.mask_mode=per-epoch",
        "data.duplicates=0",
        "data.mask_mode=static",
        "data.masks.random_share=0.3",
        "data.reader=read",
    ):
        assert_refused("roberta_base", settings)


def test_shard_settings_skip_only_read_time_settings() -> None:
    settings = shard_settings(RUN.data)
    names = {path.split(".")[0] for path in settings}
    unread = {"segments"}  # full_sentences does not read it, see below
    assert names | unread | set(READ_TIME_FIELDS) == {field.name for field in fields(DataSettings)}
    assert not set(settings) & set(READ_TIME_FIELDS)
    read_otherwise = override(RUN, ["data.order=blocks", "data.reader=read"])
    assert shard_settings(read_otherwise.data) == settings
    assert shard_settings(override(RUN, ["data.seed=1"]).data) != settings


def test_shard_settings_hold_only_what_the_masking_and_the_format_read() -> None:
    def of(*settings: str) -> dict[str, object]:
        return shard_settings(override(RUN, settings).data)

    def segments(*settings: str) -> set[str]:
        return {path for path in of(*settings) if path.startswith("segments.")}

    assert of("data.masks.max_ngram=2", "data.masks.span_p=0.5") == of()
    assert of("data.masking=whole_word") == of() | {"masking": "whole_word"}
    assert of("data.masking=ngram") == of() | {"masking": "ngram", "masks.max_ngram": 3}
    spans = {"masking": "span", "masks.span_p": 0.2, "masks.max_span": 10}
    assert of("data.masking=span") == of() | spans
    assert segments("data.format=doc_sentences", "data.segments.short_share=0.2") == set()
    assert segments() == set()
    assert segments("data.format=single_segment") == {"segments.short_share", "segments.draws"}
    assert segments("data.format=sentence_pair") == {"segments.label", "segments.draws"}
    every = {f"segments.{field.name}" for field in fields(SegmentSettings)}
    assert segments("data.format=segment_pair") == every


def test_prediction_counts_round_and_those_of_spans_round_up() -> None:
    """Halves round up: 76.5 to 77, 18.9, 1.5 to 2, 1.35, at least one, 9829.95."""
    for text_tokens, mask_rate, count in (
        (510, 0.15, 77), (126, 0.15, 19), (10, 0.15, 2), (9, 0.15, 1), (1, 0.15, 1),
        (1, 0.999, 1), (510, 0.4, 204), (65_533, 0.15, 9_830),
    ):  # fmt: skip
        assert prediction_count(text_tokens, mask_rate) == count
    assert max_predictions(RUN.data) == 77  # all but two special tokens
    assert max_predictions(recipe("roberta_tiny").data) == 5
    for length, count in ((32, 5), (42, 6), (33, 5)):  # of spans: ceil of 0.15 x 30, 40, 31
        data = override(RUN, ["data.masking=span", f"data.sequence_length={length}"]).data
        assert max_predictions(data) == count


@dataclass(frozen=True, kw_only=True, slots=True)
class LaterMasks(MaskSettings):
    """A later version with one more setting, which `masking=span` does not read."""

    decay: Annotated[float, Range("[0, 1]"), Legacy(0.5)]


@dataclass(frozen=True, kw_only=True, slots=True)
class LaterData(DataSettings):
    masks: LaterMasks
    blanks: Annotated[int, Legacy(0)]


def later(blanks: int, decay: float) -> LaterData:
    """RUN's data, as a version with two more settings reads it from a stored file."""
    stored = to_dict(RUN.data)
    stored["masks"]["decay"] = decay
    return from_dict(LaterData, stored | {"blanks": blanks})


def test_a_later_setting_changes_the_fingerprint_unless_it_has_its_legacy_value() -> None:
    old, new, nested = from_dict(LaterData, to_dict(RUN.data)), later(2, 0.5), later(0, 0.25)
    assert old == later(0, 0.5)
    assert shard_settings(old) == shard_settings(RUN.data)
    assert fingerprint(shard_settings(old)) == GOLDEN
    assert shard_settings(new) == shard_settings(RUN.data) | {"blanks": 2}
    assert shard_settings(nested) == shard_settings(RUN.data) | {"masks.decay": 0.25}
    assert len({fingerprint(shard_settings(data)) for data in (old, new, nested)}) == 3


def test_a_manifest_without_a_later_setting_means_its_legacy_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manifest = shard_settings(RUN.data)
    assert prepared_settings(manifest, "shards") == all_shard_settings(RUN.data)
    with pytest.raises(DataError, match=r"^shards/x .* data\.blanks=2, which this version"):
        prepared_settings(shard_settings(later(2, 0.5)), "shards/x")
    monkeypatch.setattr(pipeline.config.data_settings, "DataSettings", LaterData)
    assert prepared_settings(manifest, "shards") == all_shard_settings(later(0, 0.5))
    assert prepared_settings(manifest, "shards") != all_shard_settings(later(2, 0.5))
    stored = shard_settings(later(2, 0.25))
    assert prepared_settings(stored, "shards") == all_shard_settings(later(2, 0.25))
