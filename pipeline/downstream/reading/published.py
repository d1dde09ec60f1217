"""Published files that are no tables -> examples: SQuAD's JSON, RACE's folders."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.base.errors import DataError
from pipeline.base.typed_json import as_object
from pipeline.downstream.reading.examples import Answer, Example, check_not_empty
from pipeline.downstream.reading.labelled_files import read_content, read_decoded
from pipeline.downstream.reading.tables import found_answer

# "data" after short entries such as "version": found without parsing 40 MB
_SQUAD = re.compile(
    rb'(\xef\xbb\xbf)?\s*\{\s*("\w+"\s*:\s*("[^"]*"|[\d.]+)\s*,\s*)*"data"\s*:\s*\['
)
LETTERS = ["A", "B", "C", "D"]  # a list: "ABCD".index() would find BC and the empty answer
"""Letters of RACE's answers."""


def is_squad(path: Path) -> bool:
    """True if a file starts as SQuAD's do."""
    return bool(_SQUAD.match(read_content(path)))


def read_squad(path: Path) -> list[Example]:
    """Questions of SQuAD 1.1 or 2.0 (version 2 marks those without an answer).

    Raises DataError for another layout, and for an answer that is not in its paragraph.
    """
    try:
        articles = _json(path)["data"]
        examples = [example for article in articles for example in _questions(article, path)]
    except (KeyError, TypeError) as error:
        raise DataError(
            f"{path} does not have SQuAD's layout ({type(error).__name__}: {error}); expected "
            "data, paragraphs, qas, answers"
        ) from error
    check_not_empty(examples, path)
    return examples


def _questions(article: dict[str, Any], path: Path) -> Iterator[Example]:
    for paragraph in article["paragraphs"]:
        context = _text(paragraph["context"])
        for question in paragraph["qas"]:
            name = str(question["id"])
            gold: tuple[Answer, ...] | None = None
            if question.get("is_impossible"):
                gold = ()
            elif "answers" in question:
                place = f"{path} question {name}"
                gold = tuple(
                    found_answer(context, answer["text"], answer["answer_start"], place)
                    for answer in question["answers"]
                )
            group = str(article.get("title", "")) or context
            yield Example(name, (_text(question["question"]), context), gold, group)


def read_race(folder: Path) -> list[Example]:
    """Questions of RACE: a folder of text files, each JSON with an article and its questions.

    Folders `middle` and `high` inside are read in this order.
    """
    examples = []
    files = folder.rglob("*.txt")
    # rglob's order is the file system's, and --train-rows takes the first
    for path in sorted(files, key=lambda path: (path.parent.name != "middle", path)):
        content = _json(path)
        try:
            article = _text(content["article"])
            for number, question in enumerate(content["questions"]):
                answers = content.get("answers")
                options = [filled(_text(question), _text(o)) for o in content["options"][number]]
                letters = LETTERS[: len(options)]
                gold = None if answers is None else str(letters.index(answers[number]))
                name = f"{path.parent.name}/{path.stem}-{number}"
                examples.append(Example(name, (article, *options), gold, article))
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise DataError(
                f"{path} does not have RACE's layout ({type(error).__name__}: {error}); expected "
                "article, questions, options, answers"
            ) from error
    check_not_empty(examples, folder)
    return examples


def filled(question: str, option: str) -> str:
    """The option in the question's gap, or after the question (Lai et al. 2017's cloze form)."""
    return question.replace("_", option) if "_" in question else f"{question} {option}"


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.60} is not text")
    return value


def _json(path: Path) -> dict[str, Any]:
    try:
        return as_object(read_decoded(path))
    except ValueError as error:
        raise DataError(f"{path} is not a JSON object: {error}; copy it again") from error
