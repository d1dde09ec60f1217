"""A user's files and GLUE's, and what is wrong with them in one line."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.base.errors import DataError
from pipeline.downstream.reading import tables
from pipeline.downstream.reading.examples import Answer
from pipeline.downstream.reading.tables import TableColumns, found_answer, read_example_table

PLAIN = TableColumns(texts=("t",), label="l")
PAIR = TableColumns(texts=("q", "p"), label="a")
CHOICES = TableColumns(texts=("c", "q"), label="l", choices=("x", "y"))
ONE = TableColumns(texts=("c",), label="l", choices=("x", "y"))
NUMBERED = TableColumns(texts=("a", "b"), label="l", id="n")
OTHER = TableColumns(texts=("text",), label="label")


def read(
    path: Path, content: str, kind: str, columns: TableColumns = PLAIN, **options: Any
) -> tables.ExampleTable:
    path.write_text(content, encoding="utf-8")
    return read_example_table(path, columns, kind, **({"labelled": True} | options))


def test_what_a_table_says(tmp_path: Path) -> None:
    for kind, name, content, columns, expected in (
        # tabs keep quotes, byte order marks are skipped
        ("classification", "x.tsv",
         '\ufeffn\ta\tb\tl\n7\tsays "hi\tx\u2028y\t1\n8\tsecond"\tz\t0\n', NUMBERED,
         [("7", ('says "hi', "x\u2028y"), "1", ""), ("8", ('second"', "z"), "0", "")]),
        ("classification", "x.csv", 't,l\n"a, ""b""\nc",yes\n', PLAIN,
         [("0", ('a, "b"\nc',), "yes", "")]),
        ("regression", "x.jsonl", '{"t": "a", "l": 2.5}\n', PLAIN, [("0", ("a",), 2.5, "")]),
        ("tags", "x.jsonl", '{"t": ["a", "b"], "l": ["O", "X"]}\n', PLAIN,
         [("0", ("a", "b"), ("O", "X"), "")]),
        ("choices", "x.csv", "c,q,x,y,l\nC,Q,1,2,b\n", CHOICES,
         [("0", ("C", "Q 1", "Q 2"), "1", "C")]),
        ("spans", "x.tsv", "q\tp\ta\nwho\tit is me\tme\n", PAIR,
         [("0", ("who", "it is me"), (Answer("me", 6),), "it is me")]),
        # columns without a name do not matter: pandas writes the numbers of rows so
        ("classification", "x.tsv", "\tt\tl\t\n0\ta\t1\t\n", PLAIN, [("0", ("a",), "1", "")]),
        ("spans", "x.csv", ",q,p,a\n7,who,Anna met Bo,Bo\n", PAIR,
         [("0", ("who", "Anna met Bo"), (Answer("Bo", 9),), "Anna met Bo")]),
        # space around a label or a column is not part of it
        ("classification", "x.tsv", "t\tl\na\t1 \nb\t1\n", PLAIN,
         [("0", ("a",), "1", ""), ("1", ("b",), "1", "")]),
        ("classification", "x.csv", "text, label\na,1\n   \n", OTHER, [("0", ("a",), "1", "")]),
        # lists of tags
        ("tags", "x.csv", "t,l\nAnna met,B-PER O\n", PLAIN,
         [("0", ("Anna", "met"), ("B-PER", "O"), "")]),
        ("tags", "x.csv", 't,l\n"[""Anna"", ""met""]","[""B-PER"", ""O""]"\n', PLAIN,
         [("0", ("Anna", "met"), ("B-PER", "O"), "")]),
        ("tags", "x.tsv", "t\tl\n[ a ]\tO O O\n", PLAIN,
         [("0", ("[", "a", "]"), ("O", "O", "O"), "")]),
        # whole numbers as floats are labels
        ("classification", "x.jsonl", '{"t": "a", "l": 1.0}\n', PLAIN, [("0", ("a",), "1", "")]),
    ):  # fmt: skip
        found = read(tmp_path / name, content, kind, columns).examples
        assert [(e.id, e.texts, e.gold, e.group) for e in found] == expected


def test_what_is_wrong(tmp_path: Path) -> None:
    for kind, name, content, message, columns in (
        ("classification", "x.tsv", "t\tother\na\t1\n",
         "has no column 'l'; its first line names 't', 'other'; name others with --text", PLAIN),
        ("classification", "x.csv", "I like it,pos\nno,neg\n",
         r"x\.csv has no column 'text'; its first line names 'I", OTHER),
        ("classification", "x.tsv", "t\tl\n", "has no examples", PLAIN),
        ("classification", "x.tsv", "", "has no examples", PLAIN),
        ("regression", "x.tsv", "t\tl\na\tmuch\n", "'much' is not a number", PLAIN),
        ("regression", "x.tsv", "t\tl\na\tnan\n", "'nan' is not a number", PLAIN),
        ("classification", "x.tsv", "t\tl\na\tb\t1\n", "line 2 has 3 columns, not 2", PLAIN),
        ("classification", "x.tsv", "t\tl\na\t1\nshort\n", "line 3 has 1 column, not 2", PLAIN),
        ("classification", "x.tsv", "t\tl\tl\na\tb\t1\n", "has two columns 'l'", PLAIN),
        ("classification", "x.CSV", "t,l\ngood, but long,1\n", "line 2 has 3 columns", PLAIN),
        ("classification", "x.csv", 'l,t\n1,"open\n0,b\n', "line 3 is not CSV", PLAIN),
        ("classification", "x.csv", "t,l\na\rb,1\n", "line 2 is not CSV: new-line", PLAIN),
        ("classification", "x.csv", 't,l\n"two\nlines",1\na\n', "line 4 has 1 column", PLAIN),
        ("regression", "x.jsonl", f'{{"t": "a", "l": {"9" * 400}}}\n', "not a number", PLAIN),
        ("classification", "x.jsonl", "{]\n", "line 1 is not a JSON object", PLAIN),
        ("classification", "x.jsonl", "[" * 100_000 + "\n", "nested too deeply", PLAIN),
        ("classification", "x.jsonl", '{"t": "\\ud800", "l": 1}\n', "is not Unicode", PLAIN),
        ("classification", "x.jsonl", "[]\n", "not a JSON object", PLAIN),
        ("tags", "x.jsonl", '{"t": ["a"], "l": [""]}\n', "line 1 has an empty tag", PLAIN),
        ("tags", "x.jsonl", '{"t": ["a"], "l": 5}\n', "5 is not a list of tags", PLAIN),
        ("tags", "x.jsonl", '{"t": ["a"], "l": null}\n', "None is not a list of tags", PLAIN),
        ("tags", "x.jsonl", '{"t": ["a"], "l": ["O", "O"]}\n', "1 words and 2 tags", PLAIN),
        ("tags", "x.csv", "t,l\n\"['Anna']\",\"['B-PER']\"\n", "a list, but not of JSON", PLAIN),
        ("tags", "x.tsv", "t\tl\nAnna\tB-PER\nmet\tO\n\nBo\tB-PER\n", "each of its 3 rows", PLAIN),
        ("choices", "x.tsv", f"t\tl\na\t{'9' * 5000}\n", "names none of 0 choices", PLAIN),
        ("choices", "x.csv", "c,x,y,l\nC,1,2,2\n", "'2' names none of 2 choices", ONE),
        ("choices", "x.csv", "c,x,y,l\nC,1,2,ß\n", "'ß' names none of 2 choices", ONE),
        ("classification", "x.jsonl", '{"t": 3, "l": 1}\n', "'t' is 3, not text", PLAIN),
        ("classification", "x.jsonl", '{"t": "a", "l": 0.5}\n', "nor a whole number", PLAIN),
        ("classification", "x.jsonl", '{"t": "a", "l": 1.5}\n', r"label 1\.5", PLAIN),
    ):  # fmt: skip
        with pytest.raises(DataError, match=message):
            read(tmp_path / name, content, kind, columns)


def test_short_lines_and_sentences_without_words_are_counted(tmp_path: Path) -> None:
    columns = TableColumns(texts=("t",), label="l", skips_short_lines=True)
    found = read(tmp_path / "x.tsv", "t\tl\na\t1\nshort\nb\t0\n", "classification", columns)
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
    kept = read(tmp_path / "x.jsonl", rows.replace("-1.0", "2"), "classification")
    assert [e.gold for e in kept.examples] == ["1", "-", "-1", "2", "", "", "nan"]
    with pytest.raises(DataError, match="none of its 1 rows has a label"):
        read(tmp_path / "x.tsv", "t\tl\na\t-1\n", "regression", is_published=True)
    with pytest.raises(DataError, match="names 't', 'l'; give the files as published"):
        read(tmp_path / "x.tsv", "t\tl\na\t1\n", "classification", OTHER, is_published=True)


def test_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_bytes(b"t\tl\n\xff\t1\n")
    with pytest.raises(DataError, match="not UTF-8"):
        read_example_table(tmp_path / "x.tsv", PLAIN, "classification", labelled=False)


def test_an_answer_is_in_its_paragraph() -> None:
    assert found_answer("a cat, a cat", "cat", 9, "q") == Answer("cat", 9)
    for start in (None, 1, "9" * 5000):
        with pytest.raises(DataError, match="'dog' is not in its paragraph"):
            found_answer("a cat", "dog", start, "q")
    with pytest.raises(DataError, match="2 words and 1 tags"):
        tables.check_tags(("a", "b"), ["O"], "x")


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
