"""Mutations of what is inside tar headers, Parquet footers and Arrow columns.

Sizes and checksums around the change are put right, so that it is read and not refused as a whole.
"""

import io
import struct
import tarfile
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc

from tests.fuzz.mutations import NUMBERS, bytes_mutated

# --- tar

BLOCK = 512
HEADER_FIELDS = {
    "name": (0, 100), "mode": (100, 108), "owner": (108, 116), "size": (124, 136),
    "time": (136, 148), "type": (156, 157), "link": (157, 257), "magic": (257, 265),
    "prefix": (345, 500),
}  # fmt: skip
HEADER_WORDS = (
    b"../x", b"/etc/passwd", b"a/" * 50, b"\xff" * 12, b"\x80" + b"\xff" * 11, b"\0", b"-1", b" 7",
    b"77777777777", b"0o17", b"x", b"L", b"K", b"S", b"g", b"1", b"2", b"5", b"6", b"ustar\x0000",
)  # fmt: skip


def headers_mutated(content: bytes, random: Random) -> bytes:
    """A tar archive with one to three fields of its headers changed, and their checksums right."""
    found = bytearray(content)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        members = archive.getmembers()
    places = sorted({at for one in members for at in (one.offset, one.offset_data - BLOCK)})
    for _ in range(random.choice((1, 1, 2, 3))):
        place = random.choice(places)
        begin, end = HEADER_FIELDS[random.choice(list(HEADER_FIELDS))]
        kind = random.choice(("word", "octal", "base 256", "bytes"))
        if kind == "word":
            value = random.choice(HEADER_WORDS)
        elif kind == "octal":
            value = b"%o\0" % abs(random.choice(NUMBERS))
        elif kind == "base 256":
            number = random.choice(NUMBERS) % (1 << 8 * (end - begin))
            value = (number | 1 << (8 * (end - begin) - 1)).to_bytes(end - begin, "big")
        else:
            value = random.randbytes(end - begin)
        value = value[: end - begin]
        found[place + begin : place + begin + len(value)] = value
        header = found[place : place + BLOCK]
        header[148:156] = b" " * 8
        found[place + 148 : place + 156] = b"%06o\0 " % sum(header)
    return bytes(found)


# --- Parquet

_STRUCT, _LISTS, _BINARY, _DOUBLE = 12, (9, 10), 8, 7
_INTEGERS, _BOOLS, _BYTE = (4, 5, 6), (1, 2), 3
Node = list[Any]
"""[type, value] of thrift's compact protocol: a struct is a list of [field id, node], a list is
[type of items, nodes]. github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md"""


def footer_mutated(content: bytes, random: Random) -> bytes:
    """A Parquet file with one to three values of its footer changed, removed or repeated."""
    size = int.from_bytes(content[-8:-4], "little")
    stream = io.BytesIO(content[-8 - size : -8])
    root = [_STRUCT, _read(stream, _STRUCT)]
    for _ in range(random.choice((1, 1, 2, 3))):
        _change(root, random)
    footer = _written(root)
    return content[: -8 - size] + footer + len(footer).to_bytes(4, "little") + content[-4:]


def _nodes(node: Node, found: list[Node]) -> list[Node]:
    """A node and all below it."""
    found.append(node)
    kind, value = node
    if kind == _STRUCT:
        for _, part in value:
            _nodes(part, found)
    elif kind in _LISTS:
        for part in value[1]:
            _nodes(part, found)
    return found


def _change(root: Node, random: Random) -> None:
    node = random.choice(_nodes(root, []))
    kind, value = node
    if kind == _STRUCT or kind in _LISTS:
        parts = value if kind == _STRUCT else value[1]
        if not parts:
            return
        place, action = random.randrange(len(parts)), random.choice(("remove", "repeat", "number"))
        if action == "remove":
            del parts[place]
        elif action == "repeat":
            parts[place:place] = [parts[place]] * random.choice((1, 3, 1000))
        elif kind == _STRUCT:
            parts[place] = [random.randrange(1, 14), parts[place][1]]
    elif kind in _INTEGERS:
        near = (value + 1, value - 1, -value, value * 2)
        node[1] = random.choice((*near, random.randrange(12), *NUMBERS[:24]))
    elif kind == _BINARY:
        node[1] = bytes_mutated(value, random, (b"\xff", b"\0", b"text", b"../x"))
    elif kind in _BOOLS:
        node[0] = 3 - kind
    else:
        node[1] = random.randbytes(len(value))


def _read(stream: io.BytesIO, kind: int) -> Any:
    """The value of a node."""
    if kind in _INTEGERS:
        number = _number(stream)
        return number >> 1 ^ -(number & 1)
    if kind == _BINARY:
        return stream.read(_number(stream))
    if kind in _LISTS:
        head = stream.read(1)[0]
        count = head >> 4 if head >> 4 < 15 else _number(stream)
        return [head & 15, [[head & 15, _read(stream, head & 15)] for _ in range(count)]]
    if kind in _BOOLS:
        return b""
    if kind in (_BYTE, _DOUBLE):
        return stream.read(1 if kind == _BYTE else 8)
    fields: list[Any] = []
    name = 0
    while head := stream.read(1)[0]:
        name = name + (head >> 4) if head >> 4 else _number(stream) >> 1
        fields.append([name, [head & 15, _read(stream, head & 15)]])
    return fields


def _written(node: Node) -> bytes:
    """The bytes of a node's value."""
    kind, value = node
    if kind in _INTEGERS:
        value = (value + 2**63) % 2**64 - 2**63
        return _varint((value << 1 ^ value >> 63) % 2**64)
    if kind == _BINARY:
        return _varint(len(value)) + bytes(value)
    if kind in _LISTS:
        items = b"".join(map(_written, value[1]))
        return bytes([0xF0 | value[0]]) + _varint(len(value[1])) + items
    if kind == _STRUCT:  # field ids in full
        parts = (bytes([part[0]]) + _varint(name << 1) + _written(part) for name, part in value)
        return b"".join(parts) + b"\0"
    return bytes(value)


def _number(stream: io.BytesIO) -> int:
    found, shift = 0, 0
    while True:
        byte = stream.read(1)[0]
        found |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return found


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


# --- Arrow


def column_mutated(path: Path, random: Random) -> bytes:
    """A plain Arrow file with one to eight values of one buffer of a column changed in place."""
    content = bytearray(path.read_bytes())
    whole = pa.memory_map(str(path)).read_buffer()
    reader = pa.ipc.open_file(pa.BufferReader(whole))
    batch = reader.get_batch(random.randrange(reader.num_record_batches))
    column = batch.column(random.randrange(batch.num_columns))
    widths = [4, _width(column.type)] if len(column.buffers()) > 2 else [_width(column.type)]
    parts = [part for part in column.buffers()[1:] if part is not None]
    buffer, width = random.choice(list(zip((parts[0], parts[-1]), widths)))
    place, count = buffer.address - whole.address, buffer.size // width
    values = np.frombuffer(content, f"<u{width}", count, place) if place >= 0 else np.empty(0)
    for _ in range(random.choice((1, 1, 1, 2, 8)) if count else 0):
        index = random.randrange(count)
        value = int(values[index])
        near = (value + 1, value - 1, value * 2, int(values[random.randrange(count)]))
        wrong = random.choice((*near, *near, *NUMBERS[:24])) % (1 << 8 * width)
        struct.pack_into({1: "<B", 2: "<H", 4: "<I", 8: "<Q"}[width], content,
                         place + index * width, wrong)  # fmt: skip
    return bytes(content)


def _width(kind: pa.DataType) -> int:
    """Bytes of a value of a column, or of an item of its lists; 1 for bits."""
    if pa.types.is_dictionary(kind):
        kind = kind.index_type
    if pa.types.is_list(kind):
        kind = kind.value_type
    return 1 if pa.types.is_binary(kind) else max(1, kind.bit_width // 8)
