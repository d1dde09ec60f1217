"""The format of a file, detected from its first 64 KiB.

One damaged line does not turn JSON lines into text. Data in an unknown format raises a DataError,
because as text it would enter the corpus unnoticed.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
import tarfile
import zlib
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Literal, cast

from pipeline.base.errors import DataError
from pipeline.ingest.compression.codecs import (
    HEAD_BYTES,
    BlockFile,
    Compression,
    decompressed,
    naming,
    readable_compression,
)
from pipeline.ingest.documents.arrow_tables import (
    ARROW_FILE,
    ARROW_STREAM,
    arrow_schema,
    find_text_columns,
)
from pipeline.ingest.documents.books import is_gutenberg
from pipeline.ingest.documents.byte_blocks import BOM, parse_again, read_blocks, with_newlines
from pipeline.ingest.documents.csv_tables import is_table, require_text_column
from pipeline.ingest.documents.markup import markup_format
from pipeline.ingest.documents.parquet import extraction_mark, text_columns
from pipeline.ingest.documents.read import ends_of_short
from pipeline.ingest.documents.records import (
    EXTRACTED,
    TEXT_FIELDS,
    Format,
    FoundAs,
    PlainText,
    Source,
    State,
)
from pipeline.ingest.encodings.decoding import guess_encoding
from pipeline.ingest.encodings.utf import wide_encoding

# Formats that are recognised only to be refused by name.
JSON_ARRAY = "one JSON array, but not of objects"

_LFS_POINTER = rb"version https://git-lfs\.github\.com/spec/"
# In this order: the byte order mark of UTF-32 starts with the one of UTF-16.
UNREADABLE = {
    rb"PK\x03\x04": "a zip archive",
    rb"ARROW1": "a compressed Arrow file",
    rb"PAR1": "a compressed Parquet file",
    rb"filedesc://\S+ [^\n]+ \d+\r?\n\d \d ": "an ARC file, older than WARC",
    rb"%PDF-": "a PDF document",
    rb"%!PS": "a PostScript document",
    rb"\s*\{\\rtf": "an RTF document",
    _LFS_POINTER: "a Git LFS pointer",
    # Its own header or the one of a part says so, and a line of it follows.
    rb"(?is)(?:From [^\n]*\n)?[a-z][\w-]*:[ \t].*?\nContent-Transfer-Encoding:[ \t]*base64\b"
    rb"[^\n]*\n(?:[^\r\n][^\n]*\n){0,50}\r?\n[a-z0-9+/]{16,76}={0,2}(?!\S)": "a mail in base64",
    rb"\xff\xfe\0\0|\0\0\xfe\xff|(?:[ -~]\0\0\0){2}|(?:\0\0\0[ -~]){2}": "UTF-32 text, not UTF-8",
    rb"\xff\xfe|\xfe\xff|(?:[ -~]\0){4}|(?:\0[ -~]){4}": "UTF-16 text, not UTF-8",
}

# A line that looks like an object, complete or not; `{{` and `{|` start wikitext.
OBJECT = re.compile(r"""\s*\{\s*(?:["'}]|\w+\s*:)""")

ARRAY = re.compile(r"""\s*\[\s*\{\s*["}]""")

DATA_NAME = re.compile(r"\.(json|jsonl|ndjson|csv|tsv)(?:\.(?:gz|zst|xz|bz2))*$", re.IGNORECASE)

MARKS: tuple[tuple[re.Pattern[bytes], Format], ...] = (
    (re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?<mediawiki\b"), "mediawiki"),
    (re.compile(rb"(?:\xef\xbb\xbf)?\s*<doc id="), "doc"),
    (re.compile(rb"WARC/\d"), "warc"),
)

# An object of wikiextractor --json; its url has the page's number, its text can have any length.
WIKI_OBJECT = re.compile(
    rb'\s*\{\s*(?:"(?:id|revid|title)":\s*"[^"]*",\s*)*"url":\s*"https?://[^"]*[?&]curid=\d+"'
)

_BLOCK = 512

_CHECKSUM = slice(148, 156)  # the checksum of a header, in octal digits


def is_tar(head: bytes) -> bool:
    """True if a file that starts with `head`, at least 512 bytes, is a tar archive."""
    block = head.lstrip(b"\0")[:_BLOCK]
    if not block[_CHECKSUM].strip(b" \0").isdigit():  # a quick test that halves the total time
        return False
    try:
        tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def sniff(
    path: str | Path,
    corpus: str,
    name: str,
    *,
    text_field: str = "",
    plain_text: PlainText = "file",
    forced_text: bool = False,
    state: State | None = None,
    is_mapped: bool = False,
) -> Source:
    """Detect a file's format from its content; its licence stays empty.

    forced_text: the user gave `plain_text`, so text that looks like other data is still text;
    state: in which the file was found just now, if it was; is_mapped: a function is given whole
    records, so tables need no column with text. Raises DataError if the file is missing, empty or
    unreadable.
    """
    path = Path(path).absolute()
    size, mtime_ns = state or require_regular(path)
    wanted = (text_field,) if text_field else TEXT_FIELDS
    columns = () if is_mapped else wanted

    def source(format: Format, compression: Compression) -> Source:
        return Source(
            corpus, str(path), name, size, format, compression, text_field, plain_text,
            "", found=FoundAs(mtime_ns, ends),
        )  # fmt: skip

    with contextlib.closing(_raw_blocks(str(path), size)) as raw:
        file = BlockFile(raw)
        head = file.peek(HEAD_BYTES + 1)
        # Taken here, so that packs are named without opening short files again.
        ends = ends_of_short(head) if len(head) == size else ""
        compression = readable_compression(str(path), head[:HEAD_BYTES])
        if compression:
            blocks = decompressed(cast(BinaryIO, file), compression)
            head = _head_of(str(path), compression, _named(str(path), blocks))
    if not head:
        raise DataError(f"{path} is empty; drop it or fetch it again")
    # Tables and zip archives are read at positions, which a compressed file does not have.
    if head.startswith(b"PAR1") and not compression:
        found = source(EXTRACTED if extraction_mark(str(path)) else "parquet", "")
        text_columns(found.path, columns)
        return found
    if head.startswith((ARROW_FILE, ARROW_STREAM)) and not compression:
        found = source("arrow", "")
        find_text_columns(arrow_schema(found.path), columns, found.path)
        return found
    if head.startswith(b"PK\x03\x04") and not compression:
        return source("zip", "")
    if is_tar(head):  # before text: its checksum cannot be met by chance
        return source("tar", compression)
    if markup := markup_format(path, name, head, forced_text):
        return source(markup, compression)
    if not forced_text:
        for beginning, format in MARKS:
            if beginning.match(head):
                return source(format, compression)
    kind: Format = sniff_text(path, name, head, forced_text, wanted)
    if kind == "csv":
        require_text_column(str(path), head, wanted, is_mapped=is_mapped)
    if kind == "text" and (
        plain_text == "book" or (not forced_text and is_gutenberg(head.decode(errors="replace")))
    ):
        kind = "book"
    if kind == "jsonl" and WIKI_OBJECT.match(head.removeprefix(BOM)):
        kind = "wiki_jsonl"
    return source(kind, compression)


def require_regular(path: Path) -> State:
    """A file's state. Raises DataError if it is missing, or is a directory, a device or a pipe."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        problem = "does not exist"
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
        if error.errno == errno.ELOOP:
            problem = "is a symbolic link that leads back to itself"
    else:
        if stat.S_ISREG(found.st_mode):
            return found.st_size, found.st_mtime_ns
        problem = "is a directory" if stat.S_ISDIR(found.st_mode) else "is not a regular file"
    raise DataError(f"{path} {problem}; give files of JSON lines, Parquet or plain text")


def read_head(path: str, compression: Compression) -> bytes:
    """The first HEAD_BYTES after decompression, plus one byte if the file is longer."""
    return _head_of(path, compression, read_blocks(path, compression, 0, HEAD_BYTES + 1))


def _head_of(path: str, compression: Compression, blocks: Iterable[bytes]) -> bytes:
    head = b""
    try:
        for block in blocks:
            head += block
            if len(head) > HEAD_BYTES:
                break
    except DataError:
        # The records of a WARC file can be read even if it is damaged later on.
        head = _first_member(path) if compression == "gz" else head
        if not head.startswith(b"WARC/"):
            raise
    return head[: HEAD_BYTES + 1]


def _raw_blocks(path: str, size: int) -> Generator[bytes, None, None]:
    """The bytes of a file of `size` bytes, with three calls for a short one.

    `open` makes three more, and a corpus can have a million files.
    """
    with naming(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        left = size or HEAD_BYTES + 1  # a file of the kernel's states no size
        try:
            while left > 0 and (block := os.read(descriptor, min(left, HEAD_BYTES + 1))):
                left -= len(block)
                yield block
        finally:
            os.close(descriptor)


def _named(path: str, blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The blocks; errors of decompressing them name the file."""
    with naming(path):
        yield from blocks


def _first_member(path: str) -> bytes:
    """The readable start of a gzip file."""
    with Path(path).open("rb") as file, contextlib.suppress(zlib.error):
        return zlib.decompressobj(31).decompress(file.read(HEAD_BYTES), HEAD_BYTES)
    return b""


def sniff_text(
    path: Path, name: str, head: bytes, forced: bool, wanted: tuple[str, ...] = TEXT_FIELDS
) -> Literal["jsonl", "json_array", "csv", "text"]:
    """JSON lines, a JSON array, a table or plain text, given the result of `read_head`.

    forced: treat anything that is not clearly JSON as text, whatever it looks like. Raises
    DataError for any other format.
    """
    whole = len(head) <= HEAD_BYTES
    head = head.removeprefix(BOM)
    require_content(path, head)
    if shape := unreadable_shape(head):
        raise _unreadable(path, shape)
    head = with_newlines(head, of_text=False)
    text = head.decode(errors="replace").lstrip("\ufeff \t\r\n")
    if b"\0" in head or text.count("\ufffd") * 10 > len(head) * 3:
        encoding = wide_encoding(head)[:6] or ("" if b"\0" in head else guess_encoding(head))
        if encoding:
            raise _unreadable(path, f"{encoding} text, not UTF-8")
        raise DataError(f"{path} is binary; give JSON lines, Parquet or UTF-8 text")
    if ARRAY.match(text):
        return "json_array"
    value = _first_value(text, whole)
    over_lines = "\n" in value
    cut_off = bool(value) and len(value) == len(text) and not whole
    if value.startswith("[") and (over_lines or cut_off):
        raise _unreadable(path, JSON_ARRAY)
    *lines, last = text[len(value) if over_lines else 0 :].split("\n")
    kinds = [_kind(line) for line in (*lines, last if whole else "") if line.strip()]
    objects = kinds.count("object")
    if over_lines and not objects:
        raise _unreadable(path, "one JSON object over several lines, not one a line")
    # One object is enough: damaged lines are reported by the reader.
    if objects and not (forced and objects * 2 < len(kinds)):
        return "jsonl"
    if OBJECT.match(text) or (OBJECT.match(last) and not whole):
        return "jsonl"
    if forced:
        return "text"
    # The path can be a link's target, while the name is what the user gave.
    named = DATA_NAME.search(name) or DATA_NAME.search(path.name)
    is_named_table = named and named[1].lower() in ("csv", "tsv")
    if is_named_table or is_table(head, wanted):
        return "csv"
    _refuse_other_data(path, bool(named), kinds)
    return "text"


def require_content(path: Path, head: bytes) -> None:
    """Raises DataError if a file is a pointer to what was not fetched."""
    if re.match(_LFS_POINTER, head):
        raise DataError(f"{path} is a Git LFS pointer, not the file itself; run git lfs pull")


def unreadable_shape(head: bytes) -> str:
    """What a file is that is no text, whatever its name; empty if its first bytes show nothing."""
    return next((shape for pattern, shape in UNREADABLE.items() if re.match(pattern, head)), "")


def _unreadable(path: Path, shape: str) -> DataError:
    encoding, is_text, _ = shape.partition(" text, not UTF-8")
    if is_text:
        return DataError(f"{path} is {shape}; convert it: iconv -f {encoding} -t UTF-8")
    return DataError(
        f"{path} is {shape}, which cannot be read; convert it to JSON lines, Parquet or "
        "UTF-8 text (JSON lines and text may be .gz, .zst, .xz or .bz2)"
    )


def _first_value(text: str, whole: bool) -> str:
    """The JSON object or array at the start of `text`, or the part of it that is in the head."""
    if not text.startswith(("{", "[")):
        return ""
    try:
        return text[: json.JSONDecoder().raw_decode(text)[1]]
    except json.JSONDecodeError as error:
        # Valid up to the cut, which can be inside a string, an escape or a word such as `false`.
        cut = error.msg.startswith("Unterminated string") or error.pos > len(text) - 8
        return text if cut and not whole else ""
    except (ValueError, RecursionError):  # an integer too long for Python; nested too deeply
        return ""


def _kind(line: str) -> str:
    try:
        value = parse_again(line.strip().encode())
    except ValueError:
        return "other"
    if isinstance(value, dict) and value:
        return "object"
    if isinstance(value, list):
        return "array"
    return "string" if isinstance(value, str) else "other"


def _refuse_other_data(path: Path, is_named_json: bool, kinds: list[str]) -> None:
    """Raises DataError if plain text looks like data, by its lines or by its name."""
    advice = (
        "convert it to JSON lines, one object with a text field per line, or if it is plain text "
        "give --plain-text"
    )
    # Most lines of a novel can parse as strings, because speech is in quotes, but hardly all.
    arrays = kinds.count("array")
    if arrays * 2 > len(kinds) or (arrays + kinds.count("string")) * 20 > len(kinds) * 19:
        raise DataError(f"{path} seems to be JSON lines of arrays or strings; {advice}")
    if is_named_json:
        raise DataError(f"{path} is named as JSON, but no line is an object; {advice}")
