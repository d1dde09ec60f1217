"""Mutations of good input: of bytes, of JSON values and of numbers. A `Random` decides each."""

import copy
import json
from collections.abc import Sequence
from random import Random
from typing import Any

NUMBERS = (
    0, 1, -1, 2, 3, 7, 127, 128, 255, 256, 32_767, 32_768, 65_535, 65_536, 2**31 - 1, 2**31,
    -(2**31), 2**32 - 1, 2**32, 2**53, 2**63 - 1, 2**63, -(2**63), 2**64, 10**30,
)  # fmt: skip
WRONG: tuple[Any, ...] = (
    None, True, False, [], {}, [[]], [None], {"": 0}, "", "x", "../x", "/etc/passwd", "\0",
    "\ud800",
    "\x1b[2J", "é" * 300, 0.5, -0.0, 1e308, -1e308, float("nan"), float("inf"), 1e-320, *NUMBERS,
)  # fmt: skip
HUGE: tuple[Any, ...] = (10**400, -(10**400), 10**15 - 1, "9" * 5000)
"""Numbers beyond any float, and what is near other bounds."""


def bytes_mutated(
    content: bytes, random: Random, words: Sequence[bytes] = (), *, same_size: bool = False
) -> bytes:
    """One to eight damages; words: what the format has a meaning for, put in anywhere.

    same_size: only bytes are replaced, so that what follows keeps its place.
    """
    found = bytearray(content)
    for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
        size = len(found)
        start = random.randrange(size + 1)
        length = min(random.choice((1, 2, 4, 8, 16, 64, 512, 4096)), size - start)
        kind = random.choice(("flip", "bytes", "number") if same_size else _KINDS)
        if kind == "flip" and length:
            found[random.randrange(start, start + length)] ^= 1 << random.randrange(8)
        elif kind == "bytes":
            found[start : start + length] = random.randbytes(length)
        elif kind == "number":
            width = min(random.choice((1, 2, 4, 8)), size - start)
            number = random.choice(NUMBERS) % (1 << (8 * width)) if width else 0
            found[start : start + width] = number.to_bytes(width, "little")
        elif kind == "delete":
            del found[start : start + length]
        elif kind == "repeat":
            found[start:start] = found[start : start + length] * random.choice((1, 2, 50))
        elif kind == "move":
            part = found[start : start + length]
            del found[start : start + length]
            place = random.randrange(len(found) + 1)
            found[place:place] = part
        elif kind == "cut":
            del found[start:]
        elif kind == "word" and words:
            found[start:start] = random.choice(words) * random.choice((1, 1, 1, 2, 300))
        elif kind == "digits":
            _replace_digits(found, random, start)
    return bytes(found)


_KINDS = ("flip", "bytes", "number", "delete", "repeat", "move", "cut", "word", "word", "digits")


def _replace_digits(found: bytearray, random: Random, start: int) -> None:
    """Another number in place of the first one after `start`."""
    digits = b"0123456789"
    begin = next((at for at in range(start, len(found)) if found[at] in digits), len(found))
    end = next((at for at in range(begin, len(found)) if found[at] not in digits), len(found))
    found[begin:end] = str(random.choice(NUMBERS)).encode()


def value_mutated(value: Any, random: Random) -> Any:
    """A JSON value with one to three entries changed, removed, added, renamed or swapped."""
    found = copy.deepcopy(value)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        found = _change(found, random)
    return found


def _change(value: Any, random: Random) -> Any:
    """Change one place; every level of the tree is as probable as the others."""
    owner, levels = value, random.randrange(8)
    while isinstance(owner, dict | list) and owner:
        keys: list[Any] = list(owner) if isinstance(owner, dict) else list(range(len(owner)))
        key = random.choice(keys)
        inner = owner[key]
        if levels and isinstance(inner, dict | list) and inner:
            owner, levels = inner, levels - 1
            continue
        kind = random.choice(("wrong", "wrong", "near", "remove", "add", "swap", "deep"))
        if kind == "wrong":
            owner[key] = copy.deepcopy(random.choice(WRONG))
        elif kind == "near":
            owner[key] = _near(inner, random)
        elif kind == "remove":
            del owner[key]
        elif kind == "add" and isinstance(owner, dict):
            owner[random.choice(("", "x", "type", "../x", f"{key}2"))] = copy.deepcopy(inner)
        elif kind == "add":
            owner.insert(random.randrange(len(owner) + 1), copy.deepcopy(inner))
        elif kind == "swap":
            other = random.choice(keys)
            owner[key], owner[other] = owner[other], inner
        else:
            for _ in range(random.choice((3, 60))):
                owner[key] = [owner[key]] if random.random() < 0.5 else {"x": owner[key]}
        return value
    return copy.deepcopy(random.choice(WRONG))


def _near(value: Any, random: Random) -> Any:
    """A value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return random.choice((value + 1, value - 1, -value, value * 2, random.choice(NUMBERS)))
    if isinstance(value, float):
        return random.choice((value * 2, -value, 0.0, 1e300, float("nan"), float("inf")))
    if isinstance(value, str):
        return random.choice((value[1:], value[:-1], value * 3, value + "\0", value.upper()))
    if isinstance(value, list):
        return value + value
    return {} if isinstance(value, dict) else 0


def json_mutated(content: bytes, random: Random) -> bytes:
    """The text of a JSON file with its entries, or one time in four its bytes, changed; one in
    eight has a huge number."""
    if random.random() < 0.25:
        return bytes_mutated(content, random, JSON_WORDS)
    values = json.loads(content)
    if random.random() < 0.15:
        return as_json(_with_huge(values, random))
    return as_json(value_mutated(values, random))


def _with_huge(value: Any, random: Random) -> Any:
    """One entry that holds no others becomes a number of hundreds of digits."""
    if not isinstance(value, dict | list) or not value:
        return random.choice(HUGE)
    key = random.choice(list(value) if isinstance(value, dict) else range(len(value)))
    value[key] = _with_huge(value[key], random)
    return value


def as_json(value: Any) -> bytes:
    """A value as JSON; lone surrogates are escaped."""
    return json.dumps(value).encode()


JSON_WORDS = (
    b"{", b"}", b"[", b"]", b'"', b"\\", b"\\ud800", b"null", b"NaN", b"Infinity", b"-", b"1e999",
    b"9" * 5000, b",", b":", b"\0", b"\xff", b"\xef\xbb\xbf", b'{"a":', b"[[",
)  # fmt: skip
