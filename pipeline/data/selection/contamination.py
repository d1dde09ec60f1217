"""Decontamination: the runs of words in evaluation files that no training document may contain.

A document is contaminated if it contains 13 consecutive words of an evaluation text (Brown et al.
2020, app. C: 13-grams of lower-case words without punctuation). One match drops the whole document.
GPT-3 instead removed 200 characters around a match from long documents, and ignored runs that more
than 10 documents share; we do neither. Texts of fewer than 13 words match nothing.

The texts of a file are:

* Parquet and Arrow (file or stream): every string of every row, at any depth;
* JSON (SQuAD) and JSON lines: every string at any depth, but not the keys;
* other text (GLUE's tables, plain text, markup): the whole file as one text. Runs across two cells
  or lines occur in no other text, and do no harm.

Any of them can be compressed. All other files raise DataError, since binary data read as text would
match nothing.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from pipeline.base.errors import DataError, escaped
from pipeline.base.skipped_names import SkippedNames
from pipeline.data.selection.minhash import Words, run_table, runs
from pipeline.data.text.cleaning import clean
from pipeline.ingest.compression.codecs import compression_of, sniff_compression
from pipeline.ingest.corpora.input_files import files_of
from pipeline.ingest.documents.byte_blocks import BOM, parse_again, read_blocks
from pipeline.ingest.documents.parquet import read_strings, table_format
from pipeline.ingest.documents.records import Format
from pipeline.ingest.documents.sniff import (
    DATA_NAME,
    MARKS,
    is_tar,
    read_head,
    require_content,
    require_regular,
    unreadable_shape,
)
from pipeline.ingest.encodings.utf import nearly_utf8, wide_encoding

RUN_WORDS = 13
"""Brown et al. 2020, app. C."""
CHUNK_CHARACTERS = 1 << 22
"""Strings are cleaned and hashed in chunks of this size; one string is never split."""
NAMED_FILES = 10
"""At most this many files without a run are listed by name."""

_LINE = re.compile(rb"[^\r\n]+")
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
# An object, or an array of objects, up to the colon after the first key; also in Python's quotes.
_JSON_START = re.compile(rb"""\s*(?:\[\s*)?\{\s*(["'])(?:(?!\1)[^\\\n]|\\.)*\1\s*:""")
_TABLE_NAMES = {".parquet": "Parquet", ".arrow": "Arrow", ".feather": "Arrow"}
_PICKLE = rb"\([dl]p\d+\n"  # protocol 0, which is ASCII
_REFUSED_MARKS: dict[Format, str] = {"warc": "a WARC file", "mediawiki": "a MediaWiki dump"}


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Runs of words of evaluation files."""

    table: Words
    """Result of `minhash.run_table`; empty if no file was given."""
    mark: str
    """Identifies the runs in fingerprints."""

    @classmethod
    def read(cls, paths: list[str]) -> Evaluation:
        """Read files, directories and globs. Raises DataError if unreadable or without runs."""
        if not paths:
            return cls(np.empty(0, np.uint64), "")
        # sorted for the notes; the mark is of sorted hashes and depends on no order
        skipped = SkippedNames()
        files = sorted(Path(file.path) for given in paths for file in files_of(given, skipped))
        skipped.tell("evaluation")
        found = [np.empty(0, np.uint64)]
        formats, strings, without_run = Counter[str](), Counter[str](), list[Path]()
        for path in files:
            format, texts = read_texts(path)
            hashes, count = _distinct_runs(texts)
            found.append(hashes)
            formats[format] += 1
            strings[format] += count
            if not len(hashes):
                without_run.append(path)
        hashes = np.unique(np.concatenate(found))
        if not len(hashes):
            raise DataError(
                f"--decontaminate {' '.join(paths)}: no text of {RUN_WORDS} words in "
                f"{len(files)} file(s), so no document can match; give other files"
            )
        print(
            f"evaluation: {len(hashes):,} runs of {RUN_WORDS} words in {len(files)} file(s): "
            + ", ".join(
                f"{formats[format]:,} {format}"
                + (f" ({strings[format]:,} string(s))" if format != "text" else "")
                for format in sorted(formats)
            )
        )
        if without_run:
            _print_files_without_run(without_run)
        return cls(run_table(hashes), xxhash.xxh3_64_hexdigest(hashes.tobytes()))


def read_texts(path: Path) -> tuple[str, Iterator[str]]:
    """The format of an evaluation file, and its texts. Raises DataError if it cannot be read."""
    require_regular(path)
    compression = sniff_compression(str(path))
    head = read_head(str(path), compression).removeprefix(BOM)
    format = table_format(head)
    # Arrow reads these in place; compressed ones are unpacked in memory first
    if format and not compression:
        return format, read_strings(str(path))
    if not format:
        _refuse(path, head)
    content = b"".join(read_blocks(str(path), compression, 0, path.stat().st_size))
    if format:
        return format, read_strings(str(path), content)
    content = content.removeprefix(BOM)
    if b"\0" in content:  # the head had none
        raise _unreadable(path, "binary")
    values = _json_values(path, content)
    if values is not None:
        return "JSON", (text for value in values for text in _strings(value))
    return "text", iter([_decode(path, content)])


def _decode(path: Path, content: bytes) -> str:
    """Decode UTF-8, also with a few damaged bytes, or Windows-1252 if mostly ASCII, as in older
    files of European languages."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = _line_number(content, error.start)
        if (text := nearly_utf8(content)) is not None:
            print(f"note: {path} has bytes that are not UTF-8 (line {line}); they are skipped")
            return text
        # over 30 % damaged: not a European language, where accents are few
        foreign = content.decode(errors="replace").count("\ufffd") * 10 > len(content) * 3
        if foreign or _CONTROL.search(content):
            raise _unreadable(path, f"not UTF-8 text (line {line})") from error
        print(f"note: {escaped(str(path))} is not UTF-8 (line {line}); read as Windows-1252")
        # five bytes have no meaning in Windows-1252
        return content.decode("cp1252", errors="replace")


def _refuse(path: Path, head: bytes) -> None:
    """Raise DataError if a file's first bytes, decompressed, show a format that cannot be read."""
    require_content(path, head)
    if is_tar(head):
        raise _unreadable(path, "a tar archive")
    if compression_of(head):
        raise _unreadable(path, "compressed twice")
    for mark, format in MARKS:
        if format in _REFUSED_MARKS and mark.match(head):
            raise _unreadable(path, _REFUSED_MARKS[format])
    if shape := "a pickle" if re.match(_PICKLE, head) else unreadable_shape(head):
        raise _unreadable(path, shape)
    if encoding := wide_encoding(head) if b"\0" in head else "":
        raise _unreadable(path, f"{encoding[:6]} text")
    if b"\0" in head:  # avoids reading a large binary file to its end
        raise _unreadable(path, "binary")
    if expected := _TABLE_NAMES.get(path.suffix.lower()):  # a damaged one must not pass for text
        raise DataError(f"{path} is not {expected}, though its name says so; fetch it again")


def _unreadable(path: Path, shape: str) -> DataError:
    return DataError(
        f"{path} is {shape}, which --decontaminate cannot read; unpack it, convert it to JSON "
        "lines, Parquet or UTF-8 text, or exclude it (select files with a glob, e.g. 'DIR/*.tsv')"
    )


def _json_values(path: Path, content: bytes) -> Iterator[Any] | None:
    """The value of a JSON document or the values of JSON lines; None if the content is text.

    Raises DataError if a file is meant to be JSON but is broken. It is meant to be JSON if its name
    says so, if it starts with an object, or if half of its lines parse and hold strings. A text
    that starts with a footnote [1] or {{a template}} is not JSON.
    """
    match = DATA_NAME.search(path.name)
    extension = match[1].lower() if match else ""
    named_json = "json" in extension
    if not (content.strip() if named_json else content.lstrip()[:1] in (b"{", b"[")):
        return None
    try:
        return iter([parse_again(content)])
    except ValueError as error:
        document_error = error
    records, lines, broken = 0, 0, ""
    for start, line in _lines(content):
        lines += 1
        try:
            # figures are JSON, too: without a string, a column of them is text
            records += any(True for _ in _strings(parse_again(line)))
        except ValueError as error:
            broken = broken or _broken(path, _line_number(content, start), error)
    if not broken:
        # parsed again, as values take more room than lines
        return (parse_again(line) for _, line in _lines(content))
    if records == 0 and isinstance(document_error, json.JSONDecodeError):
        broken = _broken(path, document_error.lineno, document_error)
    starts_json = extension not in ("csv", "tsv") and bool(_JSON_START.match(content))
    if named_json or starts_json or records * 2 >= lines:
        raise DataError(broken)
    return None


def _broken(path: Path, line: int, error: ValueError) -> str:
    reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
    return (
        f"{path}: line {line} is not valid JSON ({reason}); fix it, fetch the file again, or "
        "convert it to JSON lines"
    )


def _lines(content: bytes) -> Iterator[tuple[int, bytes]]:
    """The non-blank lines, each with its position."""
    for match in _LINE.finditer(content):
        if match[0].strip():
            yield match.start(), match[0]


def _line_number(content: bytes, position: int) -> int:
    return content.count(b"\n", 0, position) + 1


def _strings(value: Any) -> Iterator[str]:
    """The strings of a JSON value; iterative, since JSON can nest deeper than the call stack."""
    left = [value]
    while left:
        value = left.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            left += value.values()
        elif isinstance(value, list):
            left += value


def _distinct_runs(texts: Iterable[str]) -> tuple[Words, int]:
    """Distinct hashes of the runs of all texts, and the number of texts."""
    found, count = [np.empty(0, np.uint64)], 0
    chunk: list[str] = []
    size = 0

    def add_chunk() -> None:
        text = clean(chunk)
        # distinct per chunk, so that memory grows with distinct runs and not with the text
        found.append(np.unique(runs(text.buffer, text.offsets, RUN_WORDS)))

    for text in texts:
        count += 1
        chunk.append(text)
        size += len(text)
        if size >= CHUNK_CHARACTERS:
            add_chunk()
            chunk, size = [], 0
    add_chunk()
    return np.unique(np.concatenate(found)), count


def _print_files_without_run(paths: list[Path]) -> None:
    names = ", ".join(escaped(str(path)) for path in paths[:NAMED_FILES])
    more = f", and {len(paths) - NAMED_FILES:,} more" if len(paths) > NAMED_FILES else ""
    print(
        f"note: {len(paths):,} evaluation file(s) have no run of {RUN_WORDS} words and match "
        f"nothing: {names}{more}"
    )
