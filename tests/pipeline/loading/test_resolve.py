"""Records point to what the shards hold; impossible offsets and values are found."""

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.data.shards import arrow_files
from pipeline.loading.dataset import Dataset
from pipeline.loading.resolve import (
    MASK_COLUMNS,
    RECORD,
    ROW_COLUMNS,
    _ids_below,
    put_records,
    read_sequences,
    resolve_masks,
    resolve_rows,
)
from tests.pipeline.loading.conftest import LENGTH, SLOTS, prepare_directory

VOCABULARY = 100


def at(address: int, count: int, kind: Any) -> list[int]:
    """Values in memory."""
    size = count * np.dtype(kind).itemsize
    return np.frombuffer(ctypes.string_at(int(address), size), kind).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("label", ["next", "order"])
def test_records_hold_what_the_shards_hold(label: str, tmp_path: Path) -> None:
    directory = prepare_directory(tmp_path / "news", (1500,), label=label, duplicates=2)
    rows = arrow_files.read_table(directory / "rows/train-00000.arrow").to_pylist()
    masks = arrow_files.read_table(directory / "mask-1/train-00000.arrow").to_pylist()
    chosen = np.array([0, 7, 1023, 1024, 1499, 3])
    found = Dataset.open(directory).records(chosen, 1, details=True)
    for row, record in zip(chosen.tolist(), found.fields, strict=True):
        stored, mask = rows[row], masks[row]
        assert at(record["ids"], record["tokens"], np.uint16) == stored["input_ids"]
        documents = at(record["starts"], record["documents"], np.uint16)
        assert documents == stored["document_starts"]
        assert record["second"] == stored["second_segment"]
        assert record["label"] == stored["pair_label"]
        assert at(record["bitmap"], len(mask["positions"]), np.uint8) == list(mask["positions"])
        assert at(record["actions"], len(mask["actions"]), np.uint8) == list(mask["actions"])
        randoms = mask["random_ids"]
        assert at(record["random_ids"], len(randoms), np.uint16) == randoms
        assert record["predictions"] == sum(byte.bit_count() for byte in mask["positions"])
        assert record["swapped"] == mask.get("swapped", 0)


class Columns:
    """One record batch in memory: two rows of 3 and 2 ids, and their masks."""

    def __init__(self) -> None:
        kinds: dict[str, tuple[Any, list[int]]] = {
            "input_ids": (np.uint16, [0, 10, 2, 0, 2]),
            "document_starts": (np.uint16, [0, 0]),
            "second_segment": (np.uint16, [0, 0]),
            "pair_label": (np.int8, [-1, -1]),
            "sequence": (np.uint64, [70, 71]),
            "positions": (np.uint8, [0b010, 0]),
            "actions": (np.uint8, [1]),
            "random_ids": (np.uint16, [99]),
        }
        self.checked = np.zeros((1, 16), np.uint64)
        self.values = {name: np.array([*own, 0], kind) for name, (kind, own) in kinds.items()}
        self.offsets = {
            "input_ids": [0, 3, 5], "document_starts": [0, 1, 2], "positions": [0, 1, 2],
            "actions": [0, 1, 1], "random_ids": [0, 1, 1],
        }  # fmt: skip

    def resolve(self, length: int = LENGTH, slots: int = SLOTS) -> tuple[int, int, Any]:
        offsets = {name: np.array(own, np.int32) for name, own in self.offsets.items()}
        tables = [np.zeros(1, kind) for kind in (ROW_COLUMNS, MASK_COLUMNS)]
        for table in tables:
            for name in set(table.dtype.names or ()) & set(self.values):
                place = offsets[name].ctypes.data if name in offsets else 0
                own = self.values[name]
                table[name] = (place, own.ctypes.data, len(own) - 1)
        rows, masks = tables
        records, blocks, inside = np.zeros(2, RECORD), np.zeros(2, np.int64), np.arange(2)
        bad_row = resolve_rows(
            blocks, inside, rows, self.checked, 2, VOCABULARY, length, True, records
        )
        bad_mask = -1
        if bad_row < 0:
            bad_mask = resolve_masks(blocks, inside, masks, 2, VOCABULARY, slots, records)
        read_sequences(blocks, inside, rows, records)
        return bad_row, bad_mask, records


def test_a_valid_record_batch() -> None:
    columns = Columns()
    bad_row, bad_mask, records = columns.resolve()
    assert (bad_row, bad_mask) == (-1, -1)
    assert records["tokens"].tolist() == [3, 2] and records["predictions"].tolist() == [1, 0]
    assert records["sequence"].tolist() == [70, 71]
    assert Columns().resolve(length=2)[0] == 0  # rows and masks have a limit
    assert Columns().resolve(slots=0)[1] == 0
    # ids are checked once after they are loaded
    assert columns.checked[0, 0] == 0b11
    columns.values["input_ids"][1] = VOCABULARY
    assert columns.resolve()[0] == -1
    columns.checked[0] = 0
    assert columns.resolve()[0] == 0 and columns.checked[0, 0] == 0


def test_impossible_offsets_are_found() -> None:
    for column, offsets, row, mask in (
        ("input_ids", [0, 3, 4], 1, -1),  # one token
        ("input_ids", [0, 3, 6], 1, -1),  # beyond the data
        ("input_ids", [-1, 3, 5], 0, -1),
        ("input_ids", [3, 0, 5], 0, -1),
        ("document_starts", [0, 2**30, 2], 0, -1),
        ("positions", [0, 2, 2], -1, 0),  # two bytes for three tokens
        ("actions", [0, 0, 1], -1, 0),
        ("random_ids", [0, 0, 1], -1, 0),  # none for an action that needs one
    ):
        columns = Columns()
        columns.offsets[column] = offsets
        assert columns.resolve()[:2] == (row, mask), (column, offsets)


def test_impossible_values_are_found() -> None:
    for column, place, value, row, mask in (
        ("input_ids", 1, 100, 0, -1),  # beyond the vocabulary
        ("input_ids", 4, 65_535, 1, -1),
        ("document_starts", 0, 1, 0, -1),  # the first is not at 0
        ("second_segment", 1, 1, 1, -1),  # no room for a first segment
        ("second_segment", 0, 60_000, 0, -1),  # beyond the row
        ("pair_label", 1, 77, 1, -1),
        ("pair_label", 0, 0, 0, -1),  # a label without a second segment
        ("random_ids", 0, 100, -1, 0),  # beyond the vocabulary
        ("positions", 0, 0b1010, -1, 0),  # a bit beyond the row
        ("positions", 1, 1, -1, 1),  # a prediction without an action
        ("actions", 0, 0b101, -1, 0),  # an action without a prediction
    ):
        columns = Columns()
        columns.values[column][place] = value
        assert columns.resolve()[:2] == (row, mask), (column, value)


def test_documents_and_segments_start_in_order_inside_their_row() -> None:
    for starts, second, label, bad in (
        ([0, 2, 4], 0, -1, -1),
        ([0, 4, 2], 0, -1, 0),  # out of order
        ([0, 2, 2], 0, -1, 0),
        ([0, 2, 7], 0, -1, 0),  # the last token, which is eos
        ([0, 2, 60_000], 0, -1, 0),
        ([1, 2, 4], 0, -1, 0),
        ([0], 4, 0, -1),
        ([0], 4, 1, -1),
        ([0], 4, 77, 0),  # no such label
        ([0], 7, 0, 0),  # no room for a second segment
    ):
        columns = Columns()
        columns.values["input_ids"] = np.array([0, 10, 11, 2, 13, 14, 15, 2, 0, 2, 0], np.uint16)
        columns.offsets["input_ids"] = [0, 8, 10]
        columns.values["document_starts"] = np.array([*starts, 0, 0], np.uint16)
        columns.offsets["document_starts"] = [0, len(starts), len(starts) + 1]
        columns.values["second_segment"][0], columns.values["pair_label"][0] = second, label
        assert columns.resolve()[0] == bad, (starts, second, label)


def test_wide_ids_are_below_the_vocabulary() -> None:
    ids = np.array([0, 10**9, 2], np.uint32)
    assert _ids_below(ids.ctypes.data, 1, 4, VOCABULARY)
    assert not _ids_below(ids.ctypes.data, 3, 4, VOCABULARY)


def test_put_records_copies_every_field() -> None:
    found = np.zeros(3, RECORD)
    for number, name in enumerate(RECORD.names or ()):
        found[name] = np.arange(3) + 10 * number
    records = np.zeros(5, RECORD)
    put_records(records, np.array([4, 0, 2]), found)
    assert np.array_equal(records[[4, 0, 2]], found) and not records[[1, 3]]["tokens"].any()
    put_records(records[:3], slice(None), found)
    assert np.array_equal(records[:3], found)
