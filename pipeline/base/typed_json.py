"""JSON values <-> values of annotated types: dataclasses, tuples, numbers; and files that we wrote.

A file may be damaged or edited by hand. All functions raise ValueError that says what is wrong
with the content; the caller adds the file's name and the remedy, see `name_damage`.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from pipeline.base.errors import DataError
from pipeline.base.files import read_plain

T = TypeVar("T")

WORDS = {
    dict: "an object", list: "a list", str: "text", int: "a whole number", float: "a number",
    bool: "true or false", type(None): "null",
}  # fmt: skip


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises ValueError for any other content, and OSError."""
    return as_object(read_plain(path))


@contextmanager
def name_damage(path: Path, remedy: str) -> Iterator[None]:
    """Raise DataError with the file's name and the remedy if the block finds it damaged."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise DataError(f"{path} is damaged: {error}; {remedy}") from error


def as_object(content: bytes | str) -> dict[str, Any]:
    """The object in a JSON text. Raises ValueError for any other content."""
    found = as_value(content)
    if not isinstance(found, dict):
        raise ValueError(f"it holds {WORDS[type(found)]}, not an object")
    return found


def as_value(content: bytes | str) -> Any:
    """The value of a JSON text. Raises ValueError for any other content."""
    if not content:
        raise ValueError("it is empty")
    try:
        found = json.loads(content)
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise ValueError("it is not text") from error
    except UnicodeEncodeError as error:  # half of a pair: it could not be printed
        raise ValueError("it holds text that is not Unicode") from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return found


def as_json(value: object, *, indent: int | None = None, ensure_ascii: bool = True) -> str:
    """The JSON text of a value with measured numbers, see `finite_or_none`."""
    return json.dumps(
        finite_or_none(value), indent=indent, ensure_ascii=ensure_ascii, allow_nan=False
    )


def finite_or_none(value: object) -> Any:
    """A value with None for NaN and infinities, for which JSON has no words."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: finite_or_none(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite_or_none(item) for item in value]
    return value


def build(kind: type[T], values: object) -> T:
    """A dataclass or NamedTuple from JSON values, with its own in them.

    Only fields with a default may be absent. Raises ValueError for the first entry that is missing,
    unknown or of another type.
    """
    found: T = convert(kind, values, "")
    return found


def require(section: object, needed: Mapping[str, type], where: str) -> None:
    """Raise ValueError unless an object has these entries, each of its type."""
    found = _expect(dict, section, where)
    for name, kind in needed.items():
        if name not in found:
            raise ValueError(f"{where}.{name} is missing")
        convert(kind, found[name], f"{where}.{name}")


def check_finite(numbers: Iterable[float]) -> None:
    """Raise ValueError for NaN or an infinity, which JSON files of Python may hold."""
    if not all(map(math.isfinite, numbers)):
        raise ValueError("it has a number that is not finite")


def convert(kind: Any, value: object, where: str = "") -> Any:
    """A value as an annotation says: a type, a Literal, a dataclass, a list or an object of these.

    A number may be written as JSON editors do: `1` for a float, `1e3` for an int. where: its name,
    for the ValueError if it is another.
    """
    if kind is Any or type(value) is kind or is_dataclass(value):  # the last is built already
        return value
    if type(value) is tuple:  # a list in `asdict` of a dataclass
        value = [*value]
    if kind is int and type(value) is float and value.is_integer():
        return int(value)
    if kind is float and type(value) is int:
        try:
            return float(value)
        except OverflowError as error:
            raise ValueError(f"{where} is too large for a float") from error
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        if _expect(str, value, where) not in inner:
            raise ValueError(f"{where or 'it'} is {value!r}, not one of {', '.join(inner)}")
        return value
    if is_dataclass(kind):
        return _build(kind, _expect(dict, value, where), where)
    if isinstance(kind, type) and issubclass(kind, tuple):  # a NamedTuple
        return kind(*_entries(tuple(get_type_hints(kind).values()), value, where))
    if origin is tuple and inner[-1:] == (...,):
        items = _expect(list, value, where)
        return tuple(convert(inner[0], item, f"{where}[{i}]") for i, item in enumerate(items))
    if origin is tuple:
        return _entries(inner, value, where)
    if origin is not None and issubclass(origin, Mapping):
        items = _expect(dict, value, where)
        return {
            name: convert(inner[1], item, f"{where}.{name}" if where else name)
            for name, item in items.items()
        }
    if origin is not None:  # Sequence
        items = _expect(list, value, where)
        return [convert(inner[0], item, f"{where}[{i}]") for i, item in enumerate(items)]
    return _expect(kind, value, where)


def _build(kind: Any, values: dict[str, Any], where: str) -> Any:
    known, optional = _fields_of(kind)
    within = f"{where}." if where else ""
    for name in values:
        if name not in known:
            raise ValueError(f"{within}{name} is unknown")
    for name in known:
        if name not in values and name not in optional:
            raise ValueError(f"{within}{name} is missing")
    return kind(
        **{name: convert(known[name], value, within + name) for name, value in values.items()}
    )


@functools.cache
def _fields_of(kind: Any) -> tuple[dict[str, Any], frozenset[str]]:
    """The types of a dataclass's fields, and the names of those with a default."""
    hints = get_type_hints(kind)
    optional = frozenset(
        field.name
        for field in fields(kind)
        if field.default is not MISSING or field.default_factory is not MISSING
    )
    return {field.name: hints[field.name] for field in fields(kind)}, optional


def _entries(kinds: tuple[Any, ...], value: object, where: str) -> tuple[Any, ...]:
    """A list with an entry of each type."""
    items = _expect(list, value, where)
    if len(items) != len(kinds):
        raise ValueError(f"{where} has {len(items)} entries, not {len(kinds)}")
    pairs = zip(kinds, items, strict=True)
    return tuple(convert(kind, item, f"{where}[{i}]") for i, (kind, item) in enumerate(pairs))


def _expect(kind: Any, value: object, where: str) -> Any:
    if type(value) is not kind:  # not isinstance: true is not 1
        found = WORDS.get(type(value), type(value).__name__)
        raise ValueError(f"{where or 'it'} is {found}, not {WORDS.get(kind, kind)}")
    return value
