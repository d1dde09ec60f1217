"""A file of a task -> its examples, in the layout that the task has or its content shows."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pipeline.base.errors import DataError
from pipeline.downstream.reading.column_files import is_column_file, read_conll
from pipeline.downstream.reading.labelled_files import columns_shown, open_table
from pipeline.downstream.reading.published import is_squad, read_race, read_squad
from pipeline.downstream.reading.tables import ExampleTable, TableColumns, read_example_table

Layout = Literal["table", "squad", "conll", "race", ""]
"""Empty for a user's own files: each is read in the layout that its content shows."""
NEEDED = {
    "": "--text COLUMN and --target COLUMN",
    "choices": "--text COLUMN, --choices COLUMN... and --target COLUMN",
    "spans": "--text QUESTION PARAGRAPH and --target ANSWER",
}
"""Names of columns by the kind of task."""


def read_examples(
    path: Path, columns: TableColumns, kind: str, layout: Layout, *, is_published: bool
) -> ExampleTable:
    """The examples of one file; labels are read if `columns` names their column.

    Rows of a published table without a label are dropped; in a file of the user they are refused,
    see `check_meant`.
    """
    layout = layout or find_layout(path, columns, kind)
    if layout == "squad":
        return ExampleTable(read_squad(path), 0)
    if layout == "race":
        return ExampleTable(read_race(path), 0)
    if layout == "conll":
        return read_conll(path, "".join(columns.texts), columns.label)  # one column at most
    return read_example_table(
        path, columns, kind, labelled=bool(columns.label), is_published=is_published
    )


def find_layout(path: Path, columns: TableColumns, kind: str) -> Layout:
    """The layout of a user's file.

    Raises DataError if columns must be named; it names those of the file.
    """
    if kind == "tags" and is_column_file(path, columns.needed()):
        if columns.group:
            raise DataError(f"{path} has a word per line, no --group {columns.group}; drop it")
        return "conll"
    # named columns mean a table, also for spans
    if kind == "spans" and not columns.needed() and is_squad(path):
        return "squad"
    if columns.texts and columns.label and (columns.choices or kind != "choices"):
        return "table"
    raise DataError(
        f"--task {kind} needs {NEEDED.get(kind, NEEDED[''])}; the columns of {path} are "
        f"{columns_shown(open_table(path).columns) or 'none'}"
    )
