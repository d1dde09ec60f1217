"""The schema of a config, read from its annotations, and the check of values against it.

A config is a tree of frozen dataclasses. A field is a bool, int, float, str, Literal of strings,
another dataclass (a section), or a variable-length tuple of dataclasses or of str (a list).
`Annotated` adds marks: the `Range` of a number, and the `Legacy` value of a setting that was added
later. A section whose values can exclude each other has a method `contradictions`. `check` runs
when the whole tree is built (`__post_init__`) and reports all problems in one error.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Protocol,
    TypeGuard,
    get_args,
    get_origin,
    get_type_hints,
    runtime_checkable,
)

from pipeline.base.errors import ConfigError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@dataclass(frozen=True, slots=True)
class Range:
    """The legal values of a number, as in `Annotated[float, Range("[0, 1)")]`."""

    interval: str
    """Interval as errors print it: square brackets include the bound, round ones exclude it."""

    @property
    def in_words(self) -> str:
        """The interval in words if it has one bound."""
        low, high = self.interval[1:-1].split(", ")
        if high != "inf":
            return f"in {self.interval}"
        return f"of at least {low}" if self.interval[0] == "[" else f"above {low}"

    def __contains__(self, value: float) -> bool:
        low, high = (_bound(text) for text in self.interval[1:-1].split(", "))
        above = value >= low if self.interval[0] == "[" else value > low
        below = value <= high if self.interval[-1] == "]" else value < high
        return above and below


@dataclass(frozen=True, slots=True)
class Legacy:
    """The value of a setting in files written before it existed: `Annotated[int, Legacy(0)]`.

    For settings added to released code. `from_dict` uses this value if the setting is absent, and
    fingerprints skip the setting while it has this value, so old runs load and old shards stay
    valid. It is not a default: recipes name every setting.
    """

    value: bool | int | float | str | tuple[str, ...]


Count = Annotated[int, Range("[1, inf)")]
CountOrZero = Annotated[int, Range("[0, inf)")]
Share = Annotated[float, Range("[0, 1]")]
Seed = Annotated[int, Range("[0, 2**63)")]
Positive = Annotated[float, Range("(0, inf)")]
BelowOne = Annotated[float, Range("[0, 1)")]
Tiny = Annotated[float, Range("(0, 1)")]


@dataclass(frozen=True, slots=True)
class Setting:
    """The parsed annotation of a field."""

    kind: Any
    """The annotation without its marks: a type, a Literal or a tuple."""
    range: Range | None
    """None if the field is not a number."""
    legacy: Legacy | None
    """None if every file must name the setting."""


@runtime_checkable
class HasRules(Protocol):
    """A section whose values can exclude each other."""

    def contradictions(self) -> Iterator[str]:
        """Yield a message per contradiction: what, the values as path=value, the remedy.

        Values may be out of range, which `check` reports, but all numbers are finite.
        """


def check(config: DataclassInstance) -> None:
    """Raise one ConfigError that lists every number out of range and every contradiction.

    A contradiction that names a number out of range is skipped: that number has to change anyway,
    and the remedy may be wrong for it.
    """
    sections = list(_sections(config))
    wrong = {
        prefix + name: f"{prefix}{name}={value} is out of range; choose one in "
        f"{setting.range.interval}"
        for prefix, section in sections
        for name, setting in fields_of(type(section)).items()
        if setting.range is not None and (value := getattr(section, name)) not in setting.range
    }
    problems = list(wrong.values())
    # Rules calculate with all values, and an infinite one could end them with an OverflowError.
    if all(map(math.isfinite, _numbers(sections))):
        for _, section in sections:
            if isinstance(section, HasRules):
                problems += (each for each in section.contradictions() if not _names(each, wrong))
    refuse(problems)


def refuse(problems: Sequence[str]) -> None:
    """Raise one ConfigError with all problems if there are any."""
    if len(problems) == 1:
        raise ConfigError(problems[0])
    if problems:
        raise ConfigError(f"the settings have {len(problems)} problems; fix each:", problems)


def settings_of(kind: type[DataclassInstance], prefix: str = "") -> dict[str, Setting]:
    """Dotted path -> parsed annotation, for every setting of a tree, in field order."""
    found: dict[str, Setting] = {}
    for name, setting in fields_of(kind).items():
        path = prefix + name
        found |= (
            settings_of(setting.kind, path + ".") if is_section(setting.kind) else {path: setting}
        )
    return found


def setting_types(kind: type[DataclassInstance]) -> dict[str, Any]:
    """Dotted path -> type, for every setting of a tree, in field order."""
    return {path: setting.kind for path, setting in settings_of(kind).items()}


def legacy_values(kind: type[DataclassInstance]) -> dict[str, object]:
    """Dotted path -> legacy value, for every setting that has one."""
    return {
        path: setting.legacy.value
        for path, setting in settings_of(kind).items()
        if setting.legacy is not None
    }


def entry_type(hint: object) -> type[DataclassInstance] | None:
    """The dataclass of a list's entries, None if the annotation is not a list."""
    if get_origin(hint) is tuple and is_section(found := get_args(hint)[0]):
        return found
    return None


def is_text_list(hint: object) -> bool:
    """True if an annotation is a list of texts."""
    return get_origin(hint) is tuple and get_args(hint)[0] is str


# Cached, as `get_type_hints` evaluates every annotation at each call.
@functools.cache
def fields_of(kind: type[DataclassInstance]) -> Mapping[str, Setting]:
    """Name -> parsed annotation, for the fields of one section."""
    found = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        bare, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        by_kind = {type(mark): mark for mark in marks}
        found[name] = Setting(bare, by_kind.get(Range), by_kind.get(Legacy))
    return found


def _sections(
    config: DataclassInstance, prefix: str = ""
) -> Iterator[tuple[str, DataclassInstance]]:
    """Every section with the prefix of its paths, list entries included, the root last."""
    for name, setting in fields_of(type(config)).items():
        value = getattr(config, name)
        if is_section(setting.kind):
            yield from _sections(value, f"{prefix}{name}.")
        elif entry_type(setting.kind):
            for index, entry in enumerate(value):
                yield from _sections(entry, f"{prefix}{name}.{index}.")
    # After its sections, so that rules across them are reported last.
    yield prefix, config


def _names(message: str, paths: Iterable[str]) -> bool:
    """True if a message names one of these settings with its value."""
    # Not within a longer path: `steps=` is not in `warmup_steps=`.
    return any(re.search(rf"(?<![\w.]){re.escape(path)}=", message) for path in paths)


def _numbers(sections: Iterable[tuple[str, DataclassInstance]]) -> Iterator[float]:
    for _, section in sections:
        for name in fields_of(type(section)):
            if isinstance(value := getattr(section, name), float):
                yield value


def is_section(hint: object) -> TypeGuard[type[DataclassInstance]]:
    """True if an annotation is a dataclass."""
    return isinstance(hint, type) and is_dataclass(hint)


def _bound(text: str) -> float:
    base, power, exponent = text.partition("**")
    # Whole numbers: a seed below 2**63 is not compared as a float.
    return int(base) ** int(exponent) if power else float(text)
