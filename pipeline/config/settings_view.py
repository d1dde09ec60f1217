"""Every setting of a Run with its type, value and meaning, as text for a terminal.

    describe_settings   Run -> one SettingView per setting, in field order
    format_settings     Run + path of a setting or section -> the text to print

Meanings are the docstrings below the fields, read from the source.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline.config.run import Run
from pipeline.config.schema import Setting, fields_of, is_section, setting_types
from pipeline.config.settings import as_set, to_dict, type_in_words, unknown_setting

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

COLUMNS = 100
_TYPE_COLUMN = 44


@dataclass(frozen=True, slots=True)
class SettingView:
    """One setting as `tenfold settings` shows it."""

    path: str
    """Dotted path, as `--set` takes it."""
    type: str
    """Type in words, with the range or the choices."""
    value: str
    """Value as `--set` takes it."""
    meaning: str

    @property
    def section(self) -> str:
        """Path of its section, "" for a setting of the run itself."""
        return self.path.rpartition(".")[0]


def describe_settings(run: Run) -> list[SettingView]:
    """Every setting of a run, in field order; a list is one setting."""
    return list(_describe(type(run), to_dict(run), ""))


def format_settings(run: Run, path: str = "") -> str:
    """The settings of a run, or those at and below `path`, grouped by section.

    Raises ConfigError, naming the nearest path, if `path` is neither a setting nor a section.
    """
    views = describe_settings(run)
    shown = [view for view in views if not path or f"{view.path}.".startswith(f"{path}.")]
    if not shown:
        raise unknown_setting(path, setting_types(Run))
    headings = dict(_headings(Run, ""))
    lines: list[str] = []
    for section in dict.fromkeys(view.section for view in shown):
        title = f"{section}: {headings[section]}" if section else f"{run.name}: the run itself"
        lines += ["", *textwrap.wrap(title, COLUMNS)]
        for view in shown:
            if view.section == section:
                lines += _lines(view)
    return "\n".join(lines[1:])


def _lines(view: SettingView) -> list[str]:
    first, kind = f"  {view.path}={view.value}", view.type
    # Types stand in one column, unless a long path or value reaches into it.
    fits = len(first) < _TYPE_COLUMN and _TYPE_COLUMN + len(kind) <= COLUMNS
    lines = [f"{first:{_TYPE_COLUMN}}{kind}"] if fits else textwrap.wrap(first.strip(), COLUMNS - 2)
    if not fits:
        lines = [f"  {line}" for line in lines]
        lines += textwrap.wrap(kind, COLUMNS, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return lines + textwrap.wrap(
        view.meaning, COLUMNS, initial_indent=" " * 6, subsequent_indent=" " * 6
    )


def _describe(
    kind: type[DataclassInstance], values: Mapping[str, Any], prefix: str
) -> Iterator[SettingView]:
    for name, setting in fields_of(kind).items():
        if is_section(setting.kind):
            yield from _describe(setting.kind, values[name], f"{prefix}{name}.")
        else:
            yield SettingView(
                path=prefix + name,
                type=_type_in_words(setting),
                value=as_set(values[name]),
                meaning=_meanings(kind)[name],
            )


def _headings(kind: type[DataclassInstance], prefix: str) -> Iterator[tuple[str, str]]:
    """Path and meaning of every section."""
    for name, setting in fields_of(kind).items():
        if is_section(setting.kind):
            yield prefix + name, _meanings(kind)[name]
            yield from _headings(setting.kind, f"{prefix}{name}.")


def _type_in_words(setting: Setting) -> str:
    words = type_in_words(setting.kind)
    if setting.range is not None:
        words += f" {setting.range.in_words}"
    if setting.legacy is not None:
        words += f"; in files without it: {as_set(setting.legacy.value)}"
    return words


@functools.cache
def _meanings(kind: type[DataclassInstance]) -> dict[str, str]:
    """Field name -> the docstring below the field, on one line."""
    found: dict[str, str] = {}
    # Fields of a base class come first, as in dataclasses.
    for base in kind.__bases__:
        if is_section(base):
            found |= _meanings(base)
    # From the source, as Python drops the strings below fields.
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    for item, after in zip(body.body, body.body[1:], strict=False):
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            assert isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            found[item.target.id] = " ".join(str(after.value.value).split())
    return found
