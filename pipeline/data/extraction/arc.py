"""Records of an ARC file, the Internet Archive's format before WARC, as WARC records.

Before each record is a line: URL, IP address, time, type, in version 2 more fields, and its length.
What follows a damaged record is read from the next such line on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pipeline.data.documents.records import Source
from pipeline.data.extraction.places import START, Place
from pipeline.data.extraction.warc import MAX_BLOCK_BYTES, Stretch, Torn, WarcRecord, raw_blocks

_MAX_LINE_BYTES = 1 << 16
_LINE = re.compile(
    rb"(\S.*?) (?:[\d.]+|[\da-fA-F:.]+|-) (\d{4})(\d\d)(\d\d)(\d\d)?(\d\d)?(\d\d)? .*?(\d+)\s*"
)
_NEXT = re.compile(rb"\n[a-z]{2,12}:\S[^\n]{0,8192} [\da-fA-F:.]+ \d{8,14} [^\n]{1,8192} \d+\r?\n")


def find_arc_records(source: Source, start: Place) -> Iterator[tuple[Place, WarcRecord | Torn]]:
    """Yield every record and its place; ARC files are read from their start.

    Raises DataError if the file cannot be read at all.
    """
    assert start == START
    stretch = Stretch(raw_blocks(source, 0), 0, True)
    number = 0
    while not stretch.is_last:
        stretch.begin()
        while stretch.skip_blank_lines():
            number += 1
            place = (stretch.position, 0)
            record = _record(stretch, number)
            if isinstance(record, Torn) and not stretch.skip_to_next_record(_NEXT, _MAX_LINE_BYTES):
                stretch.is_damaged = False  # `record` reports it
            yield place, record
        if stretch.is_damaged:
            number += 1
            yield (stretch.position, 0), Torn(number, "damaged data")


def _record(stretch: Stretch, number: int) -> WarcRecord | Torn:
    while (end := stretch.data.find(b"\n")) < 0:
        if len(stretch.data) > _MAX_LINE_BYTES or not stretch.ensure(len(stretch.data) + 1):
            return Torn(number, "no ARC record")
    line = _LINE.fullmatch(bytes(stretch.data[:end]))
    if not line or len(line[8]) > 15:
        return Torn(number, "no ARC record")
    size, begin = int(line[8]), end + 1
    kept = min(size, MAX_BLOCK_BYTES)
    if not stretch.ensure(begin + kept):
        return Torn(number, "record cut off")
    block = bytes(stretch.data[begin : begin + kept])
    if kept == size and not _ends_at(stretch, begin + size):
        return Torn(number, "record of another length than stated")
    if not stretch.skip(begin + size):
        return Torn(number, "record cut off")
    url = line[1].decode(errors="replace")
    year, month, day, *time = (part.decode() if part else "00" for part in line.groups()[1:7])
    headers = {
        "warc-type": "response" if url.startswith("http") else "warcinfo",
        "warc-target-uri": url,
        "warc-date": f"{year}-{month}-{day}T{':'.join(time)}Z",
        "warc-record-id": str(number),
    }
    return WarcRecord(number, headers, block, kept == size, stretch.position)


def _ends_at(stretch: Stretch, end: int) -> bool:
    while len(stretch.data) <= end and stretch.grow():
        pass
    return bytes(stretch.data[end : end + 1]) in (b"", b"\n", b"\r")
