"""Records of WARC files: complete ones as fastwarc reads them, damaged ones reported."""

import gzip
import io
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from fastwarc.stream_io import BrotliWriter
from fastwarc.warc import ArchiveIterator

from pipeline.ingest.extraction import warc
from pipeline.ingest.extraction.warc import Torn, WarcRecord, parse_response, read_records
from tests.pipeline.ingest.files import sniffed
from tests.pipeline.ingest.web_archive import members, page, record, response

Pack = Callable[[list[bytes]], bytes]
RECORDS = [response(page(f"Title {number}"), number=number) for number in range(6)]


def read(path: Path, content: bytes | None = None) -> list[WarcRecord | Torn]:
    source = sniffed(path, content)
    assert source.format == "warc"
    return [*read_records(source)]


def torn(found: list[WarcRecord | Torn]) -> list[tuple[int, str]]:
    return [(item.number, item.reason) for item in found if isinstance(item, Torn)]


def test_the_same_records_as_fastwarc(tmp_path: Path) -> None:
    path, records = tmp_path / "x.warc", [record("warcinfo", b"a: b\r\n"), *RECORDS]
    whole = b"".join(records)
    for content in (whole, members(records), gzip.compress(whole)):
        found = read(path, content)
        archive = ArchiveIterator(str(path), parse_http=False)
        theirs = [(item.record_id, item.reader.read()) for item in archive]
        assert not torn(found)
        ours = [(item.headers["warc-record-id"], item.block) for item in found]  # type: ignore[union-attr]
        assert ours == theirs and len(ours) == 7


def test_the_same_records_as_fastwarc_of_real_crawls(real_data: Path) -> None:
    paths = [*real_data.glob("cc-news/warc/*"), *real_data.glob("formats/w[ae]*/*[!4]")]
    whole = [path for path in paths if "clipped" not in path.name and "quirk" not in path.name]
    assert len(whole) == 5
    for path in whole:
        theirs = [item.reader.read() for item in ArchiveIterator(str(path), parse_http=False)]
        assert [getattr(item, "block", item) for item in read(path)] == theirs
    assert read(real_data / "formats/warc/clipped.warc.gz") == [Torn(1, "record cut off")]


@pytest.mark.parametrize("size", [1025, 1 << 16])
def test_damage_loses_one_record(
    tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warc, "READ_BYTES", size)
    parts = [gzip.compress(item, mtime=0) for item in RECORDS]
    ends = [sum(map(len, parts[:number])) for number in range(len(parts) + 1)]
    whole = b"".join(parts)
    holed = bytearray(whole)
    holed[ends[2] + 200 : ends[2] + 230] = bytes(30)
    found = read(tmp_path / "holed.warc.gz", bytes(holed))
    assert [item.number for item in found] == [1, 2, 3, 4, 5, 6]
    assert [number for number, _ in torn(found)] == [3]
    for cut in (ends[5] + 1, ends[5] + 11, ends[5] + 300, ends[6] - 40):
        found = read(tmp_path / "cut.warc.gz", whole[:cut])
        assert len(found) == 6 and len(torn(found)) == 1, cut
    found = read(tmp_path / "cut.warc.gz", whole[:-1])  # in the checksum, after the record
    assert len(found) == 7 and torn(found) == [(7, "damaged data")]
    assert torn(read(tmp_path / "padded.warc.gz", whole + bytes(600_000))) == []
    strange = whole[: ends[2]] + b"hello" * 50 + whole[ends[2] :]
    found = read(tmp_path / "strange.warc.gz", strange)
    assert len(found) == 7 and torn(found) == [(3, "damaged data")]


@pytest.mark.parametrize("pack", [b"".join, members])
def test_wrong_lengths(tmp_path: Path, pack: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warc, "MAX_BLOCK_BYTES", 5000)
    wrong = [record("response", b"x" * 900, length=length) for length in (10, 2000, 1 << 40)]
    wrong.append(record("response", b"x").replace(b"Content-Length: 1", b"Content-Length: one"))
    wrong.append(b"nothing of the kind\r\n\r\n")
    for number, item in enumerate(wrong):
        found = read(tmp_path / "x.warc", pack([RECORDS[0], item, *RECORDS[1:4]]))
        if number == 2 and pack is not members:
            # The rest of the file looks like its block, and exceeds the limit.
            assert len(found) == 2 and torn(found) == [(2, "record cut off")]
            continue
        assert [item.number for item in found] == [1, 2, 3, 4, 5], number
        assert [number for number, _ in torn(found)] == [2], number


def test_a_long_record_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warc, "MAX_BLOCK_BYTES", 1 << 20)
    long = record("response", bytes(24 << 20))
    source = sniffed(tmp_path / "long.warc.gz", members([RECORDS[0], long, RECORDS[1]]))
    tracemalloc.start()
    found = [*read_records(source)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [getattr(item, "is_whole", None) for item in found] == [True, False, True]
    assert peak < 16 << 20


def test_bodies_are_decoded_only_if_they_are_encoded() -> None:
    body = b"<p>Some text.</p>" * 100
    stream = io.BytesIO()
    with BrotliWriter(stream) as writer:
        writer.write(body)
    chunked = b"%x\r\n%b\r\n5;a=b\r\nthree\r\n0\r\n\r\n" % (len(body), body)
    for encoding, coded in (
        ("gzip", gzip.compress(body)), ("deflate", zlib.compress(body)), ("br", stream.getvalue()),
        ("gzip", gzip.compress(body[:9]) + gzip.compress(body[9:])),  # all that follows a member
        ("gzip", gzip.compress(body) + b"\r\n<!-- "), ("gzip", gzip.compress(body) + bytes(9)),
        ("gzip", body), ("br", body), ("identity", body),
    ):  # fmt: skip
        head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\n\r\n".encode()
        assert parse_response(head + coded).body == body, encoding
    head = b"HTTP/1.1 404 Not Found\nTransfer-Encoding: chunked\nX: a\n  b\n\n"
    answer = parse_response(head + chunked)
    assert (answer.status, answer.headers["x"]) == (404, "a b")
    assert answer.body == body + b"three"
    assert parse_response(head + body).body == body
    assert parse_response(b"<p>no head</p>").status == 0
