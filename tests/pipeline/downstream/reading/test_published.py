"""SQuAD and RACE as published."""

import json
from pathlib import Path

import pytest

from pipeline.base.errors import DataError
from pipeline.downstream.reading.examples import Answer
from pipeline.downstream.reading.published import is_squad, read_race, read_squad


def test_squad(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    answers = [{"text": "me", "answer_start": 6}]
    questions = [
        {"id": "1", "question": "who", "answers": answers},
        {"id": "2", "question": "what", "answers": [], "is_impossible": True},
    ]
    paragraph = {"context": "it is me", "qas": questions}
    path.write_text(json.dumps({"data": [{"title": "T", "paragraphs": [paragraph]}]}))
    assert is_squad(path)
    first, second = read_squad(path)
    assert (first.texts, first.gold, first.group) == (("who", "it is me"), (Answer("me", 6),), "T")
    assert second.gold == ()
    answers[0]["answer_start"] = 5
    path.write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}))
    with pytest.raises(DataError, match=r"question 1: .* 'me'"):
        read_squad(path)
    none = json.dumps({"data": [{"paragraphs": [paragraph | {"context": None}]}]})
    for content, said in ((none, "SQuAD.*None is not text"), ('{"data": [{}]}', "SQuAD")):
        path.write_text(content)
        with pytest.raises(DataError, match=said):
            read_squad(path)
    path.write_text('{"data": 5}\n')
    assert not is_squad(path)


def test_race(tmp_path: Path) -> None:
    (tmp_path / "high").mkdir()
    content = {
        "article": "A.", "questions": ["It is _ .", "Why?"], "answers": ["B", "A"],
        "options": [["x", "y", "z", "w"], ["p", "q", "r", "s"]],
    }  # fmt: skip
    (tmp_path / "high/7.txt").write_text(json.dumps(content))
    first, second = read_race(tmp_path)
    texts = ("A.", "It is x .", "It is y .")
    assert (first.id, first.texts[:3], first.gold) == ("high/7-0", texts, "1")
    assert (second.texts[1], second.gold) == ("Why? p", "0")
    for changes in ({"answers": ["E", "A"]}, {"answers": ["", "A"]}, {"answers": ["BC", "A"]},
                    {"options": [["x", "y"], ["p"]], "answers": ["A", "B"]},
                    {"options": [[], ["p"]]}, {"options": [["x", None], ["p"]]}, None):  # fmt: skip
        (tmp_path / "high/8.txt").write_text(json.dumps(content | changes if changes else {}))
        with pytest.raises(DataError, match="RACE"):
            read_race(tmp_path)
