"""Archives, compared with Python's tarfile, and cases it cannot read: NULs between, damage."""

import gzip
import io
import itertools
import lzma
import tarfile
import tracemalloc
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import pyarrow.parquet as pq
import pytest

from pipeline.base.errors import DataError
from pipeline.execution.workers import local_executor
from pipeline.ingest.compression import codecs
from pipeline.ingest.corpora.sources import corpus_sources
from pipeline.ingest.documents import byte_blocks
from pipeline.ingest.documents.records import BadRecord, Dropped, Extract, Record, Source
from pipeline.ingest.extraction import formats, tar_archives
from pipeline.ingest.extraction.extract import extract
from tests.pipeline.ingest.compression.compressed_files import PACK
from tests.pipeline.ingest.dump import small_dump
from tests.pipeline.ingest.extraction.test_html_files import EVERY, write_site
from tests.pipeline.ingest.files import bad_of, put, read_all, sniffed, texts_of
from tests.pipeline.ingest.tars import PAGES, Content, extracted, tar
from tests.pipeline.ingest.web_archive import page

LONG = "directory/" * 30 + "page.txt"
SUBSET = "openwebtext/urlsf_subset{:02}-1_data.xz"


def published(subsets: Iterable[Content]) -> bytes:
    """Like openwebtext.tar.xz: .tar.xz files in a .tar.xz."""
    return lzma.compress(
        tar({SUBSET.format(n): lzma.compress(tar(pages)) for n, pages in enumerate(subsets)})
    )


def records(path: Path) -> list[Extract | BadRecord]:
    source = sniffed(path)
    assert source.format == "tar"
    return [*formats.format_of(source).begin(source)]


def texts(path: Path) -> dict[str, str]:
    return {found.id: found.text for found in records(path) if isinstance(found, Extract)}


def write(folder: Path, content: bytes) -> Path:
    return put(folder / "pages.tar", content)


def decoded(pages: Content) -> dict[str, str]:
    return {name: text.decode().strip() for name, text in pages.items()}


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_the_same_as_tarfile(tmp_path: Path, kind: int) -> None:
    content = PAGES | ({LONG: b"Long."} if kind != tarfile.USTAR_FORMAT else {})
    content |= {"naïve/日本.txt": "日本".encode()}
    archived = tar(content, kind)
    with tarfile.open(fileobj=io.BytesIO(archived)) as archive:
        files = {member.name: archive.extractfile(member) for member in archive}
        expected = {name: file.read().decode().strip() for name, file in files.items() if file}
    assert len(expected) == len(content)
    for compression, pack in {"": bytes, **PACK}.items():
        assert texts(write(tmp_path, pack(archived))) == expected, compression


def test_openwebtext_as_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [*PAGES]
    parts = [{name: PAGES[name] for name in names[start::3]} for start in range(3)]
    path = write(tmp_path, published(parts))
    expected = [
        (f"{SUBSET.format(number)}/{name}", text)
        for number, pages in enumerate(parts)
        for name, text in decoded(pages).items()
    ]
    for block in (7, 1 << 22):
        monkeypatch.setattr(codecs, "BLOCK_BYTES", block)
        assert list(texts(path).items()) == expected
    found = read_all(extracted(path, tmp_path / "documents"))
    assert [(record.origin, record.text) for record in found] == [  # type: ignore[union-attr]
        (f"pages.tar/{name}", text) for name, text in expected
    ]
    assert found[1] == Record("pages.tar@1", f"pages.tar/{expected[1][0]}", expected[1][1])


def test_concatenated_archives_with_nuls_between(tmp_path: Path) -> None:
    names = [*PAGES]
    one, two = ({name: PAGES[name] for name in names[start::2]} for start in range(2))
    for nuls in (0, 512, 5120, 10_240):
        path = write(tmp_path, tar(one) + bytes(nuls) + tar(two) + bytes(nuls))
        assert texts(path) == decoded(one | two), nuls


def test_names_and_links_are_harmless(tmp_path: Path) -> None:
    """Names are shown on one line: a newline in an id would break lists of ids."""
    buffer = io.BytesIO(tar({"../../out.txt": b"Out.", "/etc/out.txt": b"Out."}))
    with tarfile.open(fileobj=buffer, mode="a") as archive:
        for name, kind in (
            ("l", tarfile.SYMTYPE), ("h", tarfile.LNKTYPE), ("p", tarfile.FIFOTYPE),
            ("folder", tarfile.DIRTYPE),
        ):  # fmt: skip
            header = tarfile.TarInfo(name)
            header.type, header.linkname = kind, "/etc/passwd"
            archive.addfile(header)
    found = records(write(tmp_path / "in", buffer.getvalue()))
    assert [(record.id, record.text, record.dropped) for record in found] == [  # type: ignore[union-attr]
        ("../../out.txt", "Out.", ""), ("/etc/out.txt", "Out.", ""),
        *((name, "", "link or device in an archive") for name in "lhp"),
    ]  # fmt: skip
    assert [path.name for path in tmp_path.rglob("*")] == ["in", "pages.tar"]
    names = {
        "a\nb.txt": r"a\nb.txt", "\u0645\u200c\u062e": "\u0645\\u200c\u062e", "a\u00a0b": r"a\xa0b",
    }  # fmt: skip
    content = {name: f"Page {number}.".encode() for number, name in enumerate(names)}
    for kind in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        assert [*texts(write(tmp_path, tar(content, kind)))] == [*names.values()]


def test_every_file_is_read_or_has_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tar_archives, "MAX_DOCUMENT_BYTES", 1000)
    content = {
        "a": b"\xef\xbb\xbfText\0 with NULs.\r\n\0\0\0" + b"x" * 30, "b": b" \n\0",
        "c": b"\xff\xfe\xfd",
        "d": "text".encode("utf-16-le"), "e": b'{"text": "one"}\n', "._a": b"\0\5\x16\7",
        "f": b"x" * 1001, "g.gz": gzip.compress(b"Packed."), "h.gz": gzip.compress(b"x" * 9999),
    }  # fmt: skip
    found = records(write(tmp_path, tar(content)))
    assert [
        record.reason if isinstance(record, BadRecord) else record.dropped or record.text
        for record in found
    ] == [
        "Text\0 with NULs.\r\n\0\0\0" + "x" * 30, "empty", "invalid UTF-8", "binary",
        "JSON in an archive", "skipped by its name", "over 0 MiB", "Packed.",
        "over 0 MiB",
    ]  # fmt: skip
    assert found[2] == BadRecord("pages.tar/c", "invalid UTF-8")
    monkeypatch.undo()
    members = {
        "wiki.xml": small_dump(), "feed": b'<?xml version="1.0"?><rss><item>A</item></rss>',
        "sgml": b"<!DOCTYPE DOC><DOC>A</DOC>", "a.txt": b"<p>No declaration: a text.</p>",
        "._b.xml": b"<?xml?><a/>",
    }  # fmt: skip
    found = records(write(tmp_path, tar(members)))
    assert [
        (item.where, item.reason) if isinstance(item, BadRecord)
        else (item.id, item.text or item.dropped)
        for item in found
    ] == [
        ("pages.tar/wiki.xml", "MediaWiki dump in an archive"),
        ("pages.tar/feed", "XML of an unknown kind"), ("pages.tar/sgml", "XML of an unknown kind"),
        ("a.txt", "<p>No declaration: a text.</p>"),
        ("._b.xml", "skipped by its name"),
    ]  # fmt: skip


SAMPLES = {
    f"{number:04}.{ending}": content
    for number in range(3)
    for ending, content in {
        "txt": f"Text {number}.".encode(), "cls": b"3", "seg.json": b"[1, 2]", "jpg": b"\xff\xd8\0",
        "JSON": b'{\n "id": 1\n}', "npy": b"\x93NUMPY" + bytes(80),
    }.items()
}  # fmt: skip
"""Samples of several files each, as WebDataset writes them."""


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_labels_beside_texts_are_no_documents(kind: str, tmp_path: Path) -> None:
    """Only known endings are texts; the others are counted, each."""
    path = tmp_path / f"samples.{kind}"
    if kind == "tar":
        put(path, tar(SAMPLES | {"page.php": page("A page").encode(), "noending": b"A text."}))
    else:
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in SAMPLES.items():
                if not name.lower().endswith("json"):  # in a zip they are read, or refused
                    archive.writestr(name, content)
    found = read_all(extracted(path, tmp_path / "out"))
    texts = [text for text in texts_of(found) if not text.startswith("A ")]
    assert texts == ["Text 0.", "Text 1.", "Text 2."]
    assert not bad_of(found)
    if kind == "tar":
        assert len(texts_of(found)) == 5, "a page and what has no ending are documents"
    reasons = Counter(item.reason for item in found if isinstance(item, Dropped))
    endings = ("cls", "jpg", "npy") if kind == "zip" else ("cls", "jpg", "json", "npy")
    for ending in endings:
        [count] = [n for reason, n in reasons.items() if reason.endswith(f".{ending}")]
        assert count == (6 if ending == "json" else 3)
    assert len(reasons) == len(endings)


def test_a_damaged_header_is_an_error(tmp_path: Path) -> None:
    whole = tar(PAGES)
    path = write(tmp_path, whole[:3072] + b"wrong" + whole[3077:])
    with pytest.raises(DataError, match=rf"{path} is damaged \(no header at byte 3072\)"):
        records(path)


def test_an_archive_cut_at_the_border_of_a_member_or_inside_is_an_error(tmp_path: Path) -> None:
    whole = tar(PAGES)
    for size in (3072, 3072 + 100, 600, 512 * 78 + 3, len(whole) - 10_240):
        path = write(tmp_path, whole[:size])
        with pytest.raises(DataError, match=rf"{path}(: \S+)? is truncated"):
            records(path)


def test_a_pax_header_of_300_mb_is_not_unpacked(tmp_path: Path) -> None:
    """In a file of 1.4 MB."""
    header = tarfile.TarInfo("pax")
    header.type, header.size = tarfile.XHDTYPE, 300 << 20
    packer = zlib.compressobj(1, wbits=31)
    packed = packer.compress(header.tobuf())
    packed += b"".join(packer.compress(bytes(1 << 20)) for _ in range(300))
    path = write(tmp_path, packed + packer.compress(tar({"a.txt": b"One."})) + packer.flush())
    assert path.stat().st_size < 1.4e6
    tracemalloc.start()
    assert texts(path) == {"a.txt": "One."}
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 << 20


@pytest.mark.parametrize("count", [10_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_a_million_members_take_100_mb(count: int) -> None:
    member = tarfile.TarInfo("a/" * 40 + "b.txt").tobuf()
    blocks = itertools.chain(itertools.repeat(member * 100, count // 100), [bytes(1024)])
    tracemalloc.start()
    found = sum(1 for _ in tar_archives._members(codecs.BlockFile(blocks), "x.tar"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == count and peak < 100e6


def test_damage_is_one_line_that_names_the_place(tmp_path: Path) -> None:
    whole = tar(PAGES)
    packed, nested = lzma.compress(whole), whole
    for _ in range(4):
        nested = tar({"in.tar": nested})
    path = tmp_path / "pages.tar"
    inner = rf"{path}: two\.xz is (truncated|damaged)"
    for content, message in (
        (tar({"one.xz": packed, "two.xz": packed[:-60]}), inner),
        (tar({"one.xz": packed, "two.xz": packed[:300] + bytes(60) + packed[360:]}), inner),
        (nested, "is an archive in 4 archives"),
    ):
        write(tmp_path, content)
        with pytest.raises(DataError, match=message):
            records(path)


def test_headers_that_are_no_records(tmp_path: Path) -> None:
    """A megabyte of them took minutes, and some ended the archive with a traceback."""
    assert tar_archives._pax_fields(b"0 " * 200_000) == {"": ""}
    assert tar_archives._pax_fields(b"12 path=a/b\nrubbish") == {"path": "a/b"}
    assert tar_archives._pax_fields(b"x" * 99) == {}
    with tarfile.open(tmp_path / "x.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        header = tarfile.TarInfo("a.txt")
        header.size, header.pax_headers = 3, {"size": "many"}
        archive.addfile(header, io.BytesIO(b"One"))
    assert texts(tmp_path / "x.tar") == {"a.txt": "One"}


def test_giant_members_are_not_unpacked_and_large_ones_come_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpacked = 0

    def counted(file: BinaryIO, kind: codecs.Compression) -> Iterator[bytes]:
        nonlocal unpacked
        for block in codecs.decompressed(file, kind):
            unpacked += len(block)
            yield block

    monkeypatch.setattr(tar_archives, "MAX_DOCUMENT_BYTES", 1 << 20)
    monkeypatch.setattr(tar_archives, "decompressed", counted)
    bomb = gzip.compress(bytes(32 << 20))
    found = records(write(tmp_path, tar({"a": b"One.", "b.gz": bomb, "c": b"Two."})))
    assert found[1] == BadRecord("pages.tar/b.gz", "over 1 MiB")
    assert texts_of(found) == ["One.", "Two."]
    assert unpacked <= 8 << 20
    monkeypatch.setattr(byte_blocks, "PART_BYTES", 64)
    text = "So it says again and again. " * 9 + "\u00e9."
    found = texts(write(tmp_path, tar({"a": text.encode(), "b": b"Two."})))
    assert found.pop("b") == "Two." and "".join(found.values()) == text
    assert [*found][:3] == ["a", "a:62", "a:123"]


def test_pages_are_read_as_in_a_folder(tmp_path: Path) -> None:
    def rows(source: Source) -> dict[str, dict[str, str | None]]:
        return {row["id"]: row for row in pq.read_table(source.path).to_pylist()}

    folder = write_site(tmp_path / "in", 7)
    put(folder / "paper.org/xhtml", '<?xml version="1.0"?>\n' + page("Strict"))
    put(folder / "paper.org/bare.html", page("Bare").removeprefix("<!DOCTYPE html>"))
    site = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    _, sources = corpus_sources("x", [str(folder)])
    pages = rows(*extract(sources, tmp_path / "out", local_executor(1)))
    text = {"notes.txt": f"{EVERY}\n5 < 6".encode(), "odd:9": b"\xff"}
    found = rows(extracted(write(tmp_path, lzma.compress(tar(site | text))), tmp_path / "out"))
    assert found.pop("notes.txt")["text"] == f"{EVERY}\n5 < 6", "no page"
    assert found.pop("pages.tar/odd:9")["bad"] == "invalid UTF-8"
    assert found == pages and len(pages) == len(site)
    nested = tar({"a.tar.xz": lzma.compress(tar(site))})
    found = rows(extracted(write(tmp_path, nested), tmp_path / "out"))
    assert [row["text"] for row in found.values()] == [row["text"] for row in pages.values()]
    assert [*found] == [f"a.tar.xz/{name}" for name in site]


PLAIN = PAGES | {
    "a.txt": b"\xff\xfe\xfd", "b": b" \n", "c:5": b"\xff", "d": b'{"text": 1}',
    "e": b"< 5 is <b>not</b> markup", "f": b"<p>A paragraph.</p>",
}  # fmt: skip
