"""Files as published, found by their names."""

import gzip
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.base.errors import DataError
from pipeline.downstream import finetune_tasks
from pipeline.downstream.finetune_tasks import TASKS, find_file, read_split, read_task
from pipeline.downstream.reading.tables import TableColumns

HEADERS = {
    "sst2": "sentence\tlabel\n{}\t1\n",
    "rte": "index\tsentence1\tsentence2\tlabel\n0\ta\t{}\tentailment\n",
    "qnli": "index\tquestion\tsentence\tlabel\n0\ta\t{}\tentailment\n",
    "wnli": "index\tsentence1\tsentence2\tlabel\n0\ta\t{}\t1\n",
    "qqp": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t2\t3\ta\t{}\t0\nshort\n",
    "mrpc": "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t2\t3\ta\t{}\n",
    "stsb": "index\tsentence1\tsentence2\tscore\n0\ta\t{}\t3.25\n",
    "mnli": "index\tgenre\tsentence1\tsentence2\tlabel1\tgold_label\n0\tg\ta\t{}\tx\tneutral\n",
    "cola": "gj04\t1\t\t{}\n",
}
"""A line of each of GLUE's nine training files."""


@pytest.mark.parametrize("name", HEADERS)
def test_glue(name: str, tmp_path: Path) -> None:
    task = TASKS[name]
    for file in (task.train[0], task.dev[0], *task.more_dev):
        (tmp_path / file).write_text(HEADERS[name].format(f'say "{file}'), encoding="utf-8")
    more = tuple(tmp_path / file for file in task.more_dev)
    train = find_file(tmp_path, task.train, task)
    data = read_task(task, train, find_file(tmp_path, task.dev, task), more, 0)
    (example,) = data.train.examples
    assert example.texts[-1] == f'say "{train.name}' and example.gold is not None
    assert data.train.skipped_lines == (name == "qqp")
    assert len(data.more_dev) == (name == "mnli")
    for test in task.tests:
        header = [*test.columns.texts, test.columns.id]
        rows = (header, "ab0"[-len(header) :])
        (tmp_path / test.name).write_text("\n".join(map("\t".join, rows)))
    found = finetune_tasks.read_tests(task, tmp_path)
    assert found.keys() == {test.submission for test in task.tests}
    for (example,) in found.values():
        assert (example.id, example.gold) == ("0", None)
    for test in task.tests:
        (tmp_path / test.name).write_bytes(b"other\n\xff\n")
    assert not finetune_tasks.read_tests(task, tmp_path)


def test_rows_of_mnli_without_a_consensus_are_dropped_and_counted(tmp_path: Path) -> None:
    task, row = TASKS["mnli"], HEADERS["mnli"].splitlines()[1]
    path = tmp_path / "x.tsv"
    path.write_text(HEADERS["mnli"] + row.replace("neutral", "-") + "\n")
    split = read_split(task, path, task.columns)
    assert [e.gold for e in split.examples] == ["neutral"] and split.unlabelled == 1
    own = replace(task, name="classification")
    assert [e.gold for e in read_split(own, path, task.columns).examples] == ["neutral", "-"]


def test_a_share_of_a_file_is_for_development_and_has_its_labels(tmp_path: Path) -> None:
    """The usual shape of IMDb and of exported spreadsheets: all of one label, then the other."""
    task = TASKS["wikigold"]
    (tmp_path / "wikigold.conll.txt").write_text("".join(f"w{i} O\n\n" for i in range(10)))
    data = read_task(task, tmp_path / task.train[0], None, (), task.dev_share)
    assert (len(data.train.examples), len(data.dev.examples)) == (8, 2)
    path = tmp_path / "train.tsv"
    rows = [f"text {i}\t{'neg' if i < 20 else 'pos'}\tauthor {i // 2}\n" for i in range(40)]
    path.write_text("sentence\tlabel\tby\n" + "".join(rows))
    columns = TableColumns(texts=("sentence",), label="label", group="by")
    grouped = replace(TASKS["sst2"], columns=columns)
    for task in (TASKS["sst2"], grouped):
        data = read_task(task, path, None, (), 0.2)
        assert Counter(e.gold for e in data.dev.examples) == {"neg": 4, "pos": 4}
    assert {e.group for e in data.dev.examples}.isdisjoint(e.group for e in data.train.examples)
    path.write_text("".join(["sentence\tlabel\tby\n", *rows[:2], *rows[20:22]]))
    with pytest.raises(DataError, match="4 examples in 2 groups"):
        read_task(grouped, path, None, (), 0.2)


def test_few_examples_have_the_labels_of_the_whole_file(tmp_path: Path) -> None:
    """Few-shot curves of wnut17, whose first sentences lack most tags."""
    path = tmp_path / "wnut17train.conll"
    path.write_text(
        "".join(f"word{i}\t{tag}\n\n" for i, tag in enumerate(["B-person"] * 8 + ["O"]))
    )
    data = read_task(TASKS["wnut17"], path, path, (), 0, train_rows=4)
    assert len(data.train.examples) == 4 and len(data.dev.examples) == 9
    assert data.labels == ("B-person", "O")


def test_missing_files(tmp_path: Path) -> None:
    task = TASKS["sst2"]
    with pytest.raises(DataError, match=r"none of train\.tsv, .* sst2"):
        find_file(tmp_path, ("train.tsv",), task)
    (tmp_path / "train.tsv.gz").write_bytes(gzip.compress(b'sentence\tlabel\n"a\t1\n'))
    path = find_file(tmp_path, ("train.tsv",), task)
    (one,) = read_split(task, path, task.columns).examples
    assert (one.texts, one.gold) == (('"a',), "1")
    with pytest.raises(DataError, match="does not exist"):
        read_split(task, tmp_path / "x.tsv", TableColumns(texts=("a",)))
    assert set(finetune_tasks.METRICS) == {task.kind for task in TASKS.values()}
