"""Compressed files that are read in pieces: the same records, wherever they are cut."""

import bz2
import gzip
import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from pipeline import prepare
from pipeline.base.errors import DataError
from pipeline.data.shards.document_index import DOCUMENTS
from pipeline.data.shards.manifest import TRAIN, read_manifest
from pipeline.execution.workers import local_executor
from pipeline.ingest.compression import frames
from pipeline.ingest.compression.codecs import Compression
from pipeline.ingest.compression.frames import FRAMES_SCHEMA, FrameIndex, guess_frame, has_frames
from pipeline.ingest.documents import read as documents_read
from pipeline.ingest.documents.read import cut, file_identity, read
from pipeline.ingest.documents.records import PieceReading, Source
from pipeline.ingest.extraction import units
from pipeline.ingest.extraction.extract import extract, extracted_so_far
from tests.pipeline.ingest.compression.compressed_files import PACK, SKIPPABLE
from tests.pipeline.ingest.files import bad_of, good_of, read_all, sniffed
from tests.pipeline.preparing import Prepare

SIZES = (3000, 1, 0, 40_000, 700, 2, 9000)
"""Bytes of content of frames, in turn: few end with a line, and one holds none."""
Pack = Callable[[bytes], bytes]


def json_lines(count: int) -> bytes:
    """Lines of 20 to 2,000 bytes, one of them unusable."""
    rng = random.Random(0)
    texts = [" ".join(str(rng.random()) for _ in range(rng.randrange(100))) for _ in range(count)]
    lines = [json.dumps({"text": f"{number} {text}"}) for number, text in enumerate(texts)]
    lines[count // 2] = "{no JSON}"
    return "\n".join(lines).encode() + b"\n"


def in_frames(content: bytes, pack: Pack, sizes: tuple[int, ...] = SIZES) -> bytes:
    """The content in frames of these sizes, over and over."""
    packed, at = [], 0
    while at < len(content):
        size = sizes[len(packed) % len(sizes)]
        packed.append(pack(content[at : at + size]))
        at += size
    return b"".join(packed)


def zst_without_size(content: bytes) -> bytes:
    frame = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    return frame.compress(content) + frame.flush() + SKIPPABLE


def bgzf(content: bytes) -> bytes:
    """A block as bgzip writes it, with a field of its own in the header."""
    packed = gzip.compress(content, mtime=0)
    extra = b"\x06\x00BC\x02\x00" + (len(packed) + 7).to_bytes(2, "little")
    return packed[:3] + b"\x04" + packed[4:10] + extra + packed[10:]


PACKED: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip members": ("gz", lambda content: in_frames(content, PACK["gz"])),
    "gzip, stored": ("gz", lambda content: in_frames(content, lambda c: gzip.compress(c, 0))),
    # what is not compressed further looks like members
    "gzip in gzip": ("gz", lambda c: in_frames(c, lambda x: gzip.compress(x, 0), (90, 400_000))),
    "bgzip": ("gz", lambda content: in_frames(content, bgzf, (5000,))),
    "zstd frames": ("zst", lambda content: in_frames(content, PACK["zst"])),
    "zstd frames without sizes": ("zst", lambda content: in_frames(content, zst_without_size)),
    "bzip2 blocks": ("bz2", lambda content: bz2.compress(content, 1)),
    "bzip2 streams": ("bz2", lambda content: in_frames(content, bz2.compress, (30_000, 7))),
}
"""By what a file is made of: its ending, and what makes it."""


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files, units and runs of some kilobytes."""
    monkeypatch.setattr(documents_read, "MOST_WHOLE_BYTES", 1000)
    monkeypatch.setattr(units, "UNIT_BYTES", 7000)
    monkeypatch.setattr(frames, "STEP_BYTES", 1500)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """JSON lines in gzip members, few of which end with a line."""
    path = tmp_path / "in.jsonl.gz"
    path.write_bytes(in_frames(json_lines(300), PACK["gz"]))
    return path


def framed(path: Path) -> Source:
    """The source of a file, with its index."""
    (source,) = extract([sniffed(path)], path.with_name("documents"), local_executor(1))
    return source


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("case", PACKED)
def test_pieces_give_the_records_of_the_whole(tmp_path: Path, case: str) -> None:
    """Their ids too; those that are unusable are named by bytes, where lines are not counted."""
    ending, pack = PACKED[case]
    content = json_lines(400)
    if case == "gzip in gzip":
        content += b"\n".join([gzip.compress(content[:300], mtime=0)] * 200) + b"\n" + content
    path = tmp_path / f"in.jsonl.{ending}"
    whole = read_all(sniffed(path, pack(content)), piece_bytes=1)
    assert len(whole) >= 400
    source = framed(path)
    assert source.frames and source.format == "jsonl"
    for piece_bytes in (1, 5000, 100_000, 1 << 30):
        pieces = cut(source, piece_bytes)
        assert len(pieces) > 2 or piece_bytes > 5000
        assert [piece.start for piece in pieces[1:]] == [piece.stop for piece in pieces[:-1]]
        assert sum(piece.weight for piece in pieces) == source.size
        assert pieces[-1].stop == len(content)
        same = read_all(source, piece_bytes=piece_bytes)
        assert good_of(same) == good_of(whole)
        assert [bad.reason for bad in bad_of(same)] == [bad.reason for bad in bad_of(whole)]


@pytest.mark.usefixtures("small")
def test_an_index_is_found_once_and_is_part_of_the_identity(path: Path) -> None:
    """Estimates use it again, too; what is read of a piece can be hashed again."""
    documents = path.with_name("documents")
    assert extracted_so_far([sniffed(path)], documents) == [sniffed(path)]
    source = framed(path)
    before = Path(source.frames).stat().st_mtime_ns
    assert extracted_so_far([sniffed(path)], documents) == [source] == [framed(path)]
    assert Path(source.frames).stat().st_mtime_ns == before
    assert file_identity(source)[5] == ["frames", 1]
    for piece in cut(source, 20_000):
        reading = PieceReading()
        assert list(read(replace(piece, reading=reading)))
        again = PieceReading().take_file(str(path), reading.start, reading.stop)
        assert again.digest == reading.digest


@pytest.mark.usefixtures("small")
def test_units_of_a_false_frame_are_read_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every guess is wrong here: the truth is where the frames before a unit end."""
    right = pq.read_table(framed(path).frames)
    path.rename(other := path.with_name("other.jsonl.gz"))
    with monkeypatch.context() as wrong:
        wrong.setattr(frames, "guess_frame", lambda *_: 0)
        assert pq.read_table(framed(other).frames) == right
    # a damaged file is named
    packed = other.read_bytes()
    at = len(packed) // 2
    damages = {"truncated": packed[:-30], "damaged": packed[:at] + packed[at + 9 :]}
    for damage, content in damages.items():
        other.write_bytes(content)
        with pytest.raises(DataError, match=rf"{other} is {damage}.*; fetch it again"):
            framed(other)


def test_small_files_and_one_frame_have_no_index(
    path: Path, request: pytest.FixtureRequest
) -> None:
    assert framed(path) == sniffed(path)
    request.getfixturevalue("small")
    path.write_bytes(gzip.compress(json_lines(300)))
    assert framed(path).format == "extracted"


def test_what_is_a_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what decompresses, wherever a block of the search ends."""
    path = tmp_path / "in"
    codecs: tuple[Compression, ...] = ("gz", "zst", "bz2")
    for codec in codecs:
        path.write_bytes(PACK[codec](b"One."))
        assert not has_frames(str(path), codec, (1, 0))
        path.write_bytes(PACK[codec](b"One.") + PACK[codec](b"Two."))
        assert has_frames(str(path), codec, (2, 0))
    false, frame = b"\x1f\x8b\x08\0\0\0\0\0\0\3 and no member", gzip.compress(b"One.")
    path.write_bytes(false + frame + frame)
    with path.open("rb") as file:
        assert guess_frame(file, "gz", 0, 1000) == len(false)
        assert guess_frame(file, "gz", len(false) + 1, 1000) == len(false) + len(frame)
        assert guess_frame(file, "gz", 0, len(false)) is None
    path.write_bytes(b"before" + frame)
    for size in range(3, 12):
        monkeypatch.setattr(frames, "_SEARCH_BYTES", size)
        with path.open("rb") as file:
            assert guess_frame(file, "gz", 0, 1000) == len(b"before"), size


def test_the_runs_of_an_index_and_a_damaged_one(tmp_path: Path) -> None:
    table = pa.table([[0, 10, 30], [100, 50, 70], [True, False, True]], FRAMES_SCHEMA)
    pq.write_table(table, tmp_path / "index")
    index = FrameIndex.read(str(tmp_path / "index"))
    assert index.content.tolist() == [0, 100, 150, 220]
    assert index.starts_line.tolist() == [True, True, False]
    places = {0: (0, 0), 99: (0, 99), 100: (10, 0), 149: (10, 49), 150: (30, 0), 219: (30, 69)}
    assert {position: index.place_of(position) for position in places} == places
    lines = [position for position in range(220) if index.starts_line_at(position)]
    assert lines == [0, 100]
    assert (index.cuts(1), index.cuts(120), index.cuts(500)) == ([0, 1, 2, 3], [0, 2, 3], [0, 3])
    (tmp_path / "cut").write_bytes(b"PAR1 and no more")
    for name in ("cut", "gone"):
        with pytest.raises(DataError, match=f"{name} is missing or damaged; remove it"):
            FrameIndex.read(str(tmp_path / name))


@pytest.mark.usefixtures("small")
def test_shards_of_pieces_name_the_documents_of_the_whole(
    path: Path, monkeypatch: pytest.MonkeyPatch, make: Prepare
) -> None:
    """Prepared again they are complete; a file that has changed in the middle is refused."""
    packed, pieces, whole = path.read_bytes(), path.with_name("pieces"), path.with_name("whole")
    monkeypatch.setenv("TENFOLD_ROOT", str(path.with_name("root")))
    monkeypatch.setattr(prepare, "SPLIT_BYTES", 20_000)
    monkeypatch.setattr(prepare, "SHARD_BYTES", 1)
    given = ("--corpus", "mine", "--input", path)
    make(*given, output="pieces")
    assert len(read_manifest(pieces).of(TRAIN)) > 5
    assert "complete already" in make(*given, output="pieces")
    with monkeypatch.context() as context:
        context.setattr(documents_read, "MOST_WHOLE_BYTES", 1 << 30)
        make(*given, output="whole")
    ids = [sorted(pq.read_table(at / DOCUMENTS)["id"].to_pylist()) for at in (pieces, whole)]
    assert ids[0] == ids[1] and len(ids[0]) > 290
    at = packed.index(b"\x1f\x8b", len(packed) // 2)
    path.write_bytes(packed[: at + 4] + b"time" + packed[at + 8 :])
    assert f"{path} has changed since" in make(*given, output="pieces", code=2)
