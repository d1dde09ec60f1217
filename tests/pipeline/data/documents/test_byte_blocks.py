"""Lines of raw files; compressions and damaged files are tested in test_read.py."""

import lzma
import random
from pathlib import Path

import pytest
import zstandard

from pipeline.data.documents import byte_blocks
from pipeline.data.documents.byte_blocks import (
    count_lines,
    first_line_start,
    follows_blank_line,
    parse_again,
    read_blocks,
)
from pipeline.errors import DataError


def write(folder: Path, content: bytes) -> str:
    (folder / "file").write_bytes(content)
    return str(folder / "file")


@pytest.fixture(autouse=True, params=[1, 2, 1 << 16])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_blocks, "BLOCK_BYTES", request.param)
    monkeypatch.setattr(byte_blocks, "OVERRUN_BYTES", request.param)


def test_blocks_end_at_the_wanted_position(tmp_path: Path) -> None:
    path = write(tmp_path, b"0123456789")
    blocks = list(read_blocks(path, "", 2, 7))
    assert b"".join(blocks) == b"23456789"
    assert all(blocks)
    read = [2 + sum(map(len, blocks[:n])) for n in range(len(blocks) + 1)]
    assert 7 in read


def test_first_line_start(tmp_path: Path) -> None:
    path = write(tmp_path, b"ab\n\ncd")
    starts = [first_line_start(path, position) for position in range(8)]
    assert starts == [0, 3, 3, 3, 4, 6, 6, 6]


def test_count_lines(tmp_path: Path) -> None:
    path = write(tmp_path, b"ab\n\ncd\n")
    assert [count_lines(path, position) for position in range(8)] == [0, 0, 0, 1, 2, 2, 2, 3]


@pytest.mark.parametrize(
    ("before", "blank"),
    [(b"", True), (b"\n", True), (b"ab\n", False), (b"ab\n\n", True), (b"ab\n \t\r\n", True),
     (b"ab\n  c\n", False), (b" \n", True), (b"\xef\xbb\xbf\n", True), (b"ab \r\n", False)],
)  # fmt: skip
def test_follows_blank_line(tmp_path: Path, before: bytes, blank: bool) -> None:
    assert follows_blank_line(write(tmp_path, before + b"text"), len(before)) is blank


def test_zstd_comes_in_blocks_whatever_it_holds(tmp_path: Path) -> None:
    """A file of 2 KB; all of it at once would be 64 MB."""
    content = bytes(1 << 26)
    path = write(tmp_path, zstandard.ZstdCompressor().compress(content))
    blocks = list(read_blocks(path, "zst", 0, 0))
    assert max(map(len, blocks)) <= 1 << 21 and sum(map(len, blocks)) == len(content)


def test_zstd_frames_of_every_form(tmp_path: Path) -> None:
    content = random.Random(0).randbytes(300_000) + b"word " * 100_000
    forms = [
        zstandard.ZstdCompressor(
            level=level, write_checksum=checksum, write_content_size=size, write_dict_id=False
        )
        for level in (1, 19) for checksum in (False, True) for size in (False, True)
    ]  # fmt: skip
    skippable = b"\x5a\x2a\x4d\x18\x05\0\0\0extra"
    texts = [content, content[:70_000], content[300_000:], b"x", b""]
    frames = [form.compress(text) for form in forms for text in texts]
    path = write(tmp_path, skippable.join([b"", *frames, b""]))
    assert b"".join(read_blocks(path, "zst", 0, 0)) == b"".join(texts) * len(forms)
    frame = frames[2]
    for stop in [*range(1, 40), len(frame) - 1]:
        with pytest.raises(DataError, match="truncated"):
            list(read_blocks(write(tmp_path, frames[0] + frame[:stop]), "zst", 0, 0))
    with pytest.raises(DataError, match="damaged"):
        list(read_blocks(write(tmp_path, frame + b"more"), "zst", 0, 0))


ONE, TWO = lzma.compress(b"One.\n" * 50), lzma.compress(b"Two.\n")


@pytest.fixture(params=[1, 3, 1 << 20])
def xz_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_blocks, "XZ_BYTES", request.param)


@pytest.mark.usefixtures("xz_bytes")
@pytest.mark.parametrize("padding", [0, 4, 64])
def test_xz_streams(tmp_path: Path, padding: int) -> None:
    zeros = bytes(padding)
    path = write(tmp_path, ONE + zeros + lzma.compress(b"") + TWO + zeros)
    blocks = list(read_blocks(path, "xz", 0, 0))
    assert b"".join(blocks) == b"One.\n" * 50 + b"Two.\n"
    assert all(blocks)
    assert max(map(len, blocks)) <= byte_blocks.BLOCK_BYTES


@pytest.mark.usefixtures("xz_bytes")
@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (ONE + b"\xff" + TWO[1:], "damaged"),
        (ONE + TWO[:7] + b"\xff" + TWO[8:], "damaged"),
        (ONE + bytes(12) + TWO[12:], "damaged"),
        (ONE + b"x", "damaged"),
        (ONE + bytes(4) + b"garbage", "damaged"),
        (ONE + bytes(3), "damaged"),
        (ONE + bytes(5) + TWO, "damaged"),
        (ONE[:-1], "truncated"),
        (ONE + TWO[:-1], "truncated"),
        (ONE + TWO[:5], "truncated"),
        (ONE + bytes(4) + TWO[:20], "truncated"),
    ],
)
def test_xz_streams_that_are_damaged(tmp_path: Path, content: bytes, problem: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(DataError, match=f"{path} is {problem}"):
        list(read_blocks(path, "xz", 0, 0))


def test_parse_again() -> None:
    assert parse_again(b'\xef\xbb\xbf{"a": [NaN, -Infinity, 1.5, "NaN"]}') == {
        "a": [None, None, 1.5, "NaN"]
    }
    assert parse_again(b'["\\uD83D", "a\\uDE42b", "\\uD83D\\uDE42", "\\\\ud83d"]') == [
        "?", "a?b", "🙂", "\\ud83d",
    ]  # fmt: skip
    for line in (b'{"a": 1', b'{"a": NaN', b'{"a": NaN, "b": "\\udc00}', b"\xff NaN"):
        with pytest.raises(ValueError):
            parse_again(line)


def giant_window(compression: str) -> bytes:
    if compression == "xz":
        filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 28}]
        return lzma.compress(b"Some text. " * 9, lzma.FORMAT_XZ, filters=filters)
    parameters = zstandard.ZstdCompressionParameters.from_level(1, window_log=31)
    frame = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return frame.compress(b"Some text. " * 9) + frame.flush()


@pytest.mark.parametrize("compression", ["zst", "xz"])
def test_what_takes_too_much_memory_is_refused(
    tmp_path: Path, compression: byte_blocks.Compression
) -> None:
    path = tmp_path / "in"
    path.write_bytes(giant_window(compression))
    options = {"zst": "zstd --long=27 or without --long", "xz": "xz -9 or less"}[compression]
    message = f"in needs more than 128 MiB of memory to be decompressed; compress it.* {options}$"
    with pytest.raises(DataError, match=message):
        list(read_blocks(str(path), compression, 0, 1))
