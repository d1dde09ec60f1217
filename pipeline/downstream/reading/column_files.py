"""Files with a word and its tags per line -> sentences: CoNLL's, CoNLL-U and CoNLL-U Plus.

1. An empty line ends a sentence, and so do -DOCSTART- and CoNLL-2012's #begin and #end document.
2. Columns have numbers from 1. CoNLL-U's ten have Universal Dependencies' names too, and those of
   CoNLL-U Plus the names in its first line, `# global.columns = ID FORM UPOS`.
3. A word is in FORM, else in the first column; its tag, if none is chosen, in the last. The
   columns of CoNLL-2012 must be chosen, and its entities in brackets are refused.
4. In files with names a number sign starts a comment, and IDs such as 3-4 and 8.1 are not words.
   Elsewhere it is a word, but for `# id ...` and `# name = ...`.
5. A first line that names a word and its tag, as `word<tab>tag`, is a header.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from pipeline.base.errors import DataError
from pipeline.downstream.reading.examples import Example, check_not_empty
from pipeline.downstream.reading.labelled_files import (
    columns_shown,
    decode_content,
    is_json,
    name_ending,
    read_content,
    read_decoded,
)
from pipeline.downstream.reading.tables import NAME_COLUMNS, ExampleTable, check_tags
from pipeline.ingest.documents.csv_tables import HEAD_BYTES, find_dialect
from pipeline.ingest.documents.parquet import table_format
from pipeline.ingest.documents.sniff import ARRAY

COMMENT = re.compile(r"# (id |\S+ = )")
"""Names of sentences in CoNLL-U and MultiCoNER; a number sign may also be a word."""
SENTENCE_BREAK = "-DOCSTART-"
_DOCUMENT = re.compile(r"#(begin|end) document\b")
"""CoNLL-2012's marks around a document: https://conll.cemantix.org/2012/data.html"""
_CONLL_2012 = 12
"""The fewest columns of CoNLL-2012: the word is the fourth, a name such as (ORG* the eleventh."""
_BRACKETS = re.compile(r"\([A-Z_]+[*)]")
CONLL_U = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")
"""https://universaldependencies.org/format.html"""
_GLOBAL = "# global.columns = "
_HEADER = re.compile(
    r"(words?|tokens?|form)\s(.*\s)?((ner_?|pos_?)?tags?|ner|pos|labels?)\s*", re.I
)
_ID = re.compile(r"\d+([-.]\d+)?")
_MOST_DIGITS = 9  # int() refuses 5,000 digits with a ValueError


def is_column_file(path: Path, wanted: Sequence[str]) -> bool:
    """False if a file is a table of sentences: by its format or its name, or as its first line
    names one of the wanted columns."""
    content = read_content(path)
    if table_format(content):
        return False
    text = decode_content(path, content)
    if is_json(path, text) or ARRAY.match(text):
        return False
    if name_ending(path) == "csv":
        return False
    header = find_dialect(text[:HEAD_BYTES].encode(), tuple(wanted)).columns
    return {*wanted}.isdisjoint(header)


def read_conll(path: Path, word: str = "", tag: str = "") -> ExampleTable:
    """Sentences of a file, their words and tags in the chosen columns.

    word, tag: names or numbers of columns; empty: see 3 above. Raises DataError for a column that
    the file lacks, and for a line without a word and its tag.
    """
    # not splitlines(), which ends lines at U+2028 and form feeds inside words
    lines = [line.rstrip("\r") for line in read_decoded(path).split("\n")]
    if _HEADER.fullmatch(lines[0]):
        lines[0] = ""  # 5. blank, not removed: messages count lines
    names = _column_names(lines)  # 2.
    first = next((_split(line) for line in lines if _is_word_line(line, names)), [])
    if names and not tag:
        raise DataError(
            f"{path} has the columns {', '.join(names)}; name that of the tags, such as "
            "--target UPOS"
        )
    if not (word and tag) and len(first) >= _CONLL_2012 and any(map(_DOCUMENT.match, lines)):
        raise DataError(
            f"{path} has the columns of CoNLL-2012; name those of the words and of their tags, "
            "such as --text 4 --target 5"
        )
    # 3.
    word_at = _place(path, word or ("FORM" if "FORM" in names else "1"), names, first)
    tag_at = _place(path, tag, names, first) if tag else -1
    examples: list[Example] = []
    words: list[str] = []
    tags: list[str] = []
    # the additional empty line ends the last sentence
    for number, line in enumerate([*lines, ""], 1):
        # 1.
        if _is_break(line):
            if words:
                check_tags(tuple(words), tags, str(path))
                examples.append(Example(str(len(examples)), tuple(words), tuple(tags)))
                words, tags = [], []
        elif _is_word_line(line, names):
            columns = [value.strip() for value in _split(line)]
            # at least a word and a tag, even if tag_at is -1
            is_long = len(columns) > max(1, word_at, tag_at)
            if not (is_long and columns[word_at] and columns[tag_at]):
                raise DataError(f"{path} line {number}: {line!r} is not a word and its tag")
            if _BRACKETS.match(columns[tag_at]):
                raise DataError(
                    f"{path} line {number}: the tag {columns[tag_at]!r} is in CoNLL-2012's "
                    "brackets; convert the column to B-, I- and O"
                )
            words.append(columns[word_at])
            tags.append(columns[tag_at])
    check_not_empty(examples, path)
    chosen = [(names or range(1, len(first) + 1))[place] for place in (word_at, tag_at)]
    return ExampleTable(
        examples, 0, taken=f"a word per line; text {chosen[0]}; target {chosen[1]} of {len(first)}"
    )


def _column_names(lines: Sequence[str]) -> tuple[str, ...]:
    """The names of the columns; empty if they have numbers only."""
    for line in lines:
        if line.startswith(_GLOBAL):
            return tuple(line.removeprefix(_GLOBAL).split())
        if line and not line.startswith("#"):
            columns = line.split("\t")
            # CoNLL-U itself does not name its columns: ten, and an ID in the first
            is_named = len(columns) == len(CONLL_U) and _ID.fullmatch(columns[0])
            return CONLL_U if is_named else ()
    return ()


def _is_break(line: str) -> bool:
    """True for what ends a sentence: a blank line, or the mark of a document."""
    return (
        not line.strip()
        or line.split(maxsplit=1)[0] == SENTENCE_BREAK
        or bool(_DOCUMENT.match(line))
    )


def _is_word_line(line: str, names: Sequence[str]) -> bool:
    """False for blank lines, marks, comments, and in files with names for what has another ID."""
    if _is_break(line):
        return False
    if not names:
        return not COMMENT.match(line)  # 4.
    if line.startswith("#"):
        return False
    # ranges (3-4) repeat the words after them; empty nodes (8.1) are not in the text
    return names[0] != "ID" or _split(line)[0].isdecimal()


def _split(line: str) -> list[str]:
    # words of CoNLL-U may contain spaces, but never tabs
    return line.split("\t") if "\t" in line else line.split()


def _place(path: Path, wanted: str, names: Sequence[str], first: Sequence[str]) -> int:
    """The index of a column. Raises DataError if the first word's line has no such column."""
    if wanted in names:
        return names.index(wanted)
    number = int(wanted) if wanted.isdecimal() and len(wanted) < _MOST_DIGITS else 0
    if 1 <= number <= max(1, len(first)):
        return number - 1
    shown = ", ".join(names) or f"1 to {len(first)}, {columns_shown(first)} in its first line"
    raise DataError(f"{path} has no column {wanted!r}; its columns are {shown}; {NAME_COLUMNS}")
