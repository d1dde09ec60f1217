"""bzip2 files from any byte on: the same blocks as the library's, and the same errors."""

from __future__ import annotations

import bz2
import io
import random

import pytest

from pipeline.data.extraction import bzip2
from pipeline.data.extraction.bzip2 import bzip2_blocks

TEXT = random.Random(0).randbytes(450_000)
ONE_STREAM = bz2.compress(TEXT, 1)
STREAMS = b"".join(bz2.compress(TEXT[at : at + 70_000]) for at in range(0, len(TEXT), 70_000))


def blocks(content: bytes, start: int = 0) -> list[tuple[int, bytes]]:
    return [*bzip2_blocks(io.BytesIO(content), start)]


@pytest.mark.parametrize("packed", [ONE_STREAM, STREAMS, STREAMS + b"rubbish" * 9])
def test_blocks_are_the_same_from_any_byte_on(packed: bytes) -> None:
    found = blocks(packed)
    assert b"".join(content for _, content in found) == TEXT and len(found) > 4
    for start in (1, 5, found[2][0], found[2][0] + 1, len(packed) // 2, len(packed) - 3):
        assert blocks(packed, start) == [block for block in found if block[0] >= start], start


def test_what_only_looks_like_a_mark_is_no_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes of a block that look like marks at several alignments."""
    found = blocks(ONE_STREAM)
    real = bzip2._Marks._grow

    def grow(marks: bzip2._Marks) -> bool:
        grown = real(marks)
        bits = {8 * found[1][0] + 4000 * n + n for n in (1, 2, 3)} - {
            mark[0] for mark in marks.found
        }
        marks.found += [(bit, True) for bit in bits if bit >= 8 * marks.base]
        marks.found.sort()
        return grown

    monkeypatch.setattr(bzip2._Marks, "_grow", grow)
    assert blocks(ONE_STREAM) == found
    assert blocks(ONE_STREAM, found[1][0] + 10) == found[2:]


@pytest.mark.parametrize("packed", [ONE_STREAM, STREAMS])
def test_damage_is_an_error(packed: bytes) -> None:
    middle = len(packed) // 2
    for left in (len(packed) - 3, len(packed) - 12, middle, 60):
        with pytest.raises(EOFError):
            blocks(packed[:left])
    for changed in (b"?" * 9, bytes(len(packed) - middle)):
        with pytest.raises(OSError, match="Invalid data"):
            blocks(packed[:middle] + changed + packed[middle + len(changed) :])


def test_an_empty_stream_has_no_block() -> None:
    assert blocks(bz2.compress(b"")) == []
    assert [content for _, content in blocks(bz2.compress(b"") + bz2.compress(b"a"))] == [b"a"]
