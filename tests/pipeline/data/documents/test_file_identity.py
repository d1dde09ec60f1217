"""The identity of a file follows its ends, its size and how it is read, not where it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pipeline.data.documents.file_identity import file_ends, file_identity
from pipeline.data.documents.records import Source
from pipeline.data.documents.sniff import sniff

EDGE = 1 << 16


def source(path: Path, content: bytes) -> Source:
    path.write_bytes(content)
    return sniff(path, "news", "a.txt")


def test_the_place_does_not_count_but_name_size_and_ends_do(tmp_path: Path) -> None:
    content = b"".join(b"%07d\n" % number for number in range(3 * EDGE // 8))
    first = source(tmp_path / "a.txt", content)
    (tmp_path / "b").mkdir()
    identity = file_identity(first)
    assert file_identity(source(tmp_path / "b" / "c.txt", content)) == identity
    for other in (b"9" + content[1:], content[:-2] + b"9\n", content[:EDGE] + content[EDGE + 8 :]):
        assert file_identity(source(tmp_path / "a.txt", other)) != identity
    middle = content[:EDGE] + b"x" + content[EDGE + 1 :]
    assert file_identity(source(tmp_path / "a.txt", middle)) == identity  # too much to read


def test_how_a_file_is_read_counts(tmp_path: Path) -> None:
    first = source(tmp_path / "a.txt", b"One.\n\nTwo.\n")
    for other in (
        replace(first, corpus="web"), replace(first, licence="CC0"),
        replace(first, plain_text="blank_lines"), replace(first, text_field="body"),
    ):  # fmt: skip
        assert file_identity(other) != file_identity(first)


def test_ends_of_a_short_file_overlap(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "b").write_bytes(b"xx")
    assert file_ends(str(tmp_path / "a")) != file_ends(str(tmp_path / "b"))
