"""One table of damage and padding for every codec, in every place that reads compressed files."""

from __future__ import annotations

import json
import lzma
import random
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from pipeline.base.errors import DataError
from pipeline.data.selection.contamination import read_texts
from pipeline.ingest.compression import codecs
from pipeline.ingest.compression.codecs import Compression, compression_of, sniff_compression
from pipeline.ingest.documents.byte_blocks import read_blocks
from pipeline.ingest.documents.read import cut, is_readable, read
from pipeline.ingest.documents.records import BadRecord, Extract, Record, Source
from pipeline.ingest.documents.sniff import sniff
from pipeline.ingest.extraction.units import format_of
from tests.pipeline.ingest.compression.compressed_files import PACK, SKIPPABLE, cases
from tests.pipeline.ingest.dump import dump
from tests.pipeline.ingest.dump import page as wiki_page
from tests.pipeline.ingest.tars import tar
from tests.pipeline.ingest.web_archive import articles, page

# --- the codecs


def content_of(path: Path) -> bytes:
    return b"".join(read_blocks(str(path), sniff_compression(str(path)), 0, 0))


@pytest.mark.parametrize("read_bytes", [1, 3, 1 << 16])
@pytest.mark.parametrize("codec", PACK)
def test_what_may_be_between_and_after_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str, read_bytes: int
) -> None:
    monkeypatch.setattr(codecs, "READ_BYTES", read_bytes)
    path = tmp_path / "in"
    for case, (packed, problem) in cases(codec, b"One.\n" * 50, b"Two.").items():
        path.write_bytes(packed)
        if problem:
            with pytest.raises(DataError, match=f"{path} is {problem}"):
                content_of(path)
        else:
            assert content_of(path) == b"One.\n" * 50 + b"Two.", case


@pytest.mark.parametrize("codec", ["zst", "lz4"])
def test_skippable_frames_before_the_first_frame(tmp_path: Path, codec: str) -> None:
    """As pzstd writes them; the first frame tells which format it is."""
    path = tmp_path / "in"
    path.write_bytes(SKIPPABLE * 3 + PACK[codec](b"One."))
    assert (sniff_compression(str(path)), content_of(path)) == (codec, b"One.")


def test_what_is_no_compression() -> None:
    for text in (b"BZhang wrote this", b"BZh0", b"", b"(\xb5", SKIPPABLE[:3], b"\x1f"):
        assert compression_of(text) == ""
    assert compression_of(SKIPPABLE) == compression_of(SKIPPABLE[:5]) == "zst"


@pytest.mark.parametrize("padding", [1, 2, 3, 5])
def test_padding_of_xz_comes_in_fours(tmp_path: Path, padding: int) -> None:
    path = tmp_path / "in"
    for after in (b"", lzma.compress(b"Two.")):
        path.write_bytes(lzma.compress(b"One.") + bytes(padding) + after)
        with pytest.raises(DataError, match=r"damaged \(padding is not a multiple of four bytes\)"):
            content_of(path)


@pytest.mark.parametrize("codec", PACK)
def test_memory_does_not_grow_with_what_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str
) -> None:
    """Members of zeros, a thousand times smaller than what they hold, and megabytes of padding."""
    monkeypatch.setattr(codecs, "BLOCK_BYTES", 1 << 20)
    size = 1 << 25
    padding = SKIPPABLE * 40_000 if codec in ("zst", "lz4") else bytes(1 << 22)
    path = tmp_path / "in"
    path.write_bytes(PACK[codec](bytes(size)) + padding)
    kind = sniff_compression(str(path))
    tracemalloc.start()
    read = sum(map(len, read_blocks(str(path), kind, 0, 0)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert read == size and peak < 1 << 24  # xz looks back at 8 MB


def test_zstd_frames_of_every_form(tmp_path: Path) -> None:
    content = random.Random(0).randbytes(300_000) + b"word " * 100_000
    forms = [
        zstandard.ZstdCompressor(
            level=level, write_checksum=checksum, write_content_size=size, write_dict_id=False
        )
        for level in (1, 19) for checksum in (False, True) for size in (False, True)
    ]  # fmt: skip
    texts = [content, content[:70_000], content[300_000:], b"x", b""]
    frames = [form.compress(text) for form in forms for text in texts]
    path = tmp_path / "in"
    path.write_bytes(b"".join(frames))
    assert content_of(path) == b"".join(texts) * len(forms)
    for stop in [*range(1, 40), len(frames[2]) - 1]:
        path.write_bytes(frames[0] + frames[2][:stop])
        with pytest.raises(DataError, match="truncated"):
            content_of(path)


def giant_window(compression: str) -> bytes:
    if compression == "xz":
        filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 28}]
        return lzma.compress(b"Some text. " * 9, lzma.FORMAT_XZ, filters=filters)
    parameters = zstandard.ZstdCompressionParameters.from_level(1, window_log=31)
    frame = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return frame.compress(b"Some text. " * 9) + frame.flush()


@pytest.mark.parametrize("compression", ["zst", "xz"])
def test_what_takes_too_much_memory_is_refused(tmp_path: Path, compression: Compression) -> None:
    path = tmp_path / "in"
    path.write_bytes(giant_window(compression))
    options = {"zst": "zstd --long=27 or without --long", "xz": "xz -9 or less"}[compression]
    message = f"in needs more than 128 MiB of memory to be decompressed; compress it.* {options}$"
    with pytest.raises(DataError, match=message):
        content_of(path)


# --- the places

TEXTS = [f"{number} of them went up the hill, and {number % 7} came back." for number in range(40)]
PADDED = [text + " " * 3000 for text in TEXTS]
"""More than a file's head, so that the format is found before the damage."""


def read_pieces(source: Source) -> list[str]:
    records = [record for piece in cut(source, 1 << 20) for record in read(piece)]
    assert all(isinstance(record, Record) for record in records)
    return [record.text.strip() for record in records if isinstance(record, Record)]


def extracted(source: Source) -> list[str]:
    """The texts; raises DataError for what is counted as bad, with the reason."""
    found = []
    for record in format_of(source).begin(source):
        if isinstance(record, BadRecord):
            raise DataError(f"{source.path} is damaged or truncated: {record.reason}")
        if isinstance(record, Extract) and not record.dropped:
            found.append(record.text.strip())
    return found


def sniffed(path: Path) -> Source:
    return sniff(path, "corpus", path.name, plain_text="lines")


def read_file(path: Path) -> list[str]:
    source = sniffed(path)
    return read_pieces(source) if is_readable(source) else extracted(source)


def read_in_tar(path: Path) -> list[str]:
    path.write_bytes(tar({"a.txt": path.read_bytes()}))
    return read_file(path)


def read_in_zip(path: Path) -> list[str]:
    packed = path.read_bytes()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.jsonl", packed)
    return read_file(path)


def read_evaluation(path: Path) -> list[str]:
    return [text.strip() for text in read_texts(path)[1]]


JSON_LINES = "".join(f"{json.dumps({'text': text})}\n" for text in PADDED).encode()
PLACES: dict[str, tuple[Callable[[], bytes], Callable[[Path], list[str]]]] = {
    "JSON lines": (lambda: JSON_LINES, read_file),
    "JSON array": (lambda: json.dumps([{"text": text} for text in PADDED]).encode(), read_file),
    "plain text": (lambda: "\n".join(PADDED).encode(), read_file),
    "CSV": (lambda: "\n".join(["id,text", *(f'1,"{t}"' for t in PADDED)]).encode(), read_file),
    "<doc>": (
        lambda: "".join(
            f'<doc id="{n}" url="u?curid={n}" title="T">\nT\n\n{text}\n</doc>\n'
            for n, text in enumerate(PADDED)
        ).encode(),
        read_file,
    ),
    "dump": (
        lambda: dump([wiki_page(n, f"T{n}", text) for n, text in enumerate(PADDED)]),
        read_file,
    ),
    "WARC": (lambda: b"".join(articles(24)), read_file),
    "tar": (lambda: tar({f"{n}.txt": text.encode() for n, text in enumerate(PADDED)}), read_file),
    "in a tar": (lambda: "\n".join(PADDED).encode(), read_in_tar),
    "in a zip": (lambda: JSON_LINES, read_in_zip),
    "HTML": (lambda: page("Title", PADDED).encode(), read_file),
    "decontaminate": (lambda: JSON_LINES, read_evaluation),
}


@pytest.mark.parametrize("codec", PACK)
@pytest.mark.parametrize("place", PLACES)
def test_every_place_reads_all_or_says_damaged(tmp_path: Path, place: str, codec: str) -> None:
    make, read = PLACES[place]
    content = make()
    (tmp_path / "x").write_bytes(content)
    expected = read(tmp_path / "x")
    assert expected
    middle = len(content) * 3 // 4
    for case, (packed, problem) in cases(codec, content[:middle], content[middle:]).items():
        path = tmp_path / "in"
        path.write_bytes(packed)
        if problem:
            with pytest.raises(DataError, match=r"is (truncated|damaged)"):
                raise AssertionError((case, len(read(path)), len(expected)))
        else:
            assert read(path) == expected, case
