"""bzip2 files from any byte on: the same blocks as the library's, and the same errors."""

import bz2
import io
import random
import tracemalloc

import pytest

from pipeline.ingest.compression import bzip2
from pipeline.ingest.compression.bzip2 import bzip2_blocks
from tests.pipeline.ingest.compression.compressed_files import cases

TEXT = random.Random(0).randbytes(450_000)
ONE_STREAM = bz2.compress(TEXT, 1)
STREAMS = b"".join(bz2.compress(TEXT[at : at + 70_000]) for at in range(0, len(TEXT), 70_000))


def blocks(content: bytes, start: int = 0) -> list[tuple[int, bytes]]:
    return [*bzip2_blocks(io.BytesIO(content), start)]


@pytest.mark.parametrize("packed", [ONE_STREAM, STREAMS, STREAMS + bytes(3_000_000)])
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
        known = {mark[0] for mark in marks.found}
        bits = {8 * found[1][0] + 4000 * n + n for n in (1, 2, 3)} - known
        marks.found += [(bit, True) for bit in bits if bit >= 8 * marks.base]
        marks.found.sort()
        return grown

    monkeypatch.setattr(bzip2._Marks, "_grow", grow)
    assert blocks(ONE_STREAM) == found
    assert blocks(ONE_STREAM, found[1][0] + 10) == found[2:]


def test_damage_is_an_error() -> None:
    for packed in (ONE_STREAM, STREAMS):
        middle = len(packed) // 2
        for left in (len(packed) - 3, len(packed) - 12, middle, 60):
            with pytest.raises(EOFError):
                blocks(packed[:left])
        for changed in (b"?" * 9, bytes(len(packed) - middle)):
            with pytest.raises(OSError, match="Invalid data"):
                blocks(packed[:middle] + changed + packed[middle + len(changed) :])
    # the first mark of a stream: the blocks after it would be taken for the next ones
    one, two, three = (bz2.compress(text) for text in (b"One.", b"Two.", b"Three."))
    damaged = two[:6] + b"?" + two[7:]
    for content in (damaged + three, one + damaged + three):
        with pytest.raises(OSError, match="Invalid data"):
            blocks(content)


@pytest.mark.parametrize("start", [0, 5])
def test_what_may_be_between_and_after_streams(start: int) -> None:
    """As for the reader of one process, wherever reading starts in the first stream."""
    first, second = TEXT[:150_000], b"Two."
    packed = bz2.compress(first, 1)
    for case, (content, problem) in cases("bz2", first, second).items():
        assert content[:10] == bz2.compress(first)[:10]
        content = packed + content[len(bz2.compress(first)) :]
        if problem:
            with pytest.raises(EOFError if problem == "truncated" else OSError):
                raise AssertionError((case, blocks(content, start)))
        else:
            found = b"".join(block for _, block in blocks(content, start))
            assert found.endswith(second) and found in first + second, case
    assert blocks(packed + b"rubbish", len(packed)) == []  # whoever reads what is before reports it
    assert blocks(bz2.compress(b"")) == [], "a stream without a block"
    assert [content for _, content in blocks(bz2.compress(b"") + bz2.compress(b"a"))] == [b"a"]


def test_zeros_after_a_stream_take_no_memory() -> None:
    class Zeros(io.BytesIO):
        left = 1 << 25

        def read(self, size: int | None = -1) -> bytes:
            if not (data := super().read(size)):
                data = bytes(min(size or 0, self.left))
                self.left -= len(data)
            return data

    tracemalloc.start()
    assert [block for _, block in bzip2_blocks(Zeros(bz2.compress(b"One.")), 0)] == [b"One."]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20
