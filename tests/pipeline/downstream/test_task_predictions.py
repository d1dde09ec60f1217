"""Logits become predictions, scores and files for submission."""

import json
from typing import Any

import pytest
import torch

from pipeline.base.errors import DataError
from pipeline.downstream.features import Feature, Row, Window
from pipeline.downstream.finetune_tasks import METRICS, TASKS, LabelledTask, scored_by_tags
from pipeline.downstream.reading.examples import Answer, Example
from pipeline.downstream.task_predictions import (
    LOWEST,
    Predicted,
    best_answer,
    majority,
    predictions,
    score,
    submission,
)

ROW = (Row([2, 3], 2, [0]),)


def example(gold: Any, *texts: str, id: str = "0") -> Example:
    return Example(id, texts or ("x",), gold)


def test_labels_numbers_and_choices() -> None:
    examples = [example("b", id="7"), example("a", id="8")]
    features = [Feature(0, ROW, ()), Feature(1, ROW, ())]
    logits = [torch.tensor([[0.0, 1.0]]), torch.tensor([[0.0, 3.0]])]
    found = predictions(examples, features, logits, TASKS["sst2"], ("a", "b"))
    assert [part.predicted for part in found] == ["b", "b"]
    assert found[0].score == pytest.approx(0.7311, abs=1e-4)
    assert score(found, TASKS["sst2"]) == {"accuracy": 0.5}
    record = {"id": "7", "gold": "b", "predicted": "b", "score": found[0].score}
    assert json.loads(found[0].line("")) == record
    assert json.loads(found[0].line("dev_mismatched")) == record | {"file": "dev_mismatched"}
    same = [torch.tensor([[2.0]])] * 2
    found = predictions([example(1.0), example(2.0)], features, same, TASKS["stsb"], ())
    assert score(found, TASKS["stsb"]) == {"pearson": 0.0, "spearman": 0.0}
    choices, higher = [example("1", "c", "x", "y")], [torch.tensor([[1.0], [2.0]])]
    (choice,) = predictions(choices, features[:1], higher, TASKS["race"], ())
    assert choice.predicted == "1"


def test_words_without_room_are_outside() -> None:
    given = [example(("B-X", "O", "B-X"), "a", "b", "c")]
    feature = Feature(0, ROW, (), words=(0, 1))
    logits, task = torch.tensor([[5.0, 0.0], [0.0, 5.0]]), TASKS["wikigold"]
    (found,) = predictions(given, [feature], [logits], task, ("B-X", "O"))
    assert found.predicted == ["B-X", "O", "O"]
    assert score([found], task)["entity_f1"] == pytest.approx(2 / 3)
    by_tags = score([found], scored_by_tags(task, ("B-X", "O")))
    assert by_tags.keys() == {"entity_f1", "accuracy"}


def test_tags_without_entities_have_no_f1_of_them() -> None:
    """As of parts of speech, or numbers of tags, in which every run of tags would be an entity."""
    own = LabelledTask(name="tags", kind="tags", metrics=METRICS["tags"], train=(), dev=())
    task = scored_by_tags(own, ("0", "1"))
    found = [Predicted("0", ["0", "1", "0"], ["0", "0", "0"], 1.0)]
    assert score(found, task) == {"accuracy": pytest.approx(2 / 3)}
    assert task.metrics == ("accuracy",) and scored_by_tags(own, ("B", "I-X", "O")) is own
    with pytest.raises(DataError, match="'x' of wnut17"):
        scored_by_tags(TASKS["wnut17"], ("O", "x"))


@pytest.mark.parametrize("answerable", [False, True])
def test_a_blank_paragraph_has_no_answer(answerable: bool) -> None:
    """And questions of one id are two questions."""
    gold = () if answerable else (Answer("me", 0),)
    examples = [example((Answer("x", 0),), "who", " "), example(gold, "who", "me")]
    blank = Feature(0, (Row([2, 5, 3, 3], 3, [0, 1, 2, 3]),), (), Window(3, [], []))
    one = Feature(1, (Row([2, 5, 3, 6, 3], 3, list(range(5))),), (), Window(3, [(0, 2)], [True]))
    logits = [torch.zeros(4, 2), torch.zeros(5, 2)]
    found = predictions(examples, [blank, one], logits, TASKS["squad2"], ())
    assert [part.predicted for part in found] == ["", "me"]
    assert all(json.loads(part.line(""))["score"] >= LOWEST for part in found)
    assert score(found, TASKS["squad2"])["exact"] == (0.0 if answerable else 0.5)


def test_the_best_answer_is_in_the_paragraph_and_ends_after_its_start() -> None:
    text = "one two three"
    window = Window(2, [(0, 3), (4, 7), (8, 13)], [True, True, True])
    feature = Feature(0, (Row([2, 3, 5, 6, 7, 3], 2, list(range(6))),), (), window)
    logits = torch.tensor([[9.0, 9.0], [9, 9], [0, 9], [3, 1], [1, 2], [9, 9]])
    assert best_answer(text, feature, logits) == (9.0, "one")
    hidden = Window(2, window.offsets, [False, True, True])
    other = Feature(0, feature.rows, (), hidden)
    assert best_answer(text, other, logits) == (5.0, "two three")
    answered = example((Answer("two three", 4),), "q", text, id="a")
    found = predictions([answered], [other], [logits], TASKS["squad1"], ())
    assert score(found, TASKS["squad1"]) == {"f1": 1.0, "exact": 1.0}
    # [CLS] scores 18, 13 more than the answer: no answer where questions may have none, whatever
    # the other questions of the development file are
    (alone,) = predictions([answered], [other], [logits], TASKS["squad2"], ())
    assert score([alone], TASKS["squad2"]) == {
        "f1": 0.0, "exact": 0.0, "best_f1": 1.0, "null_threshold": 13.0,
    }  # fmt: skip
    both = [answered, example((), "q", text, id="b")]
    features = [other, Feature(1, other.rows, (), hidden)]
    found = predictions(both, features, [logits, logits], TASKS["squad2"], ())
    assert found[0] == alone and alone.null == 13
    assert predictions(both, features, [logits, logits], TASKS["squad1"], ())[0].null < LOWEST
    scores = score(found, TASKS["squad2"])
    names = ("answered_f1", "unanswered_f1", "f1", "best_f1")
    assert [scores[name] for name in names] == [0, 1, 0.5, 0.5]


def long_window(tokens: int) -> tuple[str, Feature]:
    """A paragraph of words with one letter after two tokens."""
    offsets = [(2 * place, 2 * place + 1) for place in range(tokens)]
    row = Row([2] * (2 + tokens), 2, list(range(2 + tokens)))
    return "x " * tokens, Feature(0, (row,), (), Window(2, offsets, [True] * tokens))


@pytest.mark.parametrize(("better", "expected"), [(19, 17.0), (20, 10.0)])
def test_answers_are_of_thirty_tokens_and_twenty_starts(better: int, expected: float) -> None:
    """google-research/bert run_squad.py, max_answer_length and n_best_size. `better` starts come
    before that of the best answer."""
    text, feature = long_window(60)
    logits = torch.zeros(62, 2)
    logits[2, 0] = logits[2 + 30, 1] = 9
    logits[2 + 29, 1] = 5
    assert best_answer(text, feature, logits) == (14.0, " ".join("x" * 30))
    logits = torch.zeros(62, 2)
    logits[-better:, 0], logits[-19:, 1] = 9, 1
    logits[5], logits[5, 0] = 9, 8
    found = best_answer(text, feature, logits)
    assert found is not None and found[0] == expected


def test_no_answer_scores_as_in_the_window_where_it_is_least_likely() -> None:
    """run_squad.py: the null score of a question is the lowest of its windows."""
    text, feature = long_window(3)
    windows = [torch.zeros(5, 2) for _ in range(3)]
    for logits, none in zip(windows, (2, -1, 3)):
        logits[0] = none
    windows[2][3] = 4
    (found,) = predictions([example((), "q", text)], [feature] * 3, windows, TASKS["squad2"], ())
    assert (found.predicted, found.score, found.null) == ("x", 8, -2 - 8)


def test_the_majority() -> None:
    for task, training, predicted in (
        ("sst2", [example("a"), example("b"), example("b")], "b"),
        ("wikigold", [example(("O", "O", "B-X"), "x", "y", "z")], ["O"] * 3),
        ("stsb", [example(1.0), example(2.0)], 1.5),
        ("squad2", [example((), "q", "p")], ""),
    ):
        assert majority(training[:1], training, TASKS[task])[0].predicted == predicted


def test_files_for_submission() -> None:
    labels = [Predicted("5", None, "entailment", 1.0), Predicted("6", None, "neutral", 1.0)]
    assert submission(labels, "RTE.tsv") == b"index\tprediction\n0\tentailment\n1\tneutral\n"
    assert submission(labels[1:], "AX.tsv") == b"index\tprediction\n6\tneutral\n"
    assert submission([Predicted("0", None, 5.25, 1.0)], "STS-B.tsv").endswith(b"0\t5.000\n")
