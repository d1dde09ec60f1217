"""Rows of labelled files -> examples of labels, numbers, choices, spans and tags."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.base.errors import DataError
from pipeline.base.typed_json import as_value
from pipeline.downstream.reading.examples import Answer, Example, Gold, check_not_empty
from pipeline.downstream.reading.labelled_files import (
    DELIMITED,
    LabelledTable,
    PlacedRow,
    Record,
    columns_shown,
    open_table,
)
from pipeline.downstream.reading.labels import is_no_label

NAME_COLUMNS = "name others with --text and --target"
_MOST_DIGITS = 19  # int() refuses 5,000 digits


@dataclass(frozen=True, kw_only=True, slots=True)
class TableColumns:
    """Columns of a table's texts and labels: names, or numbers if it has no header."""

    texts: tuple[str, ...]
    """One or two; for spans the question and the paragraph, for tags the words."""
    label: str = ""
    """Column of the label; "" if the file has none."""
    choices: tuple[str, ...] = ()
    """Columns of the choices, or one that holds a list."""
    start: str = ""
    """Column with the first character of an answer; "" if it is to be found in the paragraph."""
    id: str = ""
    """Column of an example's name; "" if they are numbered from 0."""
    group: str = ""
    """Column of what stays on one side when the file is divided; "" if that is the common text of
    choices, the paragraph of spans, and each example elsewhere."""
    header: tuple[str, ...] = ()
    """Names of the columns of a file without a header line."""
    skips_short_lines: bool = False
    """True if lines with too few columns are skipped, as is usual for QQP."""

    def needed(self) -> list[str]:
        """Columns that every line has."""
        own = (*self.texts, *self.choices, self.label, self.start, self.group)
        return [name for name in own if name]


@dataclass(frozen=True, slots=True)
class ExampleTable:
    """The examples of a file, and what was skipped."""

    examples: list[Example]
    skipped_lines: int
    """Short lines, and sentences without words."""
    unlabelled: int = 0
    """Rows that were dropped as they have no label."""
    taken: str = ""
    """The format of the file, and which columns were read, for the terminal."""


def read_example_table(
    path: Path, columns: TableColumns, kind: str, *, labelled: bool, is_published: bool = False
) -> ExampleTable:
    """The examples of a file in any format of `labelled_files`.

    kind: classification, regression, choices, spans or tags; labelled=False reads no label;
    is_published: rows that have none, see `is_no_label`, are dropped and counted, and tables are
    written as GLUE's. Raises DataError for an empty file, a wrong column, or a value that is not of
    the kind.
    """
    gold_of = GOLD[kind]
    examples: list[Example] = []
    skipped = unlabelled = 0
    table = open_table(
        path, columns.needed(), columns.header,
        is_published=is_published, skips_short_lines=columns.skips_short_lines,
    )  # fmt: skip
    for place, record in _checked_rows(path, columns, table, is_published=is_published):
        if record is None:
            skipped += 1
            continue
        has_id = columns.id and columns.id in record
        name = str(record[columns.id]) if has_id else str(len(examples))
        texts = _texts(record, columns, kind, place)
        if not texts:  # a sentence without words
            skipped += 1
            continue
        gold = None
        if labelled and columns.label:
            if is_published and is_no_label(record[columns.label]):
                unlabelled += 1
                continue
            gold = gold_of(record, columns, texts, place)
        group = texts[0] if kind == "choices" else texts[-1] if kind == "spans" else ""
        if columns.group:
            value = record[columns.group]
            group = "" if value is None else str(value).strip()
        examples.append(Example(name, texts, gold, group))
    if unlabelled and not examples:
        raise DataError(
            f"{path}: none of its {unlabelled:,} rows has a label; give a labelled file"
        )
    check_not_empty(examples, path)
    # a file with a word per line would train a tagger that never sees a neighbour
    if kind == "tags" and len(examples) > 1 and all(len(each.texts) == 1 for each in examples):
        raise DataError(
            f"{path} has one word in each of its {len(examples):,} rows; give a sentence per row, "
            "its words and tags separated by spaces, or a word per line without a header"
        )
    return ExampleTable(examples, skipped, unlabelled, _describe_taken(table, columns))


def _describe_taken(table: LabelledTable, columns: TableColumns) -> str:
    """`comma-separated; text review; target stars; unused 'id', 'date'`."""
    roles = {
        "text": columns.texts, "choices": columns.choices, "target": (columns.label,),
        "answer start": (columns.start,), "group": (columns.group,), "id": (columns.id,),
    }  # fmt: skip
    parts, unused = [table.form], [*table.columns]
    for role, names in roles.items():
        if taken := [name for name in names if name and name in table.columns]:
            parts.append(f"{role} {', '.join(taken)}")
            unused = [name for name in unused if name not in taken]
    return "; ".join([*parts, f"unused {columns_shown(unused)}"] if unused else parts)


def _checked_rows(
    path: Path, columns: TableColumns, table: LabelledTable, *, is_published: bool
) -> Iterator[PlacedRow]:
    """The rows. Raises DataError for a column that the table or a row lacks, or has twice."""
    needed = columns.needed()
    for name in needed:
        if table.columns.count(name) > 1:  # a record would silently keep the last
            raise DataError(f"{path} has two columns {name!r}; rename one")
    for place, record in table.rows:
        if record is not None:
            lacking = [name for name in needed if name not in record]
            if lacking:
                is_named = table.form.endswith(DELIMITED)  # by the first line
                raise DataError(
                    f"{path if is_named else place} has no column {lacking[0]!r}; its "
                    f"{'first line names' if is_named else 'columns are'} "
                    f"{columns_shown([*record])}; "
                    + ("give the files as published" if is_published else NAME_COLUMNS)
                )
        yield place, record


def _texts(record: Record, columns: TableColumns, kind: str, place: str) -> tuple[str, ...]:
    if kind == "tags":
        return tuple(_list(record[columns.texts[0]], place))
    texts = [_text(record[name], name, place) for name in columns.texts]
    if kind != "choices":
        return tuple(texts)
    if len(columns.choices) == 1:
        choices = _list(record[columns.choices[0]], place)
    else:
        choices = [_text(record[name], name, place) for name in columns.choices]
    # SWAG's sent2 begins each ending; Cosmos QA's question comes before each answer
    prompt = f"{texts[1]} " if len(texts) > 1 else ""
    return (texts[0], *(f"{prompt}{choice}" for choice in choices))


def _text(value: object, name: str, place: str) -> str:
    if not isinstance(value, str):
        raise DataError(f"{place}: {name!r} is {value!r}, not text")
    return value


def _list(value: object, place: str) -> list[str]:
    """A list of JSON, or words separated by spaces."""
    if isinstance(value, str):
        return _words(value, place)
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return value
    raise DataError(f"{place} has {value!r} where a list of texts is needed")


def _words(text: str, place: str) -> list[str]:
    """Words separated by spaces, or a list that is written as JSON."""
    if not (text.startswith("[") and text.endswith("]")):
        return text.split()
    try:
        found = as_value(text)
    except ValueError:
        found = None
    if isinstance(found, list) and all(isinstance(part, str | int) for part in found):
        return [str(part) for part in found]
    if text.count("[") == text.count("]") == 1 and not text[1:].lstrip().startswith(("'", '"')):
        return text.split()  # a word in brackets
    # ['a', 'b'] as Python prints it would be split into garbage tags
    raise DataError(
        f"{place}: {text[:60]!r} is a list, but not of JSON; write it with double quotes, or "
        "words separated by spaces"
    )


def _label(record: Record, columns: TableColumns, texts: tuple[str, ...], place: str) -> Gold:
    value = record[columns.label]
    if isinstance(value, bool | int):
        return str(value).lower()  # True as `true`, like JSON and most tables
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():  # as pandas writes numbers with gaps
        return str(int(value))
    if isinstance(value, str) or (isinstance(value, float) and math.isnan(value)):
        return str(value).strip()
    raise DataError(f"{place}: label {value!r} is neither text nor a whole number")


def _number(record: Record, columns: TableColumns, texts: tuple[str, ...], place: str) -> Gold:
    try:
        value = float(record[columns.label])
    except (TypeError, ValueError, OverflowError):  # an integer of 400 digits overflows
        value = math.nan
    if not math.isfinite(value):
        raise DataError(f"{place}: {record[columns.label]!r} is not a number; regression needs one")
    return value


def _choice(record: Record, columns: TableColumns, texts: tuple[str, ...], place: str) -> Gold:
    value, count = str(record[columns.label]).strip(), len(texts) - 1
    if len(value) == 1 and value.isascii() and value.isalpha():
        value = str(ord(value.upper()) - ord("A"))
    if not 0 <= _whole(value) < count:
        raise DataError(
            f"{place}: {record[columns.label]!r} names none of {count} choices; give a number "
            "from 0, or a letter from A"
        )
    return str(int(value))


def _answers(record: Record, columns: TableColumns, texts: tuple[str, ...], place: str) -> Gold:
    """A text and its start, or SQuAD's record of lists; no answer if the text is empty."""
    value: Any = record[columns.label]
    starts: Any = record.get(columns.start) if columns.start else None
    if isinstance(value, dict):
        value, starts = value.get("text"), value.get("answer_start")
    answers = value if isinstance(value, list) else [value] if value else []
    places = starts if isinstance(starts, list) else [starts] * len(answers)
    if len(places) != len(answers):
        raise DataError(f"{place} has {len(answers)} answers and {len(places)} starts")
    return tuple(
        found_answer(texts[1], str(text), start, place) for text, start in zip(answers, places)
    )


def found_answer(paragraph: str, text: str, start: object, place: str) -> Answer:
    """An answer at its place; start: None or "" if it is to be found.

    Raises DataError for an answer that is not in its paragraph.
    """
    at = paragraph.find(text) if start in (None, "") else _whole(start)
    if at < 0 or not text or paragraph[at : at + len(text)] != text:
        # starts that count bytes, or a text that was cleaned later, point elsewhere
        raise DataError(
            f"{place}: the answer {text[:60]!r} is not in its paragraph"
            f"{'' if start in (None, '') else f' at character {start}'}; fix the answer"
        )
    return Answer(text, at)


def _whole(value: object) -> int:
    text = str(value).strip()
    return int(text) if text.isdecimal() and len(text) < _MOST_DIGITS else -1


def _tags(record: Record, columns: TableColumns, texts: tuple[str, ...], place: str) -> Gold:
    value = record[columns.label]
    if not isinstance(value, str | list):
        raise DataError(f"{place}: {value!r} is not a list of tags; give one per word")
    tags = _words(value, place) if isinstance(value, str) else [str(tag) for tag in value]
    check_tags(texts, tags, place)
    return tuple(tags)


def check_tags(words: tuple[str, ...], tags: list[str], place: str) -> None:
    """Raises DataError if words and tags are not equally many, or a tag is empty."""
    if not all(tags):
        raise DataError(f"{place} has an empty tag; give one per word")
    if len(words) != len(tags):
        raise DataError(f"{place} has {len(words)} words and {len(tags)} tags; give one per word")


GOLD: dict[str, Callable[[Record, TableColumns, tuple[str, ...], str], Gold]] = {
    "classification": _label,
    "regression": _number,
    "choices": _choice,
    "spans": _answers,
    "tags": _tags,
}
"""Readers of the label, by kind of task."""
