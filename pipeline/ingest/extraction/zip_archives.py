"""Files in a zip archive: each is read as if it lay in a folder, in whatever format it is.

A member is unpacked to a temporary file beside the result, which gets no name from the archive, so
names and links are harmless. In an archive of several files, each plain text with an ending of
texts, or without one, is a document, as in a tar; other endings are counted. What is encrypted,
expands without measure or is an archive itself is refused.
"""

from __future__ import annotations

import re
import shutil
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.base.errors import DataError, shown_name
from pipeline.base.files import temporary_path, why_not_written
from pipeline.base.skipped_names import BY_NAME, is_skipped_path, why_not_text
from pipeline.ingest.documents.json_lines import stored_text
from pipeline.ingest.documents.read import TABLES, cut, read
from pipeline.ingest.documents.records import (
    FORMAT_NAMES,
    PLAIN_TEXT_FORMATS,
    BadRecord,
    Dropped,
    Extract,
    Source,
)
from pipeline.ingest.documents.sniff import sniff
from pipeline.ingest.extraction.html_files import read_html

ZIP_VERSION = 3
"""Increase it when the same archive gives different documents, so with `web_pages.WEB_VERSION`."""

_MOST_EXPANSION = 200  # text rarely shrinks to a twentieth
_SMALL_BYTES = 64 << 20
_ENCRYPTED = 1
_DATA_ENDING = re.compile(
    r"\.(?:jsonl?|ndjson|csv|tsv|parquet|arrow|feather|xml|x?html?|warc|wet|zip|tar)(?:\.\w+)?$",
    re.I,
)
"""Endings of files that are refused if they cannot be read; others are counted."""
_END_MARK, _END_BYTES = b"PK\x05\x06", 22  # start and size of the record that ends a directory


@dataclass(frozen=True, slots=True)
class ZipMember:
    """A file in an archive that is open."""

    archive: zipfile.ZipFile
    info: zipfile.ZipInfo
    is_alone: bool
    """True if it is the only file of the archive whose name is not skipped."""


def read_zip(source: Source, folder: Path) -> Iterator[Extract | BadRecord]:
    """Yield the documents of the members; folder: in which one at a time is unpacked."""
    for member in find_zip_members(source):
        yield from extract_zip_member(source, member, folder)


def find_zip_members(source: Source) -> Iterator[ZipMember]:
    """Yield the members. Raises DataError if one cannot be read."""
    with opened(source.path) as archive:
        files = _files(source.path, archive)
        read = sum(not is_skipped_path(info.filename) for info in files)
        for info in files:
            yield ZipMember(archive, info, read == 1)


def member_starts(source: Source) -> tuple[list[int], int]:
    """The bytes on disk where members start, in the order of `find_zip_members`, and where the
    archive's list of members starts, which is after all of them."""
    with opened(source.path) as archive:
        starts = [info.header_offset for info in _files(source.path, archive)]
        return starts, archive.start_dir


def _files(path: str, archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """The files of an archive, in order. Raises DataError if it is encrypted, a bomb or not all."""
    _require_whole(path, archive)
    members = [member for member in archive.infolist() if not member.is_dir() and member.file_size]
    for member in members:
        if member.flag_bits & _ENCRYPTED:
            raise DataError(f"{path} is encrypted ({member.filename!r}); unpack it")
    size = Path(path).stat().st_size
    packed = sum(member.compress_size for member in members)
    unpacked = sum(member.file_size for member in members)
    # More packed bytes than the file has: members overlap, as in bombs that list one many times.
    if packed > size or unpacked > max(_MOST_EXPANSION * size, _SMALL_BYTES):
        raise DataError(
            f"{path} holds {unpacked / 1e6:,.0f} MB in {size / 1e6:,.1f} MB, more than text can; "
            "unpack it if you trust it"
        )
    return members


def _require_whole(path: str, archive: zipfile.ZipFile) -> None:
    """Raise DataError if the file holds more than the archive whose directory is its last.

    zipfile ignores what is before and after, such as an archive to which another was appended.
    """
    first = min([archive.start_dir, *(member.header_offset for member in archive.infolist())])
    with Path(path).open("rb") as file:
        file.seek(archive.start_dir)
        end = file.read()
    directory_end = end.rfind(_END_MARK) + _END_BYTES + len(archive.comment)
    if first or end[directory_end:].strip(b"\0"):
        where = "before" if first else "after"
        raise DataError(
            f"{path} is damaged (bytes {where} the archive that its directory lists, perhaps of "
            "another archive); unpack it"
        )


@contextmanager
def opened(path: str) -> Iterator[zipfile.ZipFile]:
    """An archive; its errors become a DataError with the file's name."""
    with _naming(path), zipfile.ZipFile(path) as archive:
        yield archive


@contextmanager
def _naming(path: str) -> Iterator[None]:
    try:
        yield
    except (zipfile.BadZipFile, EOFError, zipfile.LargeZipFile) as error:
        raise DataError(f"{path} is truncated or damaged ({error}); fetch it again") from error
    except (NotImplementedError, RuntimeError) as error:
        raise DataError(f"{path} cannot be read ({error}); unpack it") from error


def extract_zip_member(
    source: Source, member: ZipMember, folder: Path
) -> Iterator[Extract | BadRecord]:
    """The documents of a member; folder: in which it is unpacked.

    Raises DataError if it is an archive or damaged.
    """
    info = member.info
    name = shown_name(info.filename)
    where = f"{source.name}/{name}"
    if is_skipped_path(info.filename):
        yield _extract(name, dropped=BY_NAME)
        return
    if stat.S_ISLNK(info.external_attr >> 16):  # the upper half has the modes of Unix
        yield _extract(name, dropped="link or device in an archive")
        return
    # As if it were not packed, if there is nothing else.
    reason = "" if member.is_alone else why_not_text(info.filename)
    with _unpacked(source, member, folder) as path:
        try:
            found = sniff(
                path, source.corpus, name, text_field=source.text_field,
                plain_text=source.plain_text if member.is_alone else "file",
                is_mapped=bool(source.rewriting.function),
            )  # fmt: skip
            if reason and found.format in PLAIN_TEXT_FORMATS:
                yield _extract(name, dropped=reason)
                return
            found = replace(found, rewriting=source.rewriting)
            read_to = 0
            for item in _documents(found, name, where):
                if isinstance(item, Extract):
                    read_to = _end(item, found, read_to)
                    share = min(1.0, read_to / info.file_size)
                    # As if it shrank evenly.
                    place = info.header_offset + int(info.compress_size * share)
                    yield replace(item, position=place)
                else:
                    yield item
        except DataError as error:
            if reason and not _DATA_ENDING.search(name):
                yield _extract(name, dropped=reason)
                return
            raise DataError(str(error).replace(str(path), f"{source.path}: {name}")) from error


@contextmanager
def _unpacked(source: Source, member: ZipMember, folder: Path) -> Iterator[Path]:
    """A member as a file, which the next run removes if this process is killed."""
    path = temporary_path(folder / "member")
    try:
        with _naming(source.path), member.archive.open(member.info) as content:
            try:
                with path.open("wb") as file:
                    shutil.copyfileobj(content, file)
            except OSError as error:
                size = member.info.file_size
                raise DataError(why_not_written(path, error, size)) from error
        yield path
    finally:
        path.unlink(missing_ok=True)


def _documents(found: Source, name: str, where: str) -> Iterator[Extract | BadRecord]:
    """The documents of an unpacked member; where: it, in messages. Raises DataError if it is an
    archive or damaged."""
    if found.format == "html":
        yield from read_html(found)
        return
    if found.format in ("tar", "zip", "warc", "mediawiki"):
        raise DataError(
            f"{found.path} is {FORMAT_NAMES[found.format]} in a zip archive; unpack the archive"
        )
    for piece in cut(found, max(found.size, 1)):
        for record in read(piece):
            if isinstance(record, BadRecord):
                place = record.where.removeprefix(name)
                yield BadRecord(where + place, record.reason, record.about, record.size)
            elif isinstance(record, Dropped):
                yield _extract(record.id, dropped=record.reason)
            else:
                origin = record.origin if record.origin != name else ""
                text, noted = stored_text(record)
                yield replace(_extract(record.id, origin, text), noted=noted)


def _end(item: Extract, found: Source, before: int) -> int:
    """About where a document ends in its file, for estimates; before: where the last one did."""
    position = item.id.rpartition("@")[2]
    is_byte = position.isdecimal() and found.format not in (*TABLES, "csv", "html")
    return (int(position) if is_byte else before) + len(item.text)


def _extract(id: str, url: str = "", text: str = "", dropped: str = "") -> Extract:
    return Extract(
        id=id, url=url, title="", text=text, dropped=dropped or ("" if text else "empty"),
        revised="", language="", domain="", position=0,
    )  # fmt: skip
