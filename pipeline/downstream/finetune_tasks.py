"""The tasks: their files as published, columns, kind and metrics.

To add a task, add a record here; its hyperparameters are in `protocols.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from pipeline.base.errors import DataError
from pipeline.downstream.reading.division import divide_examples
from pipeline.downstream.reading.examples import Example
from pipeline.downstream.reading.hub_tasks import FILES, HUB
from pipeline.downstream.reading.labels import labels_of
from pipeline.downstream.reading.layouts import Layout, read_examples
from pipeline.downstream.reading.tables import TableColumns
from pipeline.evaluation.scoring.metrics import CHUNK_TAG
from pipeline.ingest.compression.codecs import MAGIC

TaskKind = Literal["classification", "regression", "choices", "tags", "spans"]
KINDS: tuple[TaskKind, ...] = ("classification", "regression", "choices", "tags", "spans")


@dataclass(frozen=True, kw_only=True, slots=True)
class TestFile:
    """A test file without labels, and the file to submit for it."""

    name: str
    columns: TableColumns
    submission: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledTask:
    """A task as it is published."""

    name: str
    kind: TaskKind
    metrics: tuple[str, ...]
    """The first is the one that seeds and grid points are compared by."""
    train: tuple[str, ...]
    """Names of the training file, the first that exists is read."""
    dev: tuple[str, ...]
    """Names of the development file; empty if it is `dev_share` of the training file."""
    more_dev: tuple[str, ...] = ()
    """Further development files, scored apart."""
    layout: Layout = "table"
    columns: TableColumns = field(default_factory=lambda: TableColumns(texts=()))
    dev_columns: TableColumns | None = None
    """Columns of the development file; None if they are those of training."""
    tests: tuple[TestFile, ...] = ()
    positive: str = "1"
    """The label whose F1 is reported."""
    dev_share: float = 0.0
    """Share of the training file that is the development file if there is none."""
    labels: tuple[str, ...] = ()
    """Labels named by the user; () if they are those of the training file."""
    begins_with: str = ""
    """A task whose fine-tuned weights the published scores start from."""
    abstains: bool = False
    """True if questions may have no answer, so that the model may give none."""


@dataclass(frozen=True, slots=True)
class Split:
    """Examples of a file."""

    path: Path
    examples: list[Example]
    skipped_lines: int = 0
    unlabelled: int = 0
    """Rows that were dropped as they have no label."""
    taken: str = ""
    """The format and the columns that were read, for the terminal; else empty."""


@dataclass(frozen=True, slots=True)
class TaskData:
    """The examples of a task."""

    train: Split
    dev: Split
    more_dev: tuple[Split, ...] = ()
    labels: tuple[str, ...] = ()
    """Labels that were named, or those of the whole training file; () for kinds without labels."""
    is_divided: bool = False
    """True if development is a share of the training file."""

    def splits(self) -> tuple[Split, ...]:
        """Training, development, and further development files."""
        return self.train, self.dev, *self.more_dev


def _glue(
    name: str, folder: str, texts: tuple[str, ...], *, metrics: tuple[str, ...],
    label: str = "label", id: str = "index", kind: TaskKind = "classification",
    begins_with: str = "",
) -> LabelledTask:  # fmt: skip
    """A task of GLUE with a header line in every file; folder: its name in a submission."""
    test = TableColumns(texts=texts, id=id)
    return LabelledTask(
        name=name,
        kind=kind,
        metrics=metrics,
        train=("train.tsv",),
        dev=("dev.tsv",),
        columns=TableColumns(texts=texts, label=label, skips_short_lines=name == "qqp"),
        tests=(TestFile(name="test.tsv", columns=test, submission=f"{folder}.tsv"),),
        begins_with=begins_with,
    )


PAIR = ("sentence1", "sentence2")
# CoLA's train and dev have no header line, its test file has
_COLA = TableColumns(
    texts=("sentence",), label="label", header=("source", "label", "mark", "sentence")
)
_MRPC = TableColumns(texts=("#1 String", "#2 String"), label="Quality")
_COSMOS = TableColumns(
    texts=("context", "question"),
    label="label",
    choices=("answer0", "answer1", "answer2", "answer3"),
    id="id",
)
_SWAG = TableColumns(
    texts=("sent1", "sent2"), label="label", choices=("ending0", "ending1", "ending2", "ending3")
)
_BOTH = ("f1", "accuracy")

TASKS: dict[str, LabelledTask] = {
    task.name: task
    for task in (
        LabelledTask(
            name="cola",
            kind="classification",
            metrics=("matthews", "accuracy"),
            # GLUE's name, then the original release's
            train=("train.tsv", "in_domain_train.tsv", "raw/in_domain_train.tsv"),
            dev=("dev.tsv", "in_domain_dev.tsv", "raw/in_domain_dev.tsv"),
            columns=_COLA,
            tests=(
                TestFile(
                    name="test.tsv",
                    columns=TableColumns(texts=("sentence",), id="index"),
                    submission="CoLA.tsv",
                ),
            ),
        ),
        _glue("sst2", "SST-2", ("sentence",), metrics=("accuracy",)),
        LabelledTask(
            name="mrpc",
            kind="classification",
            metrics=_BOTH,
            train=("train.tsv", "msr_paraphrase_train.txt"),
            # Microsoft's release has no development file, but its test file is labelled
            dev=("dev.tsv", "msr_paraphrase_test.txt"),
            columns=_MRPC,
            tests=(
                TestFile(
                    name="test.tsv",
                    columns=TableColumns(texts=_MRPC.texts, id="index"),
                    submission="MRPC.tsv",
                ),
            ),
            begins_with="mnli",
        ),
        _glue(
            "qqp", "QQP", ("question1", "question2"), metrics=_BOTH, label="is_duplicate", id="id"
        ),
        _glue(
            "stsb", "STS-B", PAIR, metrics=("pearson", "spearman"), label="score",
            kind="regression", begins_with="mnli",
        ),
        LabelledTask(
            name="mnli",
            kind="classification",
            metrics=("accuracy",),
            train=("train.tsv",),
            dev=("dev_matched.tsv",),
            more_dev=("dev_mismatched.tsv",),
            columns=TableColumns(texts=PAIR, label="gold_label"),
            tests=(
                TestFile(
                    name="test_matched.tsv",
                    columns=TableColumns(texts=PAIR, id="index"),
                    submission="MNLI-m.tsv",
                ),
                TestFile(
                    name="test_mismatched.tsv",
                    columns=TableColumns(texts=PAIR, id="index"),
                    submission="MNLI-mm.tsv",
                ),
                TestFile(
                    name="diagnostic.tsv",  # AX has no training data: it is for MNLI's models
                    columns=TableColumns(texts=PAIR, id="index"),
                    submission="AX.tsv",
                ),
            ),
        ),
        _glue("qnli", "QNLI", ("question", "sentence"), metrics=("accuracy",)),
        _glue("rte", "RTE", PAIR, metrics=("accuracy",), begins_with="mnli"),
        _glue("wnli", "WNLI", PAIR, metrics=("accuracy",)),
        LabelledTask(
            name="squad1",
            kind="spans",
            metrics=("f1", "exact"),
            train=("train-v1.1.json",),
            dev=("dev-v1.1.json",),
            layout="squad",
        ),
        LabelledTask(
            name="squad2",
            kind="spans",
            metrics=("f1", "exact"),
            train=("train-v2.0.json",),
            dev=("dev-v2.0.json",),
            layout="squad",
            abstains=True,
        ),
        LabelledTask(
            name="race",
            kind="choices",
            metrics=("accuracy",),
            train=("train",),
            dev=("dev",),
            layout="race",
        ),
        LabelledTask(
            name="swag",
            kind="choices",
            metrics=("accuracy",),
            train=("train.csv",),
            dev=("val.csv",),
            columns=_SWAG,
        ),
        LabelledTask(
            name="cosmosqa",
            kind="choices",
            metrics=("accuracy",),
            train=("train.csv",),
            dev=("valid.csv",),
            columns=_COSMOS,
        ),
        LabelledTask(
            name="conll2003",
            kind="tags",
            metrics=("entity_f1", "accuracy"),
            train=("eng.train", "train.txt"),
            dev=("eng.testa", "valid.txt"),
            layout="conll",
        ),
        LabelledTask(
            name="wikigold",
            kind="tags",
            metrics=("entity_f1", "accuracy"),
            train=("wikigold.conll.txt",),
            dev=(),
            layout="conll",
            dev_share=0.2,  # no split is published
        ),
        LabelledTask(
            name="wnut17",
            kind="tags",
            metrics=("entity_f1", "accuracy"),
            train=("wnut17train.conll", "train/wnut17train.conll"),
            dev=("emerging.dev.conll", "dev/emerging.dev.conll"),
            layout="conll",
        ),
    )
}  # fmt: skip
METRICS: dict[TaskKind, tuple[str, ...]] = {
    "classification": ("accuracy", "macro_f1"),
    "regression": ("pearson", "spearman"),
    "choices": ("accuracy",),
    "tags": ("entity_f1", "accuracy"),
    "spans": ("f1", "exact"),
}
"""Metrics of a user's own tasks, by kind."""


def as_fetched(task: LabelledTask) -> LabelledTask:
    """A task whose files are those that `hub.fetch_task` writes, and which has no test files."""
    source = HUB[task.name]
    train, dev, *more = FILES[: len(source.splits)]
    return replace(
        task, layout="table", columns=source.columns, dev_columns=None, tests=(),
        train=(train,), dev=(dev,), more_dev=tuple(more),
    )  # fmt: skip


def is_published(task: LabelledTask) -> bool:
    """False for a user's own files."""
    return task.name in TASKS


def read_task(
    task: LabelledTask, train: Path, dev: Path | None, more_dev: tuple[Path, ...],
    dev_share: float, train_rows: int = 0,
) -> TaskData:  # fmt: skip
    """The examples for training and scoring.

    train_rows: keep only so many training examples, from the start; 0: all. The labels are still
    those of the whole file, so that few-shot scores have the same classes at every number of rows.
    dev: None if `dev_share` of the training file is for development, see `divide_examples`. Raises
    DataError for a file that does not fit the task, or has too few groups or labels to be divided.
    """
    first = read_split(task, train, task.columns)
    labels = task.labels
    if not labels and task.kind in ("classification", "tags"):
        labels = labels_of(first.examples)
    columns = task.dev_columns or task.columns
    kept = slice(train_rows or None)
    if dev is None:
        # divided before it is cut: development is the same at every --train-rows
        training, held_out = divide_examples(first.examples, dev_share)
        if not training or not held_out:
            groups = len({example.group or index for index, example in enumerate(first.examples)})
            raise DataError(
                f"{train}: no share of {len(first.examples):,} examples in {groups:,} groups can "
                "be for development while every label stays in training; give --dev FILE"
            )
        trained = replace(first, examples=training[kept])
        return TaskData(trained, Split(train, held_out), (), labels, is_divided=True)
    others = tuple(read_split(task, path, columns) for path in more_dev)
    first = replace(first, examples=first.examples[kept])
    return TaskData(first, read_split(task, dev, columns), others, labels)


def read_split(task: LabelledTask, path: Path, columns: TableColumns) -> Split:
    """The examples of one file, see `read_examples`."""
    if is_published(task) and not path.exists():
        raise DataError(f"{path} does not exist; give the files of {task.name} as published")
    table = read_examples(path, columns, task.kind, task.layout, is_published=is_published(task))
    return Split(path, table.examples, table.skipped_lines, table.unlabelled, table.taken)


def read_tests(task: LabelledTask, directory: Path) -> dict[str, list[Example]]:
    """The examples of each test file that the directory has, by the name of its submission.

    Files with other columns are skipped. Raises DataError for one that cannot be read.
    """
    found = {}
    for test in task.tests:
        path = directory / test.name
        if path.exists() and set(test.columns.texts) <= set(_header(path)):
            found[test.submission] = read_split(task, path, test.columns).examples
    return found


def _header(path: Path) -> list[str]:
    # only names are compared: read_split refuses what is not Unicode
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        return file.readline().rstrip("\r\n").split("\t")


def scored_by_tags(task: LabelledTask, tags: Sequence[str]) -> LabelledTask:
    """The task; without entities (parts of speech, say) it is scored only by accuracy.

    tags: those of training. Raises DataError if a published task has tags without entities.
    """
    other = next((tag for tag in tags if not CHUNK_TAG.fullmatch(tag)), None)
    if task.kind != "tags" or other is None:
        return task
    if is_published(task):
        raise DataError(
            f"tag {other!r} of {task.name} is neither O nor B-, I-, E- or S- and a type; give its "
            "files as published"
        )
    return replace(task, metrics=("accuracy",))


def find_file(directory: Path, names: tuple[str, ...], task: LabelledTask) -> Path:
    """The first of the names that exists, compressed or not. Raises DataError if none does."""
    for name in names:
        for ending in ("", *(f".{compression}" for compression in MAGIC)):
            if (path := directory / f"{name}{ending}").exists():
                return path
    raise DataError(
        f"{directory} has none of {', '.join(names)}, the files of {task.name} as published; give "
        "the folder with --data, or the file with --train and --dev"
    )
