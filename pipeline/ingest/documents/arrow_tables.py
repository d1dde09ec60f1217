"""Texts from Arrow files and streams, by record batches; and the text column of any Arrow table.

An Arrow file is a stream between marks, so both are read the same way: the headers of the messages
say where each batch is, and pieces are runs of batches. Only a file with dictionaries is read from
its start, as one piece. Memory is one batch, mapped from disk if it is large.
"""

from __future__ import annotations

import itertools
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base.errors import DataError, listed
from pipeline.ingest.documents.records import ORIGIN_FIELDS, first_text

ARROW_VERSION = 2
"""Part of a file's identity: increase it when the same file gives different records."""
ARROW_FILE = b"ARROW1"
ARROW_STREAM = b"\xff\xff\xff\xff"  # the start of each message
ROWS = 256  # decoded at once, at most
BATCH_BYTES = 8 << 20  # decoded at once, of rows of average size

NEEDS_MAP = "lists, chats and nested paragraphs need --map"  # advice if there is no text

_TEXT = (pa.string(), pa.large_string(), pa.string_view())
_BINARY = (pa.binary(), pa.large_binary(), pa.binary_view())
"""Types as which pyarrow reads Parquet's BYTE_ARRAY without a logical type."""

_FILE_START = 8  # the first message follows the mark and padding
_MAPPED_BYTES = 64 << 20  # a larger batch is mapped from disk, not read
_MOST_BYTES = 512 << 20  # largest batch after decompression
_FOOTER_END = 10  # bytes after a file's footer: its length, and the mark again
_READ_BYTES = 1 << 16
_DICTIONARY, _BATCH = 2, 3  # kinds of messages: Schema is 1


@dataclass(frozen=True, slots=True)
class Batch:
    """The place of a record batch in a file."""

    position: int
    size: int
    first_row: int
    rows: int


def read_arrow_rows(
    path: str, batches: range, columns: tuple[str, ...], others: tuple[str, ...]
) -> Iterator[tuple[int, Any, tuple[Any, ...]]]:
    """Yield each row of the batches: its number in the file, its text, and the existing `others`.

    columns: of the text, see `record_texts`. A value is a string, None or bytes that are not UTF-8.
    """
    with naming_tables(path):
        schema = arrow_schema(path)
        read = columns or schema.names
        names = [name for name in others if name in schema.names]
        for batch, row in _batches(path, batches, schema):
            tops = (column.partition(".")[0] for column in read)
            _require_valid(batch, {*read, *tops, *names})  # pyarrow decodes through bad offsets
            rows = max(1, min(ROWS, BATCH_BYTES * batch.num_rows // max(1, batch.nbytes)))
            for start in range(0, batch.num_rows, rows):
                some = batch.slice(start, rows)
                found = [record_texts(some, columns)]
                found += [values(some.column(name)) for name in names]
                for value, *more in zip(*found, strict=True):
                    yield row, value, tuple(more)
                    row += 1


def arrow_schema(path: str) -> pa.Schema:
    """The columns of an Arrow file or stream. Raises DataError if it is damaged."""
    with naming_tables(path), pa.OSFile(path) as file:
        file.seek(_first_message(path))
        return pa.ipc.read_schema(pa.ipc.read_message(file))


def find_batches(path: str) -> tuple[list[Batch], bool]:
    """Every record batch of a file, and True if each can be read by itself: no dictionaries."""
    found: list[Batch] = []
    row, alone = 0, True
    with naming_tables(path), Path(path).open("rb") as file:
        size = Path(path).stat().st_size
        position = _first_message(path)
        while position < size and (header := _header(file, position)):
            kind, rows, end = header
            if end > size:
                raise pa.ArrowInvalid("a record batch is cut off")
            alone = alone and kind != _DICTIONARY  # batches need all dictionaries before them
            if kind == _BATCH:
                found.append(Batch(position, end - position, row, rows))
                row += rows
            position = end
        if position >= size:
            raise pa.ArrowInvalid("the end of the stream is missing")
        _require_end(file, position)
    return found, alone


def _require_end(file: BinaryIO, position: int) -> None:
    """Raise if anything but zeros, or a file's footer, follows the end of the stream at a position.

    pyarrow ignores it: of streams in a row, all but the first.
    """
    file.seek(0)
    is_file = file.read(len(ARROW_FILE)) == ARROW_FILE
    end = file.seek(0, os.SEEK_END)
    if is_file:
        end = file.seek(max(0, end - _FOOTER_END))
        length, mark = file.read(4), file.read()
        if mark != ARROW_FILE:
            raise pa.ArrowInvalid("its last bytes are not those of an Arrow file")
        end -= int.from_bytes(length, "little")
    file.seek(position)
    position += 8 if file.read(4) == ARROW_STREAM else 4  # the end mark; 4 bytes before 2019
    file.seek(position)
    while position < end and (block := file.read(min(_READ_BYTES, end - position))):
        position += len(block)
        if block.strip(b"\0"):
            raise pa.ArrowInvalid("other bytes after the end of the stream, perhaps another stream")


def batch_span(path: str, batches: range) -> tuple[int, int]:
    """Bytes of a file that some of its batches take, and its schema and end if they are at them."""
    places, _ = find_batches(path)
    start = places[batches.start].position if batches.start else 0
    last = batches.stop >= len(places)
    return start, Path(path).stat().st_size if last else places[batches.stop].position


def _first_message(path: str) -> int:
    with Path(path).open("rb") as file:
        return _FILE_START if file.read(len(ARROW_FILE)) == ARROW_FILE else 0


def _header(file: BinaryIO, position: int) -> tuple[int, int, int] | None:
    """Kind, rows and end of the message at a position; None at the end of the stream.

    The header is a flatbuffer: https://arrow.apache.org/docs/format/Columnar.html
    """
    file.seek(position)
    start = file.read(8)
    if len(start) == 8 and start[:4] != ARROW_STREAM:  # as written before 2019
        # Moved back as if there were a mark, so that the sums below hold for both forms.
        start, position = ARROW_STREAM + start[:4], position - 4
        file.seek(position + 8)
    length = int.from_bytes(start[4:], "little")
    if not length:
        return None
    table = file.read(length)
    if len(table) < length:
        raise pa.ArrowInvalid("a header is cut off")
    try:
        root = struct.unpack_from("<I", table)[0]
        # Fields of Message: 1 the header's type, 2 the header, 3 the body's length.
        kind, at = _field(table, root, 1), _field(table, root, 3)
        body = struct.unpack_from("<q", table, at)[0] if at else 0
        kind = table[kind] if kind else 0
        rows = 0
        if kind == _BATCH:
            at = _field(table, root, 2)
            batch = at + struct.unpack_from("<I", table, at)[0]
            at = _field(table, batch, 0)  # RecordBatch: 0 rows, 2 buffers, 3 compression
            rows = struct.unpack_from("<q", table, at)[0] if at else 0
    except (struct.error, IndexError) as error:
        raise pa.ArrowInvalid("an invalid header") from error
    if body < 0 or rows < 0:
        raise pa.ArrowInvalid("an invalid header")
    return kind, rows, position + 8 + length + body


def _field(table: bytes, start: int, number: int) -> int:
    """Position of a field of a flatbuffer's table; 0 if it has its default."""
    fields = start - struct.unpack_from("<i", table, start)[0]
    place = 4 + 2 * number
    if place >= struct.unpack_from("<H", table, fields)[0]:
        return 0
    offset = struct.unpack_from("<H", table, fields + place)[0]
    return start + offset if offset else 0


def _batches(path: str, wanted: range, schema: pa.Schema) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Record batches, and the number of each one's first row."""
    places, alone = find_batches(path)
    with pa.OSFile(path) as file:
        if alone:
            for place in places[wanted.start : wanted.stop]:
                yield _batch(path, file, place, schema), place.first_row
        elif _first_message(path):
            batches = pa.ipc.open_file(file)
            for number in wanted:
                yield batches.get_batch(number), places[number].first_row
        else:
            for place, batch in zip(places, pa.ipc.open_stream(file)):  # one piece, see `cut`
                yield batch, place.first_row


def _batch(path: str, file: pa.NativeFile, place: Batch, schema: pa.Schema) -> pa.RecordBatch:
    if place.size <= _MAPPED_BYTES:
        file.seek(place.position)
        message = pa.ipc.read_message(file)
    else:
        with pa.memory_map(path) as mapped:
            mapped.seek(place.position)
            message = pa.ipc.read_message(mapped)
    if (size := _decompressed_bytes(message)) > _MOST_BYTES:
        raise DataError(
            f"{path} has a compressed record batch of {size / 1e6:,.0f} MB; write it again in "
            "smaller batches"
        )
    return pa.ipc.read_record_batch(message, schema)


def _decompressed_bytes(message: pa.ipc.Message) -> int:
    """Bytes of a compressed batch after decompression, as its buffers state; 0 for others."""
    table, body = message.metadata.to_pybytes(), message.body
    at = _field(table, struct.unpack_from("<I", table)[0], 2)
    batch = at + struct.unpack_from("<I", table, at)[0]
    if not _field(table, batch, 3):  # not compressed
        return 0
    at = _field(table, batch, 2)
    buffers = at + struct.unpack_from("<I", table, at)[0]
    total = 0
    for number in range(struct.unpack_from("<I", table, buffers)[0]):
        # Each buffer begins with its size when decompressed; -1 if it is stored as it is.
        start, length = struct.unpack_from("<qq", table, buffers + 4 + 16 * number)
        if length >= 8 and 0 <= start <= body.size - 8:
            total += max(struct.unpack("<q", body.slice(start, 8).to_pybytes())[0], length)
    return total


def _require_valid(batch: pa.RecordBatch, names: set[str]) -> None:
    """Raises ArrowInvalid if a column's offsets are outside of its buffers."""
    for name in names & set(batch.schema.names):
        column = batch.column(name)
        if column.type in (pa.string(), pa.large_string()):  # may hold values that are not UTF-8
            column = column.view(pa.binary() if column.type == pa.string() else pa.large_binary())
        column.validate(full=True)


# --- columns


def find_text_columns(schema: pa.Schema, wanted: tuple[str, ...], path: str) -> tuple[str, ...]:
    """The wanted columns, or paths a.b into columns of structs, that the table has with strings.

    wanted: none if whole rows are read, as `record_texts` does then. Raises DataError if the table
    has none of them, or if two columns have one of the names that are read.
    """
    if not wanted:
        require_distinct(path, schema.names, schema.names)  # a row is a dict
        return ()
    tops = [name.partition(".")[0] for name in wanted]
    require_distinct(path, schema.names, (*wanted, *tops, *ORIGIN_FIELDS))
    kinds = {name: kind for name in wanted if (kind := _kind(schema, name)) is not None}
    if not kinds:
        raise DataError(
            f"{path} has no column {' or '.join(wanted)}, only {listed(schema.names)}; name one "
            f"with --text-field ({NEEDS_MAP})"
        )
    found = tuple(name for name, kind in kinds.items() if _holds_strings(kind))
    if not found:
        name, kind = next(iter(kinds.items()))
        raise DataError(
            f"{path}: column {name} holds {kind}, not strings; name another of its columns "
            f"{listed(schema.names)} ({NEEDS_MAP})"
        )
    return found


def require_distinct(path: str, columns: Sequence[str], wanted: Iterable[str]) -> None:
    """Raises DataError if several columns have the same of the wanted names."""
    for name in wanted:
        if columns.count(name) > 1:
            raise DataError(
                f"{path} has {columns.count(name)} columns named {name!r}; rename all but one"
            )


def _kind(schema: pa.Schema, name: str) -> pa.DataType | None:
    if name in schema.names:
        return schema.field(name).type
    first, *rest = name.split(".")
    if not rest or first not in schema.names:
        return None
    kind = schema.field(first).type
    for part in rest:
        if not pa.types.is_struct(kind) or kind.get_field_index(part) < 0:
            return None
        kind = kind.field(part).type
    return kind


def _holds_strings(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        kind = kind.value_type
    return kind in (*_TEXT, *_BINARY)


def record_texts(batch: pa.RecordBatch, names: tuple[str, ...]) -> Iterable[Any]:
    """The text of each row by its text columns, see `first_text`: strings, None or bytes.

    Without names, the whole row: a dict by the names of the columns, or a string that says why it
    cannot be read.
    """
    if not names:
        return _whole_rows(batch)
    found: list[Iterable[Any]] = []
    for name in names:
        column = _text_column(batch, name)
        found.append(_strings(column))
        if not column.null_count:  # so no row needs another column, which is not decoded
            break
    return map(first_text, zip(*found, strict=True)) if len(found) > 1 else found[0]


def _whole_rows(batch: pa.RecordBatch) -> Iterable[dict[str, Any] | str]:
    if batch.nbytes <= 2 * BATCH_BYTES:
        with suppress(ValueError, OverflowError):
            return list(batch.to_pylist())
    return (_whole_row(batch.slice(row, 1)) for row in range(batch.num_rows))


def _whole_row(batch: pa.RecordBatch) -> dict[str, Any] | str:
    try:
        return dict(batch.to_pylist()[0])
    except (ValueError, OverflowError) as error:
        is_text = isinstance(error, UnicodeDecodeError)
        return "invalid UTF-8" if is_text else "a date or time out of range"


def _text_column(batch: pa.RecordBatch, name: str) -> pa.Array:
    """A text column, see `find_text_columns`, of strings or bytes."""
    if name in batch.schema.names:
        column = batch.column(name)
    else:
        first, *rest = name.split(".")
        column = pc.struct_field(batch.column(first), rest)
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if pa.types.is_run_end_encoded(column.type):
        column = pc.run_end_decode(column)
    return column


def _strings(column: pa.Array) -> Iterable[Any]:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if kind in _TEXT:
        return values(column)
    return (None if value is None else _decoded(value) for value in values(column))


def _decoded(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def values(column: pa.Array) -> Iterable[Any]:
    """The values of a column; bytes for a string that is not UTF-8."""
    if column.null_count == len(column):  # as most columns of extracted files
        return itertools.repeat(None, len(column))
    if column.nbytes > 2 * BATCH_BYTES:  # one at a time
        return map(_value, column)
    try:
        found: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        return map(_value, column)
    return found


def _value(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        text = scalar.value if isinstance(scalar, pa.DictionaryScalar) else scalar
        return text.as_buffer().to_pybytes()


@contextmanager
def naming_tables(path: str) -> Iterator[None]:
    """Turn pyarrow's errors into a DataError with the file's name."""
    try:
        yield
    except pa.ArrowNotImplementedError as error:  # an ArrowException, so it comes first
        raise DataError(f"{path} cannot be read by pyarrow ({error}); convert it") from error
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as error:  # names, too
        raise DataError(f"{path} is truncated or damaged ({error}); fetch it again") from error
