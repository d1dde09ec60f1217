"""A user's files and GLUE's, and what is wrong with them in one line."""

import re
from pathlib import Path
from typing import Any

import pytest

from pipeline.base.errors import DataError
from pipeline.downstream.reading import tables
from pipeline.downstream.reading.examples import Answer, Example
from pipeline.downstream.reading.tables import TableColumns, found_answer, read_example_table

PLAIN = TableColumns(texts=("t",), label="l")
PAIR = TableColumns(texts=("q", "p"), label="a")
CHOICES = TableColumns(texts=("c", "q"), label="l", choices=("x", "y"))
ONE = TableColumns(texts=("c",), label="l", choices=("x", "y"))
NUMBERED = TableColumns(texts=("a", "b"), label="l", id="n")
OTHER = TableColumns(texts=("text",), label="label")


def read(
    path: Path, content: str, kind: str = "classification", columns: TableColumns = PLAIN,
    **options: Any,
) -> tables.ExampleTable:  # fmt: skip
    path.write_text(content, encoding="utf-8")
    return read_example_table(path, columns, kind, **({"labelled": True} | options))


def test_what_a_table_says(tmp_path: Path) -> None:
    one, tagged = Example("0", ("a",), "1"), Example("0", ("Anna", "met"), ("B-PER", "O"))
    bo = Example("0", ("who", "Anna met Bo"), (Answer("Bo", 9),), "Anna met Bo")
    for kind, columns, name, content, expected in (
        # tabs keep quotes, byte order marks are skipped
        ("classification", NUMBERED, "x.tsv",
         '\ufeffn\ta\tb\tl\n7\tsays "hi\tx\u2028y\t1\n8\tsecond"\tz\t0\n',
         [Example("7", ('says "hi', "x\u2028y"), "1"), Example("8", ('second"', "z"), "0")]),
        ("classification", PLAIN, "x.csv", 't,l\n"a, ""b""\nc",yes\n',
         [Example("0", ('a, "b"\nc',), "yes")]),
        ("regression", PLAIN, "x.jsonl", '{"t": "a", "l": 2.5}\n', [Example("0", ("a",), 2.5)]),
        ("choices", CHOICES, "x.csv", "c,q,x,y,l\nC,Q,1,2,b\n",
         [Example("0", ("C", "Q 1", "Q 2"), "1", "C")]),
        ("spans", PAIR, "x.tsv", "q\tp\ta\nwho\tAnna met Bo\tBo\n", [bo]),
        # columns without a name do not matter: pandas writes the numbers of rows so
        ("classification", PLAIN, "x.tsv", "\tt\tl\t\n0\ta\t1\t\n", [one]),
        ("spans", PAIR, "x.csv", ",q,p,a\n7,who,Anna met Bo,Bo\n", [bo]),
        # space around a label or a column is not part of it
        ("classification", PLAIN, "x.tsv", "t\tl\na\t1 \nb\t1\n", [one, Example("1", ("b",), "1")]),
        ("classification", OTHER, "x.csv", "text, label\na,1\n   \n", [one]),
        # lists of tags
        ("tags", PLAIN, "x.jsonl", '{"t": ["Anna", "met"], "l": ["B-PER", "O"]}\n', [tagged]),
        ("tags", PLAIN, "x.csv", "t,l\nAnna met,B-PER O\n", [tagged]),
        ("tags", PLAIN, "x.csv", 't,l\n"[""Anna"", ""met""]","[""B-PER"", ""O""]"\n', [tagged]),
        ("tags", PLAIN, "x.tsv", "t\tl\n[ a ]\tO O O\n",
         [Example("0", ("[", "a", "]"), ("O", "O", "O"))]),
        # whole numbers as floats are labels
        ("classification", PLAIN, "x.jsonl", '{"t": "a", "l": 1.0}\n', [one]),
    ):  # fmt: skip
        assert read(tmp_path / name, content, kind, columns).examples == expected


def test_what_is_wrong(tmp_path: Path) -> None:
    for kind, name, content, said in (
        ("classification", "x.tsv", "t\tother\na\t1\n", "no column 'l'; its first line names 't',"),
        ("classification", "x.tsv", "t\tl\n", "has no examples"),
        ("classification", "x.tsv", "", "has no examples"),
        ("classification", "x.tsv", "t\tl\na\tb\t1\n", "line 2 has 3 columns, not 2"),
        ("classification", "x.tsv", "t\tl\na\t1\nshort\n", "line 3 has 1 column, not 2"),
        ("classification", "x.tsv", "t\tl\tl\na\tb\t1\n", "has two columns 'l'"),
        ("classification", "x.CSV", "t,l\ngood, but long,1\n", "line 2 has 3 columns"),
        ("classification", "x.csv", 'l,t\n1,"open\n0,b\n', "row of line 2 is never closed"),
        ("classification", "x.tsv", 't\tl\n"a, b"\t1\n"open\t0\n', "row of line 3 is never"),
        ("classification", "x.csv", "t,l\na\rb,1\n", "line 2 is not CSV: new-line"),
        ("classification", "x.csv", 't,l\n"two\nlines",1\na\n', "line 4 has 1 column"),
        ("classification", "x.jsonl", "{]\n", "line 1 is not a JSON object"),
        ("classification", "x.jsonl", "[" * 100_000 + "\n", "nested too deeply"),
        ("classification", "x.jsonl", '{"t": "\\ud800", "l": 1}\n', "is not Unicode"),
        ("classification", "x.jsonl", "[]\n", "not a JSON object"),
        ("classification", "x.jsonl", '{"t": 3, "l": 1}\n', "'t' is 3, not text"),
        ("classification", "x.jsonl", '{"t": "a", "l": 0.5}\n', "label 0.5 is neither"),
        ("classification", "x.jsonl", '{"t": "a", "l": 1.5}\n', "label 1.5 is neither"),
        ("regression", "x.tsv", "t\tl\na\tmuch\n", "'much' is not a number"),
        ("regression", "x.tsv", "t\tl\na\tnan\n", "'nan' is not a number"),
        ("regression", "x.jsonl", f'{{"t": "a", "l": {"9" * 400}}}\n', "999 is not a number"),
        ("tags", "x.jsonl", '{"t": ["a"], "l": [""]}\n', "line 1 has an empty tag"),
        ("tags", "x.jsonl", '{"t": ["a"], "l": 5}\n', "5 is not a list of tags"),
        ("tags", "x.jsonl", '{"t": ["a"], "l": null}\n', "None is not a list of tags"),
        ("tags", "x.jsonl", '{"t": ["a"], "l": ["O", "O"]}\n', "1 words and 2 tags"),
        ("tags", "x.csv", "t,l\n\"['Anna']\",\"['B-PER']\"\n", "a list, but not of JSON"),
        ("tags", "x.tsv", "t\tl\nAnna\tB-PER\nmet\tO\n\nBo\tB-PER\n", "each of its 3 rows"),
        ("choices", "x.tsv", f"t\tl\na\t{'9' * 5000}\n", "names none of 0 choices"),
    ):
        with pytest.raises(DataError, match=re.escape(said)):
            read(tmp_path / name, content, kind)
    for kind, columns, content, said in (
        (
            "classification",
            OTHER,
            "I like it,pos\nno,neg\n",
            "'text'; its first line names 'I like",
        ),
        ("choices", ONE, "c,x,y,l\nC,1,2,2\n", "'2' names none of 2 choices"),
        ("choices", ONE, "c,x,y,l\nC,1,2,ß\n", "'ß' names none of 2 choices"),
    ):
        with pytest.raises(DataError, match=said):
            read(tmp_path / "x.csv", content, kind, columns)


def test_short_lines_and_sentences_without_words_are_counted(tmp_path: Path) -> None:
    columns = TableColumns(texts=("t",), label="l", skips_short_lines=True)
    found = read(tmp_path / "x.tsv", "t\tl\na\t1\nshort\nb\t0\n", columns=columns)
    assert (len(found.examples), found.skipped_lines) == (2, 1)
    found = read(tmp_path / "x", '{"t": [], "l": []}\n{"t": ["a"], "l": ["O"]}\n', "tags")
    assert [example.texts for example in found.examples] == [("a",)] and found.skipped_lines == 1


def test_published_files_lose_rows_without_a_label_and_have_their_columns(tmp_path: Path) -> None:
    """A user's own keep them as labels, which are asked about before training."""
    rows = '{"t": "a", "l": 1}\n' + "".join(
        f'{{"t": "b", "l": {value}}}\n' for value in ('"-"', -1, "-1.0", '" "', "null", "NaN")
    )
    for kind in ("classification", "regression"):
        found = read(tmp_path / "x.jsonl", rows, kind, is_published=True)
        assert [e.texts for e in found.examples] == [("a",)] and found.unlabelled == 6
    kept = read(tmp_path / "x.jsonl", rows.replace("-1.0", "2"))
    assert [e.gold for e in kept.examples] == ["1", "-", "-1", "2", "", "", "nan"]
    with pytest.raises(DataError, match="none of its 1 rows"):
        read(tmp_path / "x.tsv", "t\tl\na\t-1\n", "regression", is_published=True)
    with pytest.raises(DataError, match=r"'t', 'l'; .* as published"):
        read(tmp_path / "x.tsv", "t\tl\na\t1\n", columns=OTHER, is_published=True)


def test_an_answer_is_in_its_paragraph() -> None:
    assert found_answer("a cat, a cat", "cat", 9, "q") == Answer("cat", 9)
    for start in (None, 1, "9" * 5000):
        with pytest.raises(DataError, match="'dog'"):
            found_answer("a cat", "dog", start, "q")


def test_what_was_read_is_told(tmp_path: Path) -> None:
    own = TableColumns(texts=("review",), label="stars", id="n")
    for kind, columns, content, taken in (
        ("classification", own, "review;stars;date;by\na;1;2;c\n",
         "semicolon-separated; text review; target stars; unused 'date', 'by'"),
        ("regression", own, '{"review": "a", "stars": 1, "n": 2}\n',
         "JSON lines; text review; target stars; id n"),
        ("spans", PAIR, ",q,p,a\n7,who,Anna met Bo,Bo\n",
         "comma-separated; text q, p; target a; unused ''"),
    ):  # fmt: skip
        assert read(tmp_path / "x", content, kind, columns).taken == taken
