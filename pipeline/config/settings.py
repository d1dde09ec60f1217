"""The whole config machinery: a tree of frozen dataclasses to and from plain values.

    to_dict     Run -> nested dict, what run.json holds
    from_dict   nested dict -> Run, every key known and typed, none missing
    override    Run + ["optimizer.peak_lr=1e-3"] -> Run, what `--set` does
    fingerprint dict or dataclass -> 16 hex digits, the same on every machine

Unusual: nothing here knows which settings exist. The annotations of the dataclasses are the schema,
see `schema.py`. `--set` gives a list as JSON, or changes an entry by its number: `list.0.x=1`.
Which values are legal is checked where the whole tree is built, after all overrides.
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
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, get_args, get_origin

from pipeline.config.schema import (
    entry_type,
    fields_of,
    is_section,
    legacy_values,
    refuse,
    setting_types,
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
NEAR = 0.7
"""Least similarity (difflib) of a name that is suggested, in the part after the last dot."""
NEAR_IN_SECTION = 0.5
"""The same for a name whose whole path is similar."""


def to_dict(config: DataclassInstance) -> dict[str, Any]:
    """The config as nested dicts of plain values; `from_dict` gives back an equal config."""
    return asdict(config)


def from_dict(kind: type[T], values: Mapping[str, object]) -> T:
    """A config of type `kind` from nested dicts: nothing ignored, and only a setting with a
    `Legacy` value may be absent.

    Numbers may be written as JSON editors do: `1` for a float field, `1e3` for an int field.
    Raises ConfigError naming the dotted path of an unknown, missing or wrongly typed setting.
    """
    return _section(kind, flatten(values), "")


def override(config: T, assignments: Iterable[str]) -> T:
    """The config with `path=value` assignments applied in order, the last of a path winning.

    Values are read by the field's annotation: int takes 1000, 1_000 and 1e3, float any finite
    number, bool true or false, a list JSON. Raises ConfigError with every unknown path, naming the
    nearest one, and every value of the wrong type.
    """
    kinds = setting_types(type(config))
    flat = flatten(to_dict(config))
    problems = []
    for assignment in assignments:
        try:
            _assign(kinds, flat, assignment)
        except ConfigError as error:
            problems.append(str(error))
    refuse(problems)
    return _section(type(config), flat, "")


def fingerprint(value: Mapping[str, object] | DataclassInstance) -> str:
    """16 hex digits of the canonical JSON: keys sorted, no spaces, ASCII, shortest floats.

    Of a config without the settings that have their legacy value.
    """
    plain = value if isinstance(value, Mapping) else _without_legacy(value)
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]


def nearest(name: str, names: Iterable[str]) -> str:
    """The most similar of `names`: alike as a whole, and in the part after the last dot."""
    return max(names, key=lambda other: sum(_likeness(name, other)))


def find_near(name: str, names: Iterable[str]) -> str | None:
    """The nearest of the names that are similar, None when there is none."""
    similar = [other for other in names if _is_similar(name, other)]
    return nearest(name, similar) if similar else None


def unknown_setting(path: str, known: Iterable[str]) -> ConfigError:
    """What to say of a path that is not a setting: the nearest one, or that there is none near."""
    names = list(known)
    inside = [name for name in names if name.startswith(path + ".")]
    if inside:
        return ConfigError(f"{path} is a section; set one of {', '.join(inside)}")
    lists = [name for name in names if path.startswith(name + ".")]
    if near := find_near(path, lists or names):
        return ConfigError(f"unknown setting {path}; did you mean {near}?")
    section = path.rpartition(".")[0] + "."
    beside = [name.removeprefix(section) for name in names if name.startswith(section)]
    if beside:
        return ConfigError(
            f"unknown setting {path}; none of {section[:-1]} has a name like it; choose one of "
            f"{', '.join(beside)}"
        )
    return ConfigError(
        f"unknown setting {path}; none has a name like it; `tenfold settings RECIPE` lists them all"
    )


def flatten(values: object, path: str = "") -> dict[str, Any]:
    """{"data": {"seed": 1}} -> {"data.seed": 1}."""
    if not isinstance(values, Mapping):
        return {path: values}
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if not isinstance(name, str) or "." in name:
            raise ConfigError(f"{name!r} is not a setting's name; nest settings in their sections")
        flat |= flatten(value, f"{path}.{name}" if path else name)
    return flat


def parts_per_million(share: float) -> int:
    """A share between 0 and 1 in whole millionths, so that counts follow by integer arithmetic."""
    return round(share * 1_000_000)


def _without_legacy(config: DataclassInstance) -> dict[str, Any]:
    """Nested dicts without the settings that have their legacy value, nor sections of only such."""
    plain: dict[str, Any] = {}
    for name, setting in fields_of(type(config)).items():
        value = getattr(config, name)
        if setting.legacy is not None and value == setting.legacy.value:
            continue
        if is_section(setting.kind):
            value = _without_legacy(value)
            if not value:
                continue
        elif entry_type(setting.kind):
            value = [_without_legacy(entry) for entry in value]
        plain[name] = value
    return plain


def _likeness(name: str, other: str) -> tuple[float, float]:
    """How alike two paths are, as a whole and in the part after the last dot: 0 to 1."""
    last, other_last = name.rpartition(".")[2], other.rpartition(".")[2]
    return (
        difflib.SequenceMatcher(None, name, other).ratio(),
        difflib.SequenceMatcher(None, last, other_last).ratio(),
    )


def _is_similar(name: str, other: str) -> bool:
    """Whether a name could be a slip for another, or a part of it such as warmup."""
    whole, last = _likeness(name, other)
    words, other_words = (set(path.rpartition(".")[2].split("_")) for path in (name, other))
    is_slip = last >= NEAR or (last >= NEAR_IN_SECTION and whole > NEAR)
    return is_slip or words <= other_words or name.startswith(other + ".")


def _assign(kinds: Mapping[str, Any], flat: dict[str, Any], assignment: str) -> None:
    path, equals, text = assignment.partition("=")
    path = path.strip()
    if not equals:
        raise ConfigError(f"cannot read the setting {assignment!r}; write path=value")
    if entry := re.fullmatch(r"(.+?)\.(\d+)\.(.+)", path):
        _change_entry(kinds, flat, (entry[1], int(entry[2]), entry[3]), text.strip())
        return
    if path not in kinds:
        raise unknown_setting(path, kinds)
    value = _read(text.strip(), kinds[path])
    _typed(path, value, kinds[path])
    flat[path] = value


def _change_entry(
    kinds: Mapping[str, Any], flat: dict[str, Any], place: tuple[str, int, str], text: str
) -> None:
    """place: path of a list, number of an entry, and the setting of it that gets a value."""
    path, number, name = place
    entry = entry_type(kinds.get(path))
    if entry is None:
        raise unknown_setting(f"{path}.{number}.{name}", kinds)
    own = setting_types(entry)
    if name not in own:
        raise unknown_setting(
            f"{path}.{number}.{name}", [f"{path}.{number}.{other}" for other in own]
        )
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


def _section(kind: type[T], flat: Mapping[str, object], prefix: str) -> T:
    """prefix: of the paths in errors, of an entry of a list."""
    kinds = setting_types(kind)
    for path in flat:
        if path not in kinds:
            raise unknown_setting(prefix + path, [prefix + known for known in kinds])
    flat = legacy_values(kind) | dict(flat)
    missing = [prefix + path for path in kinds if path not in flat]
    if missing:
        raise ConfigError(f"missing settings: {', '.join(missing)}; every setting must be given")
    return _build(kind, {path: _typed(prefix + path, flat[path], kinds[path]) for path in kinds})


def _build(kind: type[T], flat: Mapping[str, object], prefix: str = "") -> T:
    return kind(
        **{
            name: _build(setting.kind, flat, f"{prefix}{name}.")
            if is_section(setting.kind)
            else flat[prefix + name]
            for name, setting in fields_of(kind).items()
        }
    )


def _read(text: str, kind: Any) -> object:
    """Text as a value of `kind`; text that cannot be read stays text, for `_typed` to refuse."""
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
                _section(entry, flatten(item), f"{path}.{index}.")
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
