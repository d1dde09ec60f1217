"""Hand-made rows and masks in memory -> the arrays of a micro-batch, every value visible."""

from typing import Any

import numpy as np
import pytest

from pipeline.loading import decode as decode_module
from pipeline.loading.resolve import RECORD

BOS, PAD, EOS, MASK = 0, 1, 2, 4
OWNED: list[Any] = []
"""Keeps the memory of the rows alive."""


def address(values: list[int], kind: Any) -> int:
    array = np.array([*values, *[0] * 8], kind)
    OWNED.append(array)
    return int(array.ctypes.data)


def record(
    ids: list[int], masked: dict[int, int | None], kind: Any = np.uint16, **more: int
) -> Any:
    """masked: by position MASK, another id that replaces the token, or None to keep it."""
    found = np.zeros(1, RECORD)[0]
    actions = [{MASK: 0, None: 2}.get(masked[place], 1) for place in sorted(masked)]
    randoms = [masked[place] or 0 for place in sorted(masked) if masked[place] not in (MASK, None)]
    bitmap = sum(1 << place for place in masked)
    codes = sum(action << 2 * slot for slot, action in enumerate(actions))
    found["ids"], found["tokens"] = address(ids, kind), len(ids)
    found["bitmap"] = address([bitmap >> 8 * byte & 255 for byte in range(8)], np.uint8)
    found["actions"] = address([codes >> 8 * byte & 255 for byte in range(8)], np.uint8)
    found["random_ids"] = address(randoms, kind)
    found["predictions"] = len(masked)
    for name, value in more.items():
        found[name] = value
    return found


def special_ids(wide: bool = False, separators: int = 2) -> Any:
    return np.array([(BOS, PAD, EOS, MASK, separators, wide)], decode_module.SPECIAL_IDS)


def decode(
    records: list[Any], starts: list[int], tokens: int, slots: int, **special: Any
) -> tuple[list[Any], ...]:
    """Writes over memory full of 9, so that unwritten values show."""
    outputs = [np.full(size, 9, np.int64) for size in (tokens, slots, slots)]
    rows, weights = np.array(records, RECORD), np.full(slots, 9, np.float32)
    decode_module.decode(
        rows, np.array(starts, np.int64), special_ids(**special), *outputs, weights
    )
    return tuple(array.tolist() for array in (*outputs, weights))


def segments(
    records: list[Any], starts: list[int], tokens: int, **special: Any
) -> tuple[list[int], list[int]]:
    """Segment ids, and labels of the rows and of one that is not there."""
    ids, labels = np.full(tokens, 9), np.full(len(records) + 1, 9)
    rows = np.array(records, RECORD)
    decode_module.segments(rows, np.array(starts), special_ids(**special), ids, labels)
    return ids.tolist(), labels.tolist()


@pytest.mark.parametrize("wide", [False, True])
def test_rows_lie_one_after_another_and_the_rest_is_dead(wide: bool) -> None:
    high = 70_000 if wide else 60_000
    kind = np.uint32 if wide else np.uint16
    rows = [
        record([BOS, 10, high, 12, 13, EOS], {1: MASK, 2: high + 1, 4: None}, kind),
        record([BOS, 20, EOS], {1: MASK}, kind),
    ]
    ids, positions, labels, weights = decode(rows, [0, 6], 12, 6, wide=wide)
    assert ids == [BOS, MASK, high + 1, 12, 13, EOS, BOS, MASK, EOS, PAD, PAD, PAD]
    assert positions == [1, 2, 4, 7, 0, 0]
    assert labels == [10, high, 13, 20, 0, 0]
    assert weights == [1, 1, 1, 1, 0, 0]
    assert decode([], [], 3, 1) == ([PAD] * 3, [0], [0], [0])  # without rows all are dead


def test_b_is_shown_before_a() -> None:
    """<s> 10 11 </s> </s> 20 </s> -> <s> 20 </s> </s> 10 11 </s>, with the slots in order."""
    stored = [BOS, 10, 11, EOS, EOS, 20, EOS]
    row = record(stored, {2: MASK, 5: MASK}, second=5, swapped=1)
    ids, positions, labels, _ = decode([row], [0], 8, 2)
    assert ids == [BOS, MASK, EOS, EOS, 10, MASK, EOS, PAD]
    assert positions == [1, 5] and labels == [20, 11]
    assert segments([row], [0], 8) == ([0, 0, 0, 0, 1, 1, 1, 0], [1, -1])


def test_segments_in_order_and_rows_without_segments() -> None:
    rows = [record([BOS, 10, EOS, 20, EOS], {}, second=3), record([BOS, EOS], {}, label=-1)]
    assert segments(rows, [0, 5], 9, separators=1) == ([0, 0, 0, 1, 1, 0, 0, 0, 0], [0, -1, -1])


def test_documents_are_pieces_and_dead_tokens_are_no_longer_than_a_row() -> None:
    starts = address([0, 2, 5], np.uint16)
    row = record([BOS, 10, 11, 12, 13, 14, EOS], {}, starts=starts, documents=3)
    rows, empty = np.array([row, row], RECORD), np.zeros(0, RECORD)
    places = np.array([0, 7])

    def pieces(rows: Any, size: int, documents: bool) -> list[int]:
        found = decode_module.pieces(rows, places[: len(rows)], size, 8, documents)
        assert found.dtype == np.int32
        return found.tolist()

    assert pieces(rows, 14, True) == [0, 2, 5, 7, 9, 12, 14]
    assert pieces(rows, 14, False) == [0, 7, 14]
    assert pieces(rows, 24, False) == [0, 7, 14, 22, 24]
    assert pieces(empty, 17, True) == [0, 8, 16, 17]
    assert decode_module.piece_counts(rows, True).tolist() == [3, 3]
    assert decode_module.piece_counts(rows, False).tolist() == [1, 1]
    paired = np.array([record([BOS, 10, EOS, 11, EOS], {}, second=3, documents=2)], RECORD)
    assert decode_module.piece_counts(paired, True).tolist() == [1]
