"""Blocks and their places do not depend on where reading starts."""

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.base.errors import DataError
from pipeline.ingest.compression.codecs import sniff_compression
from pipeline.ingest.extraction import places
from pipeline.ingest.extraction.places import START, Block, blocks_from

Pack = Callable[[bytes], bytes]
TEXT = b"".join(b"%d and %d\n" % (number * 7919 % 10007, number) for number in range(20_000))


@pytest.mark.parametrize("pack", [bytes, lambda text: bz2.compress(text, 1), gzip.compress,
                                  lzma.compress])  # fmt: skip
def test_blocks_from_any_place(tmp_path: Path, pack: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    path.write_bytes(pack(TEXT))
    monkeypatch.setattr(places, "BLOCK_BYTES", 1 << 16)
    compression = sniff_compression(str(path))
    whole = [*blocks_from(str(path), compression, START)]
    assert b"".join(block.content for block in whole) == TEXT
    named = {(block.position, block.offset + at): byte for block in whole
             for at, byte in enumerate(block.content)}  # fmt: skip
    assert len(named) == len(TEXT) and [*named] == sorted(named)
    for start in (1, 100_000, len(TEXT) * 2 // 3, len(TEXT) - 1):
        place = [*named][start]
        found = [*blocks_from(str(path), compression, place)]
        if places.starts_anywhere(compression):
            assert b"".join(block.content for block in found) == TEXT[start:]
        known = [(b.position, b.offset) in named and named[b.position, b.offset] == b.content[0]
                 for b in found]  # fmt: skip
        assert known and all(known)


def test_a_block_without_its_start_and_a_cut_file(tmp_path: Path) -> None:
    assert Block(7, 2, b"abc").after(2) == Block(7, 4, b"c")
    path = tmp_path / "cut.bz2"
    path.write_bytes(bz2.compress(TEXT)[:-9])
    with pytest.raises(DataError, match=r"cut\.bz2 is truncated"):
        [*blocks_from(str(path), "bz2", START)]
