"""Actions: one 80/10/10 choice per token, or per span; random ids per token."""

import numpy as np
import numpy.typing as npt
import pytest
import xxhash

from pipeline.data.rows.masks import KEPT, MASK, RANDOM, Masking, Masks
from tests.pipeline.data.rows.toys import SCHEMES, described, draw_rows, predicted, unpack

SPECIAL = np.arange(1000) < 10
STARTS = np.arange(1000) % 3 > 0
LENGTH, ROWS = 200, 3000
GOLDEN = {
    "whole_word": 0x62239FAD74F95AA2, "ngram": 0xCE3BC3A38EE2BF5A, "span": 0xA012C20068DD799B,
}  # fmt: skip
"""Generator version 1 always draws this; a change needs a new GENERATOR_VERSION."""


def draw(scheme: str, split: tuple[float, float] = (0.8, 0.1), duplicate: int = 0) -> Masks:
    ids = np.random.default_rng(0).integers(10, 1000, (ROWS, LENGTH)).astype(np.uint16)
    ids[:, 0] = ids[:, -1] = 2
    masking = Masking.described(described(scheme, 0.15, split), SPECIAL, STARTS, seed=0)
    return draw_rows(masking, ids, duplicate)


def actions_of(masks: Masks) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Position (row x LENGTH + position) and action of every predicted token."""
    actions = [code for _, codes, _ in unpack(masks) for code in codes]
    return np.flatnonzero(predicted(masks, LENGTH)), np.array(actions)


def assert_split(actions: npt.NDArray[np.int64], split: tuple[float, float]) -> None:
    """Within five standard deviations of a binomial of that size."""
    for code, share in zip((MASK, RANDOM, KEPT), [*split, 1 - sum(split)]):
        deviation = (share * (1 - share) / len(actions)) ** 0.5
        assert abs(np.mean(actions == code) - share) <= 5 * deviation + 1e-5


def assert_independent(actions: npt.NDArray[np.int64], next_: npt.NDArray[np.int64]) -> None:
    """As often equal as by chance, .8**2 + 2 x .1**2."""
    assert abs(np.mean(actions == next_) - 0.66) < 5 * (0.66 * 0.34 / len(actions)) ** 0.5


@pytest.mark.parametrize("scheme", ["token", "whole_word", "ngram"])
def test_actions_of_tokens_are_independent(scheme: str) -> None:
    places, actions = actions_of(draw(scheme))
    assert_split(actions, (0.8, 0.1))
    neighbours = np.diff(places) == 1
    assert_independent(actions[:-1][neighbours], actions[1:][neighbours])


def test_traps_9_a_span_chooses_once_and_touching_spans_are_one() -> None:
    """Its random ids differ."""
    places, actions = actions_of(draw("span"))
    begins = np.concatenate([[True], np.diff(places) != 1])
    assert (actions[1:] == actions[:-1])[~begins[1:]].all()
    assert_split(actions[begins], (0.8, 0.1))
    assert_independent(actions[begins][:-1], actions[begins][1:])
    masks = draw("span", (0.0, 1.0))
    assert len(masks.random_ids) == masks.predictions
    assert np.mean(masks.random_ids[1:] == masks.random_ids[:-1]) < 0.005  # 1 of 990
    assert masks.random_ids.min() >= 10


def test_traps_4_electra_shows_the_mask_or_the_token() -> None:
    masks = draw("electra", (0.85, 0.0))
    _, actions = actions_of(masks)
    assert_split(actions, (0.85, 0.0))
    assert len(masks.random_ids) == 0 and RANDOM not in actions


@pytest.mark.parametrize("scheme", SCHEMES)
def test_duplicates_differ_and_are_golden(scheme: str) -> None:
    first, again, other = (draw(scheme, duplicate=duplicate) for duplicate in (0, 0, 1))
    digests = []
    for masks in (first, again):
        found = xxhash.xxh3_64()
        for column in (masks.positions, masks.actions, masks.random_ids):
            found.update(np.ascontiguousarray(column))
        digests.append(found.intdigest())
    assert digests == [GOLDEN.get(scheme, digests[0])] * 2
    assert np.array_equal(first.counts, again.counts)
    assert not np.array_equal(first.positions, other.positions)
