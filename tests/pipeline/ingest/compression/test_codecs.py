"""One table of damage and padding for every codec, in every place that reads compressed files."""

import itertools
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
from pipeline.ingest.documents.read import is_readable
from pipeline.ingest.extraction.formats import format_of
from tests.pipeline.ingest.compression.compressed_files import PACK, SKIPPABLE, cases
from tests.pipeline.ingest.dump import dump
from tests.pipeline.ingest.dump import page as wiki_page
from tests.pipeline.ingest.files import bad_of, put, read_all, sniffed, texts_of
from tests.pipeline.ingest.tars import tar
from tests.pipeline.ingest.web_archive import articles, page

# --- the codecs


def unpacked(path: Path, content: bytes) -> bytes:
    path.write_bytes(content)
    return b"".join(read_blocks(str(path), sniff_compression(str(path)), 0, 0))


def test_what_may_be_between_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "in"
    for codec, read_bytes in itertools.product(PACK, (1, 3, 1 << 16)):
        monkeypatch.setattr(codecs, "READ_BYTES", read_bytes)
        for case, (packed, problem) in cases(codec, b"One.\n" * 50, b"Two.").items():
            if problem:
                with pytest.raises(DataError, match=f"{path} is {problem}"):
                    unpacked(path, packed)
            else:
                assert unpacked(path, packed) == b"One.\n" * 50 + b"Two.", (case, codec, read_bytes)


def test_what_is_a_compression_and_what_is_not(tmp_path: Path) -> None:
    for text in (b"BZhang wrote this", b"BZh0", b"", b"(\xb5", SKIPPABLE[:3], b"\x1f"):
        assert compression_of(text) == ""
    assert compression_of(SKIPPABLE) == compression_of(SKIPPABLE[:5]) == "zst"
    path = tmp_path / "in"  # with frames as pzstd writes them first
    assert unpacked(path, SKIPPABLE * 3 + PACK["zst"](b"One.")) == b"One."


def test_lz4_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = put(tmp_path / "a.jsonl.lz4", b"\x04\x22\x4d\x18\x64\x40\xa7")
    for read in (sniffed, read_texts):
        with pytest.raises(DataError, match=r"a.jsonl.lz4 is compressed by lz4.* unpack it with"):
            read(path)


@pytest.mark.parametrize("codec", PACK)
def test_memory_does_not_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str) -> None:
    """Members of zeros, a thousand times smaller than what they hold, and megabytes of padding."""
    monkeypatch.setattr(codecs, "BLOCK_BYTES", 1 << 20)
    size = 1 << 25
    padding = SKIPPABLE * 5_000 if codec == "zst" else bytes(1 << 22)
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
    assert unpacked(tmp_path / "in", b"".join(frames)) == b"".join(texts) * len(forms)
    for stop in [*range(1, 40), len(frames[2]) - 1]:
        with pytest.raises(DataError, match="truncated"):
            unpacked(tmp_path / "in", frames[0] + frames[2][:stop])


def giant_window(compression: str) -> bytes:
    if compression == "xz":
        filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 28}]
        return lzma.compress(b"Some text. " * 9, lzma.FORMAT_XZ, filters=filters)
    parameters = zstandard.ZstdCompressionParameters.from_level(1, window_log=31)
    frame = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return frame.compress(b"Some text. " * 9) + frame.flush()


@pytest.mark.parametrize(("compression", "option"), [("zst", "--long=27"), ("xz", "-9 or less")])
def test_giant_windows_are_refused(tmp_path: Path, compression: Compression, option: str) -> None:
    with pytest.raises(DataError, match=f"in needs more than 128 MiB .*{option}"):
        unpacked(tmp_path / "in", giant_window(compression))


# --- the places

TEXTS = [f"{number} of them went up the hill, and {number % 7} came back." for number in range(40)]
PADDED = [text + " " * 3000 for text in TEXTS]
"""More than a file's head, so that the format is found before the damage."""


def read_file(path: Path) -> list[str]:
    """The texts; raises DataError for what a slow format counts as bad, with the reason."""
    source = sniffed(path, plain_text="lines")
    slow = not is_readable(source)
    items = [*format_of(source).begin(source)] if slow else read_all(source)
    for bad in bad_of(items):
        assert slow, bad
        raise DataError(f"{path} is damaged or truncated: {bad.reason}")
    return [text.strip() for text in texts_of(items) if text]


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


JSON_LINES = "".join(f"{json.dumps({'text': text})}\n" for text in PADDED)
DOCS = "".join(
    f'<doc id="{n}" url="u?curid={n}" title="T">\nT\n\n{text}\n</doc>\n'
    for n, text in enumerate(PADDED)
)
PLACES: dict[str, tuple[Callable[[], bytes], Callable[[Path], list[str]]]] = {
    "JSON lines": (JSON_LINES.encode, read_file),
    "JSON array": (json.dumps([{"text": text} for text in PADDED]).encode, read_file),
    "plain text": ("\n".join(PADDED).encode, read_file),
    "CSV": ("\n".join(["id,text", *(f'1,"{text}"' for text in PADDED)]).encode, read_file),
    "<doc>": (DOCS.encode, read_file),
    "dump": (lambda: dump([wiki_page(n, f"T{n}", t) for n, t in enumerate(PADDED)]), read_file),
    "WARC": (lambda: b"".join(articles(24)), read_file),
    "tar": (lambda: tar({f"{n}.txt": text.encode() for n, text in enumerate(PADDED)}), read_file),
    "in a tar": ("\n".join(PADDED).encode, read_in_tar),
    "in a zip": (JSON_LINES.encode, read_in_zip),
    "HTML": (page("Title", PADDED).encode, read_file),
    "decontaminate": (JSON_LINES.encode, read_evaluation),
}
ALSO = ("xz", "bz2")
"""Codecs that each place reads by the same code as gzip and zstd, which JSON lines show."""


@pytest.mark.parametrize(
    ("place", "codec"),
    [
        pytest.param(place, codec, marks=pytest.mark.slow)
        if codec in ALSO and place != "JSON lines" else (place, codec)
        for codec in PACK for place in PLACES
    ],
)  # fmt: skip
def test_every_place_reads_all_or_says_damaged(tmp_path: Path, place: str, codec: str) -> None:
    make, read = PLACES[place]
    content = make()
    (tmp_path / "x").write_bytes(content)
    expected = read(tmp_path / "x")
    assert expected
    middle = len(content) * 3 // 4
    path = tmp_path / "in"
    for case, (packed, problem) in cases(codec, content[:middle], content[middle:]).items():
        path.write_bytes(packed)
        if problem:
            with pytest.raises(DataError, match=r"is (truncated|damaged)"):
                raise AssertionError((case, len(read(path)), len(expected)))
        else:
            assert read(path) == expected, case
