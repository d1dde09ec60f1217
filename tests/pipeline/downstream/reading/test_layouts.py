"""The layout of a user's file is what its content shows; columns to be named are named."""

import json
from pathlib import Path

import pytest

from pipeline.base.errors import DataError
from pipeline.downstream.reading.layouts import find_layout, read_examples
from pipeline.downstream.reading.tables import TableColumns

NONE = TableColumns(texts=())
ANSWERS = [{"text": "me", "answer_start": 6}]
QUESTIONS = [{"id": "1", "question": "who", "answers": ANSWERS}]
PARAGRAPHS = [{"context": "it is me", "qas": QUESTIONS}]
SQUAD = {"version": "1.1", "data": [{"paragraphs": PARAGRAPHS}]}


def test_layouts(tmp_path: Path) -> None:
    for kind, columns, content, layout in (
        ("spans", NONE, json.dumps(SQUAD), "squad"),
        ("spans", NONE, json.dumps(SQUAD, indent=2), "squad"),
        ("tags", NONE, "EU\tB-ORG\n", "conll"),
        ("tags", TableColumns(texts=("1",), label="2"), "EU\tB-ORG\n", "conll"),
        ("tags", TableColumns(texts=("w",), label="t"), "w\tt\na b\tO O\n", "table"),
        ("classification", TableColumns(texts=("t",), label="l"), "t\tl\na\t1\n", "table"),
    ):
        (tmp_path / "x").write_text(content)
        assert find_layout(tmp_path / "x", columns, kind) == layout
        found = read_examples(tmp_path / "x", columns, kind, "", is_published=False)
        assert len(found.examples) == 1
        assert bool(found.taken) == (layout != "squad")


def test_columns_that_are_to_be_named(tmp_path: Path) -> None:
    for kind, columns, name, content, message in (
        ("classification", NONE, "x.csv", "review;stars\na;1\n",
         "--text COLUMN and --target COLUMN; .*x.csv are 'review', 'stars'"),
        ("regression", TableColumns(texts=("t",)), "x", '{"t": "a", "n": 1}\n', "are 't', 'n'"),
        ("spans", NONE, "x.csv", "q,p,a\n", "--text QUESTION PARAGRAPH and --target ANSWER"),
        ("choices", TableColumns(texts=("t",), label="l"), "x.csv", "t,a,b,l\n",
         "--text COLUMN, --choices COLUMN... and --target COLUMN; .* 't', 'a'"),
        ("tags", NONE, "x.csv", "w,t\na,O\n", "x.csv are 'w', 't'"),
        ("classification", NONE, "x.csv", "", "x.csv are none"),
        ("tags", TableColumns(texts=(), group="g"), "x", "a O\n", "--group g"),
    ):  # fmt: skip
        (tmp_path / name).write_text(content)
        with pytest.raises(DataError, match=message) as error:
            find_layout(tmp_path / name, columns, kind)
        assert "\n" not in str(error.value)
