"""ARC files: both versions, gzip members, damage."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from pipeline.data.documents.records import BadRecord, Extract, Source
from pipeline.data.documents.sniff import sniff
from pipeline.data.extraction.places import START
from pipeline.data.extraction.units import FORMATS, cut_units
from tests.pipeline.data.web_archive import page

HTTP = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n"


def arc(url: str, block: bytes, version: int = 1, length: int = -1) -> bytes:
    more = b" 200 0123 - 17 file.arc" if version == 2 else b""
    size = len(block) if length < 0 else length
    head = f"{url} 192.0.2.1 20050314150926 text/html".encode() + more
    return head + f" {size}\n".encode() + block + b"\n"


def first(version: int) -> bytes:
    return arc(
        "filedesc://a.arc", f"{version} 0 Internet Archive\nURL IP-address\n".encode(), version
    )


def records(source: Source) -> list[Extract | BadRecord]:
    format = FORMATS[source.format]
    assert len(cut_units(source)) == 1
    return [item for _, raw in format.find(source, START) for item in format.extract(source, raw)]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_pages_are_read_without_tags_and_headers(
    tmp_path: Path, version: int, pack: object
) -> None:
    parts = [
        first(version),
        arc("http://www.paper.org/1 2", HTTP + page("Bridge").encode(), version),
        arc("dns:www.paper.org", b"20050314 192.0.2.1", version),
        arc("http://www.paper.org/404", b"HTTP/1.1 404 No\r\n\r\nGone", version),
    ]
    (tmp_path / "a").write_bytes(b"".join(pack(part) for part in parts))  # type: ignore[operator]
    source = sniff(tmp_path / "a", "news", "a")
    assert source.format == "arc"
    good, missing = records(source)
    assert isinstance(good, Extract) and isinstance(missing, Extract)
    assert good.text.startswith("Bridge") and "<" not in good.text and "HTTP" not in good.text
    assert (good.url, good.domain, good.id) == ("http://www.paper.org/1 2", "paper.org", "2")
    assert good.revised == "2005-03-14T15:09:26Z"
    assert missing.dropped == "HTTP status 404"


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_damaged_records_are_counted_and_the_next_are_read(tmp_path: Path, pack: object) -> None:
    good = arc("http://a.org/1", HTTP + page("Bridge").encode())
    parts = [first(1), good, arc("http://a.org/2", b"x", length=-1)[:-3] + b"\n", good]
    packed = [pack(part) for part in parts]  # type: ignore[operator]
    (tmp_path / "a").write_bytes(b"".join(packed))
    found = records(sniff(tmp_path / "a", "news", "a"))
    assert sum(isinstance(r, Extract) and r.text.startswith("Bridge") for r in found) == 2
    (tmp_path / "a").write_bytes(b"".join(packed)[:-200])
    found = records(sniff(tmp_path / "a", "news", "a"))
    assert isinstance(found[-1], BadRecord) and found[-1].reason in (
        "record cut off",
        "damaged data",
    )
