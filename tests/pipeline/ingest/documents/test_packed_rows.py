"""Rows in few bytes."""

import pytest

from pipeline.ingest.documents import packed_rows
from pipeline.ingest.documents.packed_rows import RowQueue, pack_rows, unpack_rows

ROWS = [
    ("/data/\udcff/a.txt", "a\u0645", 3, None, 1 << 70),
    ("/data/\U0001f469", "", -1, "x", 0),
]


def test_rows_are_what_they_were_in_few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [*unpack_rows(pack_rows(ROWS))] == ROWS
    assert [*unpack_rows(pack_rows([]))] == []
    rows = [(f"/data/corpus/{n // 1000}/{n:07d}.txt", n * 7919 % 100_000) for n in range(4000)]
    assert len(pack_rows(rows)) < 12 * len(rows)
    # a queue gives them in order, and once if asked
    monkeypatch.setattr(packed_rows, "BLOCK_ROWS", 3)
    for count in (0, 1, 3, 4, 10):
        rows, expected = RowQueue(), [(number, "x") for number in range(count)]
        for row in expected:
            rows.append(row)
        assert [*rows] == [*rows] == expected
        rows.append((count, "x"))
        assert [*rows.take()] == [*expected, (count, "x")]
        assert [*rows] == []
