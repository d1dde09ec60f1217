"""A user's files and GLUE's, and what is wrong with them in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.base.errors import DataError
from pipeline.downstream.reading.examples import Answer
from pipeline.downstream.reading.tables import (
    ExampleTable,
    TableColumns,
    check_tags,
    found_answer,
    read_example_table,
)


def read(path: Path, content: str, kind: str, columns: TableColumns) -> ExampleTable:
    path.write_text(content, encoding="utf-8")
    return read_example_table(path, columns, kind, labelled=True)


def test_tabs_keep_quotes_and_byte_order_marks_are_skipped(tmp_path: Path) -> None:
    columns = TableColumns(texts=("a", "b"), label="l", id="n")
    content = '\ufeffn\ta\tb\tl\n7\tsays "hi\tx\u2028y\t1\n8\tsecond"\tz\t0\n'
    found = read(tmp_path / "x.tsv", content, "classification", columns).examples
    assert [(e.id, e.texts, e.gold) for e in found] == [
        ("7", ('says "hi', "x\u2028y"), "1"), ("8", ('second"', "z"), "0"),
    ]  # fmt: skip


def test_csv_and_json_lines(tmp_path: Path) -> None:
    columns = TableColumns(texts=("t",), label="l")
    (one,) = read(
        tmp_path / "x.csv", 't,l\n"a, ""b""\nc",yes\n', "classification", columns
    ).examples
    assert (one.texts, one.gold) == (('a, "b"\nc',), "yes")
    (one,) = read(tmp_path / "x.jsonl", '{"t": "a", "l": 2.5}\n', "regression", columns).examples
    assert one.gold == 2.5
    (one,) = read(
        tmp_path / "x.jsonl", '{"t": ["a", "b"], "l": ["O", "X"]}\n', "tags", columns
    ).examples
    assert (one.texts, one.gold) == (("a", "b"), ("O", "X"))
    columns = TableColumns(texts=("c", "q"), label="l", choices=("x", "y"))
    (one,) = read(tmp_path / "x.csv", "c,q,x,y,l\nC,Q,1,2,b\n", "choices", columns).examples
    assert (one.texts, one.gold, one.group) == (("C", "Q 1", "Q 2"), "1", "C")
    columns = TableColumns(texts=("q", "p"), label="a")
    (one,) = read(tmp_path / "x.tsv", "q\tp\ta\nwho\tit is me\tme\n", "spans", columns).examples
    assert one.gold == (Answer("me", 6),)


def test_short_lines_are_counted_or_refused(tmp_path: Path) -> None:
    content = "t\tl\na\t1\nshort\nb\t0\n"
    columns = TableColumns(texts=("t",), label="l", skips_short_lines=True)
    found = read(tmp_path / "x.tsv", content, "classification", columns)
    assert (len(found.examples), found.skipped_lines) == (2, 1)
    with pytest.raises(DataError, match="line 3 has 1 column, not 2"):
        read(tmp_path / "x.tsv", content, "classification", TableColumns(texts=("t",), label="l"))


@pytest.mark.parametrize(
    ("kind", "name", "content", "message"),
    [
        (
            "classification",
            "x.tsv",
            "t\tother\na\t1\n",
            "has no column 'l'; its first line names 't', 'other'; name others with --text and",
        ),
        ("classification", "x.tsv", "t\tl\n", "has no examples"),
        ("classification", "x.tsv", "", "has no examples"),
        ("regression", "x.tsv", "t\tl\na\tmuch\n", "'much' is not a number"),
        ("regression", "x.tsv", "t\tl\na\tnan\n", "'nan' is not a number"),
        ("classification", "x.tsv", "t\tl\na\tb\t1\n", "line 2 has 3 columns, not 2; fix the line"),
        ("classification", "x.tsv", "t\tl\tl\na\tb\t1\n", "has two columns 'l'; rename one"),
        ("classification", "x.CSV", "t,l\ngood, but long,1\n", "line 2 has 3 columns, not 2"),
        ("classification", "x.csv", 'l,t\n1,"open\n0,b\n', "line 3 is not CSV: unexpected end"),
        ("classification", "x.csv", "t,l\na\rb,1\n", "line 2 is not CSV: new-line character"),
        ("classification", "x.csv", 't,l\n"two\nlines",1\na\n', "line 4 has 1 column, not 2"),
        ("regression", "x.jsonl", f'{{"t": "a", "l": {"9" * 400}}}\n', "is not a number"),
        ("classification", "x.jsonl", "{]\n", "line 1 is not a JSON object"),
        ("classification", "x.jsonl", "[" * 100_000 + "\n", "nested too deeply"),
        ("classification", "x.jsonl", '{"t": "\\ud800", "l": 1}\n', "text that is not Unicode"),
        ("classification", "x.jsonl", "[]\n", "not a JSON object"),
        ("tags", "x.jsonl", '{"t": ["a"], "l": [""]}\n', "line 1 has an empty tag"),
        ("tags", "x.jsonl", '{"t": ["a"], "l": 5}\n', "5 is not a list of tags; give one per word"),
        ("tags", "x.jsonl", '{"t": ["a"], "l": null}\n', "None is not a list of tags"),
        ("choices", "x.tsv", f"t\tl\na\t{'9' * 5000}\n", "names none of 0 choices"),
        ("classification", "x.jsonl", '{"t": 3, "l": 1}\n', "'t' is 3, not text"),
        ("classification", "x.jsonl", '{"t": "a", "l": 0.5}\n', "neither text nor a whole number"),
        ("tags", "x.jsonl", '{"t": ["a"], "l": ["O", "O"]}\n', "1 words and 2 tags"),
    ],
)
def test_what_is_wrong(tmp_path: Path, kind: str, name: str, content: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(tmp_path / name, content, kind, TableColumns(texts=("t",), label="l"))


def test_rows_without_a_label_are_dropped_from_published_files(tmp_path: Path) -> None:
    """A user's own keep them as labels, which are asked about before training."""
    rows = '{"t": "a", "l": 1}\n' + "".join(
        f'{{"t": "b", "l": {value}}}\n' for value in ('"-"', -1, "-1.0", '" "', "null", "NaN")
    )
    columns = TableColumns(texts=("t",), label="l")
    (tmp_path / "x.jsonl").write_text(rows)
    for kind in ("classification", "regression"):
        found = read_example_table(
            tmp_path / "x.jsonl", columns, kind, labelled=True, is_published=True
        )
        assert [e.texts for e in found.examples] == [("a",)] and found.unlabelled == 6
    kept = read(tmp_path / "x.jsonl", rows.replace("-1.0", "2"), "classification", columns)
    assert [e.gold for e in kept.examples] == ["1", "-", "-1", "2", "", "", "nan"]
    (tmp_path / "x.tsv").write_text("t\tl\na\t-1\n")
    with pytest.raises(DataError, match="none of its 1 rows has a label; give a labelled file"):
        read_example_table(
            tmp_path / "x.tsv", columns, "regression", labelled=True, is_published=True
        )


def test_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_bytes(b"t\tl\n\xff\t1\n")
    with pytest.raises(DataError, match="not UTF-8"):
        read_example_table(
            tmp_path / "x.tsv", TableColumns(texts=("t",)), "classification", labelled=False
        )


def test_an_answer_is_in_its_paragraph() -> None:
    assert found_answer("a cat, a cat", "cat", 9, "q") == Answer("cat", 9)
    for start in (None, 1, "9" * 5000):
        with pytest.raises(DataError, match="the answer 'dog' is not in its paragraph"):
            found_answer("a cat", "dog", start, "q")
    with pytest.raises(DataError, match="2 words and 1 tags"):
        check_tags(("a", "b"), ["O"], "x")


def test_a_choice_is_one_of_them(tmp_path: Path) -> None:
    columns = TableColumns(texts=("c",), label="l", choices=("x", "y"))
    with pytest.raises(DataError, match="'2' names none of 2 choices"):
        read(tmp_path / "x.csv", "c,x,y,l\nC,1,2,2\n", "choices", columns)
    with pytest.raises(DataError, match="'ß' names none of 2 choices"):
        read(tmp_path / "x.csv", "c,x,y,l\nC,1,2,ß\n", "choices", columns)


def test_sentences_without_words_are_skipped(tmp_path: Path) -> None:
    content = '{"t": [], "l": []}\n{"t": ["a"], "l": ["O"]}\n'
    found = read(tmp_path / "x.jsonl", content, "tags", TableColumns(texts=("t",), label="l"))
    assert [example.texts for example in found.examples] == [("a",)] and found.skipped_lines == 1


def test_columns_without_a_name_do_not_matter(tmp_path: Path) -> None:
    columns = TableColumns(texts=("t",), label="l")
    found = read(tmp_path / "x.tsv", "\tt\tl\t\n0\ta\t1\t\n", "classification", columns)
    assert [(example.texts, example.gold) for example in found.examples] == [(("a",), "1")]


def test_space_around_a_label_is_not_part_of_it(tmp_path: Path) -> None:
    columns = TableColumns(texts=("t",), label="l")
    found = read(tmp_path / "x.tsv", "t\tl\na\t1 \nb\t1\n", "classification", columns)
    assert [example.gold for example in found.examples] == ["1", "1"]


def test_what_was_read_is_told(tmp_path: Path) -> None:
    columns = TableColumns(texts=("review",), label="stars", id="n")
    found = read(tmp_path / "x", "review;stars;date;by\na;1;2;c\n", "classification", columns)
    assert found.taken == "semicolon-separated; text review; target stars; unused 'date', 'by'"
    found = read(tmp_path / "x", '{"review": "a", "stars": 1, "n": 2}\n', "regression", columns)
    assert found.taken == "JSON lines; text review; target stars; id n"


def test_a_published_table_without_a_column_is_not_the_published_one(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("text\tlabel\na\t1\n")
    columns = TableColumns(texts=("sentence",), label="label")
    with pytest.raises(DataError, match="names 'text', 'label'; give the files as published"):
        read_example_table(
            tmp_path / "x.tsv", columns, "classification", labelled=True, is_published=True
        )


def test_a_column_without_a_name_has_no_role(tmp_path: Path) -> None:
    """pandas writes the numbers of rows under an empty name."""
    columns = TableColumns(texts=("q", "p"), label="a")
    found = read(tmp_path / "x.csv", ",q,p,a\n7,who,Anna met Bo,Bo\n", "spans", columns)
    assert [(e.id, e.gold) for e in found.examples] == [("0", (Answer("Bo", 9),))]
    assert found.taken == "comma-separated; text q, p; target a; unused ''"


@pytest.mark.parametrize(
    ("words", "tags"),
    [("Anna met", "B-PER O"), ('"[""Anna"", ""met""]"', '"[""B-PER"", ""O""]"')],
)
def test_lists_of_tags_in_a_table(words: str, tags: str, tmp_path: Path) -> None:
    columns = TableColumns(texts=("w",), label="t")
    (one,) = read(tmp_path / "x.csv", f"w,t\n{words},{tags}\n", "tags", columns).examples
    assert (one.texts, one.gold) == (("Anna", "met"), ("B-PER", "O"))


def test_what_would_be_read_as_other_words(tmp_path: Path) -> None:
    columns = TableColumns(texts=("w",), label="t")
    as_python = "w,t\n\"['Anna', 'met']\",\"['B-PER', 'O']\"\n"
    with pytest.raises(DataError, match="is a list, but not of JSON"):
        read(tmp_path / "x.csv", as_python, "tags", columns)
    with pytest.raises(DataError, match="has one word in each of its 3 rows"):
        read(tmp_path / "x.tsv", "w\tt\nAnna\tB-PER\nmet\tO\n\nBo\tB-PER\n", "tags", columns)
    (one,) = read(tmp_path / "x.tsv", "w\tt\n[ a ]\tO O O\n", "tags", columns).examples
    assert one.texts == ("[", "a", "]")


def test_whole_numbers_as_floats_are_labels(tmp_path: Path) -> None:
    columns = TableColumns(texts=("t",), label="l")
    (one,) = read(
        tmp_path / "x.jsonl", '{"t": "a", "l": 1.0}\n', "classification", columns
    ).examples
    assert one.gold == "1"
    with pytest.raises(DataError, match=r"label 1\.5"):
        read(tmp_path / "x.jsonl", '{"t": "a", "l": 1.5}\n', "classification", columns)


def test_a_missing_column_is_one_of_the_first_line(tmp_path: Path) -> None:
    columns = TableColumns(texts=("text",), label="label")
    with pytest.raises(DataError, match=r"x\.csv has no column 'text'; its first line names 'I"):
        read(tmp_path / "x.csv", "I like it,pos\nno,neg\n", "classification", columns)
    found = read(tmp_path / "x.csv", "text, label\na,1\n   \n", "classification", columns)
    assert [(e.texts, e.gold) for e in found.examples] == [(("a",), "1")]
