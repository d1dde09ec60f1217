"""Lines of raw files; compressed files are tested in test_codecs.py."""

from pathlib import Path

import pytest

from pipeline.ingest.documents import byte_blocks
from pipeline.ingest.documents.byte_blocks import (
    count_lines,
    first_line_start,
    follows_blank_line,
    parse_again,
    parts_of,
    read_blocks,
)
from tests.pipeline.ingest.documents.raw_files import in_blocks
from tests.pipeline.ingest.files import put


@pytest.mark.parametrize("block", [1, 2, 1 << 16])
def test_lines_and_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    in_blocks(monkeypatch, block)
    path = str(put(tmp_path / "file", b"0123456789"))
    blocks = list(read_blocks(path, "", 2, 7))
    assert b"".join(blocks) == b"23456789" and all(blocks)
    assert 7 in [2 + sum(map(len, blocks[:n])) for n in range(len(blocks) + 1)]
    put(tmp_path / "file", b"ab\n\ncd")
    assert [first_line_start(path, position) for position in range(8)] == [0, 3, 3, 3, 4, 6, 6, 6]
    put(tmp_path / "file", b"ab\n\ncd\n")
    assert [count_lines(path, position) for position in range(8)] == [0, 0, 0, 1, 2, 2, 2, 3]
    for before, blank in (
        (b"", True), (b"\n", True), (b"ab\n", False), (b"ab\n\n", True), (b"ab\n \t\r\n", True),
        (b"ab\n  c\n", False), (b" \n", True), (b"\xef\xbb\xbf\n", True), (b"ab \r\n", False),
    ):  # fmt: skip
        put(tmp_path / "file", before + b"text")
        assert follows_blank_line(path, len(before)) is blank, before


def test_giant_documents_come_in_parts_and_lines_are_parsed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(byte_blocks, "PART_BYTES", 64)
    for joint in ("", " ", "\n", "\n\n"):
        document = joint.join(["\u00e9l\U0001f600ve"] * 40).encode()
        parts = [*parts_of(document)]
        assert b"".join(part for _, part in parts) == document and len(parts) > 3
        assert all(document[start:].startswith(part) and len(part) <= 64 for start, part in parts)
        assert all(part.decode().endswith(joint) for _, part in parts[:-1])
    assert [*parts_of(b"short")] == [(0, b"short")]
    assert parse_again(b'\xef\xbb\xbf{"a": [NaN, -Infinity, 1.5, "NaN"]}') == {
        "a": [None, None, 1.5, "NaN"]
    }
    assert parse_again(b'["\\uD83D", "a\\uDE42b", "\\uD83D\\uDE42", "\\\\ud83d"]') == [
        "?", "a?b", "🙂", "\\ud83d",
    ]  # fmt: skip
    for line in (b'{"a": 1', b'{"a": NaN', b'{"a": NaN, "b": "\\udc00}', b"\xff NaN"):
        with pytest.raises(ValueError):
            parse_again(line)
