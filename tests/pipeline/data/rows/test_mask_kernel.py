"""Actions: one 80/10/10 choice per token, or per span; random ids per token."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import xxhash

from pipeline.data.rows.masks import KEPT, MASK, RANDOM, Masking, Masks

SPECIAL = np.arange(1000) < 10
STARTS = np.arange(1000) % 3 > 0
LENGTH, ROWS = 200, 3000
SPAN = [0.8**more / sum(0.8**k for k in range(10)) for more in range(10)]


def draw(scheme: str, split: list[float], duplicate: int = 0) -> Masks:
    lengths = {"ngram": [6 / 11, 3 / 11, 2 / 11], "span": SPAN}.get(scheme, [])
    described = {"scheme": scheme, "rate": 0.15, "split": split, "lengths": lengths}
    ids = np.random.default_rng(0).integers(10, 1000, (ROWS, LENGTH)).astype(np.uint16)
    ids[:, 0] = ids[:, -1] = 2
    return Masking.described(described, SPECIAL, STARTS, seed=0).draw(
        ids.ravel(),
        np.arange(ROWS + 1, dtype=np.int64) * LENGTH,
        "news",
        np.arange(ROWS, dtype=np.uint64),
        duplicate,
    )


def actions_of(masks: Masks) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Position (row x LENGTH + position) and action of every predicted token."""
    places, actions = [], []
    for row in range(ROWS):
        bitmap = masks.positions[masks.position_offsets[row] : masks.position_offsets[row + 1]]
        chosen = np.flatnonzero(np.unpackbits(bitmap, bitorder="little"))
        packed = masks.actions[masks.action_offsets[row] : masks.action_offsets[row + 1]]
        codes = np.stack([(packed >> 2 * slot) & 3 for slot in range(4)], 1).ravel()
        assert len(packed) == -(-len(chosen) // 4) and not codes[len(chosen) :].any()
        assert len(chosen) == masks.counts[row]
        randoms = masks.random_offsets[row + 1] - masks.random_offsets[row]
        assert np.count_nonzero(codes == RANDOM) == randoms
        places.append(row * LENGTH + chosen)
        actions.append(codes[: len(chosen)])
    return np.concatenate(places), np.concatenate(actions).astype(np.int64)


def assert_split(actions: npt.NDArray[np.int64], split: list[float]) -> None:
    """Within five standard deviations of a binomial of that size."""
    for code, share in zip((MASK, RANDOM, KEPT), [*split, 1 - sum(split)]):
        deviation = (share * (1 - share) / len(actions)) ** 0.5
        assert abs(np.mean(actions == code) - share) <= 5 * deviation + 1e-5


@pytest.mark.parametrize("scheme", ["token", "whole_word", "ngram"])
def test_actions_of_tokens_are_independent(scheme: str) -> None:
    places, actions = actions_of(draw(scheme, [0.8, 0.1]))
    assert_split(actions, [0.8, 0.1])
    neighbours = np.diff(places) == 1
    equal = np.mean((actions[1:] == actions[:-1])[neighbours])
    assert abs(equal - 0.66) < 5 * (0.66 * 0.34 / neighbours.sum()) ** 0.5  # .8**2 + 2 x .1**2


def test_traps_9_a_span_chooses_once_and_touching_spans_are_one() -> None:
    places, actions = actions_of(draw("span", [0.8, 0.1]))
    begins = np.concatenate([[True], np.diff(places) != 1])
    assert (actions[1:] == actions[:-1])[~begins[1:]].all()
    assert_split(actions[begins], [0.8, 0.1])
    neighbours = np.flatnonzero(begins)
    equal = np.mean(actions[neighbours[1:]] == actions[neighbours[:-1]])
    assert abs(equal - 0.66) < 5 * (0.66 * 0.34 / len(neighbours)) ** 0.5


def test_random_ids_of_a_span_differ() -> None:
    masks = draw("span", [0.0, 1.0])
    assert len(masks.random_ids) == masks.predictions
    assert np.mean(masks.random_ids[1:] == masks.random_ids[:-1]) < 0.005  # 1 of 990
    assert masks.random_ids.min() >= 10


def test_traps_4_electra_shows_the_mask_or_the_token() -> None:
    masks = draw("electra", [0.85, 0.0])
    _, actions = actions_of(masks)
    assert_split(actions, [0.85, 0.0])
    assert len(masks.random_ids) == 0 and RANDOM not in actions


@pytest.mark.parametrize("scheme", ["token", "electra", "whole_word", "ngram", "span"])
def test_duplicates_differ_and_are_reproducible(scheme: str) -> None:
    first, again, other = (draw(scheme, [0.8, 0.1], duplicate) for duplicate in (3, 3, 4))
    for column in ("positions", "actions", "random_ids", "counts"):
        assert np.array_equal(getattr(first, column), getattr(again, column))
    assert not np.array_equal(first.positions, other.positions)


@pytest.mark.parametrize(
    ("scheme", "golden"),
    [
        ("whole_word", 0x62239FAD74F95AA2),
        ("ngram", 0xCE3BC3A38EE2BF5A),
        ("span", 0xA012C20068DD799B),
    ],
)
def test_golden(scheme: str, golden: int) -> None:
    """Generator version 1 always draws this; a change needs a new GENERATOR_VERSION."""
    assert digest(draw(scheme, [0.8, 0.1])) == golden


def digest(masks: Masks) -> int:
    found = xxhash.xxh3_64()
    for column in (masks.positions, masks.actions, masks.random_ids):
        found.update(np.ascontiguousarray(column))
    return found.intdigest()
