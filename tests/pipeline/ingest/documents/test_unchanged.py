"""Bytes are hashed as they are read, and a file that changes meanwhile is an error."""

import itertools
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash

from pipeline.base.errors import DataError
from pipeline.ingest.documents import byte_blocks
from pipeline.ingest.documents.parquet import group_bytes
from pipeline.ingest.documents.read import cut, read
from pipeline.ingest.documents.records import Piece, ReadSpan, Source
from pipeline.ingest.documents.unchanged import compare, has_content, reading, state_of, unchanged
from tests.pipeline.ingest.documents.raw_files import COMPRESS, LINES, source
from tests.pipeline.ingest.files import sniffed

CONTENT = b"".join(b'{"text": "Document %d."}\n' % number for number in range(1000))


def spans(file: Source, piece_bytes: int) -> list[ReadSpan]:
    """What is read of a file, piece by piece."""
    with reading(tuple(cut(file, piece_bytes))) as (pieces, found):
        for piece in pieces:
            for _ in read(piece):
                pass
        return found()


def covered(spans: list[ReadSpan]) -> set[int]:
    return set().union(*(range(span.start, span.stop) for span in spans))


@pytest.mark.parametrize("compression", COMPRESS)
def test_every_byte_that_is_read_is_in_a_span(tmp_path: Path, compression: str) -> None:
    raw = COMPRESS[compression](CONTENT)
    file = source(tmp_path, raw)
    found = spans(file, 1000)
    assert has_content(file, found)
    for start, stop, digest, *_ in [span[2:] for span in found]:
        assert digest == xxhash.xxh3_64_hexdigest(raw[start:stop])
    assert covered(found) == set(range(len(raw)))
    assert len(found) == (1 if compression else -(-len(raw) // 1000))
    raw = b"One line.\n\nTwo lines,\nof text.\n\n\n" * 100
    for plain_text in ("file", "blank_lines", "book"):
        found = spans(source(tmp_path, raw, plain_text=plain_text), 100)
        assert covered(found) == set(range(len(raw))), plain_text


def test_row_groups_of_parquet_are_hashed(tmp_path: Path) -> None:
    table = pa.table({"text": [f"Text {i}." for i in range(9)], "n": range(9)})
    path = tmp_path / "in.parquet"
    pq.write_table(table, path, row_group_size=3, compression="none", use_dictionary=False)
    raw, file = path.read_bytes(), sniffed(path)
    found = spans(file, 1)
    assert len(found) == len(group_bytes(file.path)) == 3
    assert all(before.stop <= after.start for before, after in itertools.pairwise(found))
    assert found[0].start < raw.index(b"Text 0.") < found[0].stop
    other = bytearray(raw)
    other[raw.index(b"Text 4.") + 5] = ord("7")
    path.write_bytes(other)
    assert [has_content(file, [span]) for span in found] == [True, False, True]


@pytest.mark.parametrize("compression", [*COMPRESS, "two"])
def test_a_file_with_another_end_than_when_it_was_found(tmp_path: Path, compression: str) -> None:
    """Also one that ends between two streams, which is a whole file to its decompressor."""
    compress = COMPRESS["gz" if compression == "two" else compression]
    once, twice = (compress(part) for part in (CONTENT, LINES))
    for content in (once, once + twice + compress(LINES)):
        file = source(tmp_path, once + twice)
        Path(file.path).write_bytes(content)
        piece = Piece(file, 0, file.size, file.size)
        with pytest.raises(DataError, match=r"file changed while it was read: [\d,]+ bytes, "):
            list(piece.blocks())


def test_states_and_content_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = source(tmp_path, CONTENT)
    monkeypatch.setattr(byte_blocks, "OVERRUN_BYTES", 1 << 8)
    found = spans(file, 10_000)
    assert {span[-2:] for span in found} == {file.state} == {state_of(file)}
    assert compare([file], found, tmp_path) == []
    os.utime(file.path, ns=(0, file.state[1] + 1))
    assert compare([file], found, tmp_path) == [file]
    Path(file.path).write_bytes(CONTENT.replace(b"500", b"050"))
    assert state_of(file)[0] == file.size
    assert [has_content(file, [span]) for span in found] == [True, False, True]
    with pytest.raises(DataError, match=f"file has changed since {tmp_path} was made from it"):
        compare([file], found, tmp_path)
    assert compare([file], found[:1], tmp_path) == [file]
    Path(file.path).write_bytes(CONTENT[:-1])
    assert not has_content(file, [])
    Path(file.path).unlink()
    with pytest.raises(DataError, match="file cannot be read: No such file"):
        state_of(file)
    # another state is accepted if it is asked for; a piece that is recorded early is hashed twice
    file = source(tmp_path, CONTENT)
    pieces, asked = tuple(cut(file, 10_000)), list[Source]()
    with reading(pieces, asked.append):
        assert not asked
    os.utime(file.path, ns=(0, 7))
    with reading(pieces, asked.append) as (_, found):
        assert asked == [file]
        assert {span.mtime_ns for span in found()} == {7}
    file = source(tmp_path, CONTENT)
    with reading(tuple(cut(file, 1 << 20))) as (pieces, found):
        before = found()
        assert [*read(pieces[0])] and found() == before


def test_what_was_read_before_a_file_changed_is_not_recorded(tmp_path: Path) -> None:
    file = source(tmp_path, CONTENT)
    changed = f"{file.path} changed while it was read"
    with pytest.raises(DataError, match=changed), reading((Piece(file, 0, 9, 9),)) as (_, found):
        assert len(found()) == 1
        os.utime(file.path, ns=(0, 7))
        found()
    with pytest.raises(DataError, match=changed), unchanged([file]):
        Path(file.path).write_bytes(LINES)
        raise DataError("truncated")
    with pytest.raises(DataError, match=changed), unchanged([file]):
        pytest.fail("it has another size than when it was found")
    Path(file.path).write_bytes(CONTENT)
    with pytest.raises(OSError, match="full"), unchanged([file]):
        raise OSError("full")
