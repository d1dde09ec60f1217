"""Masks become a list of predictions and masks again, with some predictions less."""

from dataclasses import fields, replace

import numpy as np
import pytest

from pipeline.data.rows.masks import RANDOM, Masking, Masks
from pipeline.data.rows.predictions import Predictions
from tests.pipeline.data.small_shards import random_rows

SPECIAL = np.arange(100) < 5
LENGTHS = [3, 8, 9, 70, 64, 2, 33]  # the row of two tokens has no text
ROWS = random_rows(LENGTHS, 100)
OFFSETS = ROWS.offsets


@pytest.fixture(scope="module")
def masks() -> Masks:
    scheme = {"scheme": "token", "rate": 0.4, "generator": 1, "split": [0.4, 0.4], "swaps": True}
    masking = Masking.described(scheme, SPECIAL, SPECIAL, 7)
    return masking.draw(ROWS.ids, OFFSETS, "news", np.arange(len(LENGTHS), dtype=np.uint64), 0)


def same(left: Masks, right: Masks) -> bool:
    return all(np.array_equal(getattr(left, f.name), getattr(right, f.name)) for f in fields(Masks))


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_there_and_back_without_some(share: float, masks: Masks) -> None:
    predictions = Predictions.of(masks, OFFSETS)
    assert len(predictions.places) == masks.predictions > 60
    assert not np.isin(predictions.places, [OFFSETS[:-1], OFFSETS[1:] - 1]).any()
    assert ((predictions.random_ids > 0) == (predictions.actions == RANDOM)).all()
    back = predictions.to_masks(OFFSETS, masks.swapped)
    assert same(back, masks)
    assert back.actions.dtype == np.uint8 and back.random_ids.dtype == np.uint16
    chosen = np.random.default_rng(1).random(len(predictions.places)) < share
    kept, others = predictions.select(chosen), predictions.select(~chosen)
    fewer = kept.to_masks(OFFSETS, None)
    assert fewer.predictions == chosen.sum()
    for found, wanted in zip(Predictions.of(fewer, OFFSETS).columns, kept.columns, strict=True):
        assert np.array_equal(found, wanted)
    assert same(Predictions.merge(others, kept).to_masks(OFFSETS, masks.swapped), masks)


def test_columns_that_contradict_each_other(masks: Masks) -> None:
    beyond = masks.positions.copy()
    beyond[0] |= 0x80  # the first row has three tokens
    for change, message in (
        ({"action_offsets": masks.action_offsets + np.arange(8, dtype=np.int32)}, "actions do not"),
        ({"random_offsets": masks.random_offsets + np.arange(8, dtype=np.int32)}, "random ids"),
        ({"positions": beyond}, None),
    ):
        with pytest.raises(ValueError, match=message):
            Predictions.of(replace(masks, **change), OFFSETS)
