"""The whole config machinery: a tree of frozen dataclasses to and from plain values.

    to_dict     Run -> nested dict, what run.json holds
    from_dict   nested dict -> Run, every key known and typed, none missing
    override    Run + ["optimizer.peak_lr=1e-3"] -> Run, what `--set` does
    fingerprint dict or dataclass -> 16 hex digits, the same on every machine

Unusual: nothing here knows which settings exist. The annotations of the dataclasses are the
schema: bool, int, float, str, Literal of strings, another dataclass (a section), or a tuple of any
length of one (a list; `--set` gives it as JSON, or changes an entry by its number: `list.0.x=1`).
Which values are legal is checked where the dataclass is built (`__post_init__`), after all
overrides.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, is_dataclass
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    TypeGuard,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from pipeline.errors import ConfigError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

EXPECTED = {
    bool: "true or false",
    int: "a whole number",
    float: "a finite number",
    str: "text",
}
EXPECTED_LIST = "a JSON list of objects with {}"


def to_dict(config: DataclassInstance) -> dict[str, Any]:
    """The config as nested dicts of plain values; `from_dict` gives back an equal config."""
    return asdict(config)


def from_dict(kind: type[T], values: Mapping[str, object]) -> T:
    """A config of type `kind` from nested dicts: nothing defaulted, nothing ignored.

    Numbers may be written as JSON editors do: `1` for a float field, `1e3` for an int field.
    Raises ConfigError naming the dotted path of an unknown, missing or wrongly typed setting.
    """
    return _section(kind, _flatten(values), "")


def override(config: T, assignments: Iterable[str]) -> T:
    """The config with `path=value` assignments applied in order, the last of a path winning.

    Values are read by the field's annotation: int takes 1000, 1_000 and 1e3, float any finite
    number, bool true or false, a list JSON. Raises ConfigError for an unknown path, naming the
    nearest one, and for a value of the wrong type.
    """
    kinds = setting_types(type(config))
    flat = _flatten(to_dict(config))
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        path = path.strip()
        if not equals:
            raise ConfigError(f"cannot read the setting {assignment!r}; write path=value")
        if entry := re.fullmatch(r"(.+?)\.(\d+)\.(.+)", path):
            _change_entry(kinds, flat, (entry[1], int(entry[2]), entry[3]), text.strip())
            continue
        if path not in kinds:
            raise _unknown(path, kinds)
        value = _read(text.strip(), kinds[path])
        _typed(path, value, kinds[path])
        flat[path] = value
    return _section(type(config), flat, "")


def fingerprint(value: Mapping[str, object] | DataclassInstance) -> str:
    """16 hex digits of the canonical JSON: keys sorted, no spaces, ASCII, shortest floats."""
    plain = value if isinstance(value, Mapping) else to_dict(value)
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]


def setting_types(kind: type[DataclassInstance], prefix: str = "") -> dict[str, Any]:
    """Dotted path -> annotation, for every setting of a tree of dataclasses, in field order."""
    kinds: dict[str, Any] = {}
    for name, hint in get_type_hints(kind).items():
        path = prefix + name
        kinds |= setting_types(hint, path + ".") if _is_section(hint) else {path: hint}
    return kinds


def nearest(name: str, names: Iterable[str]) -> str:
    """The most similar of `names`: alike as a whole, and in the part after the last dot."""

    def likeness(other: str) -> float:
        pairs = (name, other), (name.rpartition(".")[2], other.rpartition(".")[2])
        return sum(difflib.SequenceMatcher(None, *pair).ratio() for pair in pairs)

    return max(names, key=likeness)


def _change_entry(
    kinds: Mapping[str, Any], flat: dict[str, object], place: tuple[str, int, str], text: str
) -> None:
    """place: path of a list, number of an entry, and setting of it that gets a value."""
    path, number, name = place
    entry = entry_type(kinds.get(path))
    if entry is None:
        raise _unknown(f"{path}.{number}.{name}", kinds)
    own = setting_types(entry)
    if name not in own:
        raise _unknown(f"{path}.{number}.{name}", [f"{path}.{number}.{other}" for other in own])
    entries = list(deepcopy(cast("Sequence[dict[str, Any]]", flat[path])))
    if number >= len(entries):
        raise ConfigError(
            f"there is no {path}.{number}: {path} has {len(entries)} entries, counted from 0; set "
            f"{path} to {EXPECTED_LIST.format(', '.join(own))}"
        )
    *sections, last = name.split(".")
    functools.reduce(dict.__getitem__, sections, entries[number])[last] = _read(text, own[name])
    _typed(path, entries, kinds[path])
    flat[path] = entries


def entry_type(hint: object) -> type[DataclassInstance] | None:
    """The dataclass that a list's entries are, None for what is no list."""
    if get_origin(hint) is tuple and _is_section(found := get_args(hint)[0]):
        return found
    return None


def _is_section(hint: object) -> TypeGuard[type[DataclassInstance]]:
    return isinstance(hint, type) and is_dataclass(hint)


def _flatten(values: object, path: str = "") -> dict[str, object]:
    """{"data": {"seed": 1}} -> {"data.seed": 1}."""
    if not isinstance(values, Mapping):
        return {path: values}
    flat: dict[str, object] = {}
    for name, value in values.items():
        if not isinstance(name, str) or "." in name:
            raise ConfigError(f"{name!r} is no name of a setting; nest settings in their sections")
        flat |= _flatten(value, f"{path}.{name}" if path else name)
    return flat


def _section(kind: type[T], flat: Mapping[str, object], prefix: str) -> T:
    """prefix: of the paths in errors, of an entry of a list."""
    kinds = setting_types(kind)
    for path in flat:
        if path not in kinds:
            raise _unknown(prefix + path, [prefix + known for known in kinds])
    missing = [prefix + path for path in kinds if path not in flat]
    if missing:
        raise ConfigError(f"missing settings: {', '.join(missing)}; every setting must be given")
    return _build(kind, {path: _typed(prefix + path, flat[path], kinds[path]) for path in kinds})


def _build(kind: type[T], flat: Mapping[str, object], prefix: str = "") -> T:
    return kind(
        **{
            name: _build(hint, flat, f"{prefix}{name}.")
            if _is_section(hint)
            else flat[prefix + name]
            for name, hint in get_type_hints(kind).items()
        }
    )


def _read(text: str, kind: Any) -> object:
    """Text as a value of `kind`; what cannot be read so stays text, for `_typed` to refuse."""
    if entry_type(kind):
        try:
            return json.loads(text)
        except ValueError:
            return text
    if kind is bool:
        return {"true": True, "false": False}.get(text.lower(), text)
    for number in {int: (int, float), float: (float,)}.get(kind, ()):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def _typed(path: str, value: object, kind: Any) -> object:
    """`value` as its field's type exactly, or ConfigError with path, value and what is expected."""
    if entry := entry_type(kind):
        if isinstance(value, list | tuple) and all(isinstance(item, Mapping) for item in value):
            return tuple(
                _section(entry, _flatten(item), f"{path}.{index}.")
                for index, item in enumerate(value)
            )
        expected = EXPECTED_LIST.format(", ".join(setting_types(entry)))
        raise ConfigError(f"{path}={value!r} has the wrong type; give {expected}")
    if get_origin(kind) is Literal:
        choices = get_args(kind)
        if isinstance(value, str) and value in choices:
            return value
        raise ConfigError(f"{path}={value!r} is not a choice; choose one of {', '.join(choices)}")
    if kind in (int, float) and isinstance(value, int | float) and not isinstance(value, bool):
        if kind is float and abs(value) <= sys.float_info.max:
            return float(value)
        if kind is int and (isinstance(value, int) or value.is_integer()):
            return int(value)
    elif kind in (bool, str) and isinstance(value, bool | str) and type(value) is kind:
        return value
    raise ConfigError(f"{path}={value!r} has the wrong type; give {EXPECTED[kind]}")


def _unknown(path: str, known: Iterable[str]) -> ConfigError:
    inside = [name for name in known if name.startswith(path + ".")]
    if inside:
        return ConfigError(f"{path} is a section; set one of {', '.join(inside)}")
    return ConfigError(f"unknown setting {path}; did you mean {nearest(path, known)}?")


def inside(value: float, interval: str) -> bool:
    """Whether a value lies in an interval such as "[0, 1)"; not a number lies in none."""
    low, high = (_bound(text) for text in interval[1:-1].split(", "))
    above = value >= low if interval[0] == "[" else value > low
    below = value <= high if interval[-1] == "]" else value < high
    return above and below


def _bound(text: str) -> float:
    base, power, exponent = text.partition("**")
    return int(base) ** int(exponent) if power else float(text)


def parts_per_million(share: float) -> int:
    """A share between 0 and 1 in whole millionths, so that counts follow by integer arithmetic."""
    return round(share * 1_000_000)
