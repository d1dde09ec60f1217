"""What is said of the examples before training, and in scores.json."""

from dataclasses import replace
from pathlib import Path

from pipeline.downstream import data_summary
from pipeline.downstream.data_summary import Copies, describe_data
from pipeline.downstream.features import RowEncoder
from pipeline.downstream.finetune_tasks import TASKS, Split, TaskData
from pipeline.downstream.reading.examples import Example
from pipeline.downstream.starting_weights import load_start
from tests.pipeline.downstream.small_work import EXPORTS, LABELS, small_examples

TRAINING = [("A fine film .",), ("It rains.", "It is wet."), ("!?",), ("B-X", "the", ",")]
COPIES = {
    ("a  FINE film",): True, ("A fine, fine film",): False, ("fine a film",): False,
    ("it rains", "it is wet"): True, ("it is wet", "it rains"): False, ("it rains",): False,
    ("it rains", "a fine film"): False, ("!?",): True, ("...",): False, ("",): False,
    ("B-X", "the", ","): True,
}  # fmt: skip


def test_dropped_rows_and_labels() -> None:
    train = Split(Path("train.tsv"), small_examples(6), skipped_lines=2, unlabelled=3)
    data = TaskData(train, Split(Path("dev.tsv"), small_examples(2)), labels=LABELS)
    dropped = "train.tsv: 3 rows without a label are dropped"
    assert dropped in list(describe_data(TASKS["sst2"], data, []))
    own = list(describe_data(replace(TASKS["sst2"], name="classification"), data, []))
    assert own[:3] == [dropped, "training labels: 0 3, 1 3", "development labels: 0 1, 1 1"]
    told = replace(data, train=replace(train, taken="tab-separated; text a"))
    assert next(describe_data(TASKS["sst2"], told, [])) == "train.tsv: tab-separated; text a"
    divided = next(describe_data(TASKS["sst2"], replace(data, train=data.dev, is_divided=True), []))
    assert divided.startswith("development: 2 examples of dev.tsv, drawn with seed 0 for every")
    encoder = RowEncoder(load_start(EXPORTS / "bert").vocabulary, 32)
    about = data_summary.about_data(data, encoder, [Copies("development", 2, 1)])
    names = ("train", "dev", "skipped_lines", "unlabelled")
    assert [about[name] for name in names] == [6, 2, 2, 3]
    assert about["copies"] == [{"name": "development", "checked": 2, "in_train": 1}]


def test_development_examples_that_are_training_examples() -> None:
    train = Split(Path("train.tsv"), small_examples(24))
    more = Split(Path("dev_mismatched.tsv"), small_examples(30)[20:])
    data = TaskData(train, Split(Path("dev.tsv"), small_examples(10)), (more,))
    found = data_summary.find_copies(data)
    assert found == [Copies("development", 10, 10), Copies("dev_mismatched", 10, 4)]
    said = "warning: 4 of 10 dev_mismatched examples (40.0%) have the texts of a training example"
    assert any(line.startswith(said) for line in describe_data(TASKS["mnli"], data, found))
    few = Copies("development", 1000, 3).describe()
    assert few.startswith("3 of 1,000 development examples (0.3%) have")
    assert Copies("development", 10, 0).describe() == ""
    training = [Example(str(i), texts, "a") for i, texts in enumerate(TRAINING)]
    for texts, is_copy in COPIES.items():
        given = [Example("0", texts, "b")]
        assert data_summary.count_shared_examples(given, training) == is_copy, texts
