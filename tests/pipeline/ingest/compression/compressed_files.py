"""Compressed files of two members, streams or frames, whole and damaged between and after them."""

import bz2
import gzip
import lzma
from collections.abc import Callable

import zstandard

PACK: dict[str, Callable[[bytes], bytes]] = {
    "gz": lambda content: gzip.compress(content, mtime=0),
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}
SKIPPABLE = b"\x5a\x2a\x4d\x18\x05\0\0\0extra"


def cases(codec: str, first: bytes, second: bytes) -> dict[str, tuple[bytes, str]]:
    """Files of `first` and `second`; each with the word for its damage, or none if it is whole."""
    pack = PACK[codec]
    one, two, empty = pack(first), pack(second), pack(b"")
    by_frames, by_zeros = (
        ("", "damaged") if codec == "zst" else ("damaged", "")
    )  # what pads a codec is damage in the others
    return {
        "whole": (one + two, ""),
        "damaged second header": (one + bytes([two[0] ^ 1]) + two[1:], "damaged"),
        "damaged later in the second header": (one + two[:2] + b"?" + two[3:], "damaged"),
        "cut second part": (one + two[: len(two) // 2], "truncated"),
        "cut second header": (one + two[:2], "truncated"),
        "cut end": (one + two[:-2], "truncated"),
        "bytes between": (one + b"rubbish!" + two, "damaged"),
        "bytes after": (one + two + b"rubbish!", "damaged"),
        "a byte after": (one + two + b"x", "damaged"),
        "zeros between": (one + bytes(512) + two, by_zeros),
        "zeros after": (one + two + bytes(2048), by_zeros),
        "bytes after zeros": (one + two + bytes(512) + b"x", "damaged"),
        "empty part between": (one + empty + two, ""),
        "empty part after": (one + two + empty, ""),
        "skippable frame between": (one + SKIPPABLE + two, by_frames),
        "skippable frames after": (one + two + SKIPPABLE * 2, by_frames),
        "cut skippable frame": (one + two + SKIPPABLE[:-1], by_frames or "truncated"),
    }
