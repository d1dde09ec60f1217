"""Published tasks from the Hugging Face Hub, whose Parquet files become JSON lines.

A file appears once it is complete, so an interrupted fetch continues with the next file, and nodes
without a network read what a node with one has fetched.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.base.errors import ConfigError
from pipeline.base.files import make_directory, one_at_a_time, whole_file
from pipeline.base.typed_json import as_json
from pipeline.downstream.reading.labelled_files import Record
from pipeline.downstream.reading.published import filled
from pipeline.downstream.reading.tables import TableColumns
from pipeline.ingest.documents.parquet import read_table_rows
from pipeline.remote.http import ask_for_network
from pipeline.remote.hub import Repository, download, list_files

PARQUET = "refs/convert/parquet"
"""The Hub's own conversion of repositories that have a script."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HubTask:
    """Place of a task on the Hub, as Parquet."""

    repository: str
    splits: tuple[str, ...]
    """Files of training, of development, and of further development sets."""
    columns: TableColumns
    revision: str = "main"
    labels: tuple[str, ...] = ()
    """Names of the label's numbers; empty if published files have the numbers."""
    change: Callable[[Record], Record] = dict  # a copy, as names replace numbers in it
    """Turns a record of the Hub into one with `columns`."""


def _flat_race(record: Record) -> Record:
    """The options in the question's gap, or after it, as `read_race` reads the published files."""
    options = [filled(record["question"], option) for option in record["options"]]
    return record | {"options": options}


_GLUE = "nyu-mll/glue"
_PAIR = TableColumns(texts=("sentence1", "sentence2"), label="label", id="idx")
_ENTAILMENT = ("entailment", "not_entailment")  # the Hub's 0 and 1
_SPANS = TableColumns(texts=("question", "context"), label="answers", id="id")
_TAGS = TableColumns(texts=("tokens",), label="ner_tags", id="id")
_ENDINGS = ("ending0", "ending1", "ending2", "ending3")
_ANSWERS = ("answer0", "answer1", "answer2", "answer3")


def _glue(
    name: str, columns: TableColumns, labels: tuple[str, ...] = (),
    splits: tuple[str, ...] = ("train", "validation"),
) -> HubTask:  # fmt: skip
    files = tuple(f"{name}/{split}-*.parquet" for split in splits)
    return HubTask(repository=_GLUE, splits=files, columns=columns, labels=labels)


def _inside_outside(*kinds: str) -> tuple[str, ...]:
    """The tags of these entities in the order of the Hub's numbers."""
    return ("O", *(f"{place}-{kind}" for kind in kinds for place in "BI"))


HUB: dict[str, HubTask] = {
    "cola": _glue("cola", TableColumns(texts=("sentence",), label="label", id="idx")),
    "sst2": _glue("sst2", TableColumns(texts=("sentence",), label="label", id="idx")),
    "mrpc": _glue("mrpc", _PAIR),
    "qqp": _glue(
        "qqp", TableColumns(texts=("question1", "question2"), label="label", id="idx")
    ),
    "stsb": _glue("stsb", _PAIR),
    "mnli": _glue(
        "mnli", TableColumns(texts=("premise", "hypothesis"), label="label", id="idx"),
        ("entailment", "neutral", "contradiction"),  # by the Hub's numbers
        ("train", "validation_matched", "validation_mismatched"),
    ),
    "qnli": _glue(
        "qnli", TableColumns(texts=("question", "sentence"), label="label", id="idx"), _ENTAILMENT
    ),
    "rte": _glue("rte", _PAIR, _ENTAILMENT),
    "wnli": _glue("wnli", _PAIR),
    "squad1": HubTask(
        repository="rajpurkar/squad", columns=_SPANS,
        splits=("plain_text/train-*.parquet", "plain_text/validation-*.parquet"),
    ),
    "squad2": HubTask(
        repository="rajpurkar/squad_v2", columns=_SPANS,
        splits=("squad_v2/train-*.parquet", "squad_v2/validation-*.parquet"),
    ),
    "race": HubTask(
        repository="ehovy/race", change=_flat_race,
        columns=TableColumns(
            texts=("article",), choices=("options",), label="answer", id="example_id"
        ),
        splits=("all/train-*.parquet", "all/validation-*.parquet"),
    ),
    "swag": HubTask(
        repository="allenai/swag",
        columns=TableColumns(texts=("sent1", "sent2"), choices=_ENDINGS, label="label"),
        splits=("regular/train-*.parquet", "regular/validation-*.parquet"),
    ),
    "cosmosqa": HubTask(
        repository="allenai/cosmos_qa", revision=PARQUET,
        columns=TableColumns(
            texts=("context", "question"), choices=_ANSWERS, label="label", id="id"
        ),
        splits=("default/train/*.parquet", "default/validation/*.parquet"),
    ),
    "conll2003": HubTask(
        repository="eriktks/conll2003", revision=PARQUET, columns=_TAGS,
        labels=_inside_outside("PER", "ORG", "LOC", "MISC"),
        splits=("conll2003/train/*.parquet", "conll2003/validation/*.parquet"),
    ),
    "wnut17": HubTask(
        repository="leondz/wnut_17", revision=PARQUET, columns=_TAGS,
        labels=_inside_outside(
            "corporation", "creative-work", "group", "location", "person", "product"
        ),
        splits=("wnut_17/train/*.parquet", "wnut_17/validation/*.parquet"),
    ),
}  # fmt: skip
"""Tasks by their names in `finetune_tasks.TASKS`; wikigold is not there with a split of its own."""
FILES = ("train.jsonl", "dev.jsonl", "dev-2.jsonl")  # in the order of HubTask.splits


def fetch_task(task: str, directory: Path) -> None:
    """Write the files of a task that `directory` lacks.

    Raises ConfigError if the package huggingface_hub is missing or the Hub has no such task,
    DataError if it cannot be reached.
    """
    if task not in HUB:
        raise ConfigError(f"--fetch knows {', '.join(HUB)}, not {task}; give its files by --data")
    source = HUB[task]
    make_directory(directory, "name another --data")
    ask_for_network()
    # elements of a job array start at the same time
    with one_at_a_time(directory / ".lock"):
        for name, split in zip(FILES, source.splits):
            if not (directory / name).exists():
                _fetch(source, split, directory / name, f"{task}'s {name}")


def _fetch(source: HubTask, split: str, path: Path, name: str) -> None:
    repository = Repository(
        kind="dataset", name=source.repository, revision=source.revision,
        shown=f"{name} of {source.repository}",
        instead="or give the published files by --data",
    )  # fmt: skip
    parts = path.parent / f".{path.stem}.parts"
    with whole_file(path) as temporary, temporary.open("w", encoding="utf-8") as lines:
        for part in download(repository, *list_files(repository, split), parts):
            for record in read_table_rows(str(part)):
                lines.write(as_json(_plain(source, record), ensure_ascii=False) + "\n")
    # removed only now, so that an interrupted fetch continues with its parts
    shutil.rmtree(parts, ignore_errors=True)


def _plain(source: HubTask, record: Record) -> Record:
    """A record with names for the label's numbers."""
    found = source.change(record)
    if source.labels:
        value: Any = found[source.columns.label]
        names = source.labels
        found[source.columns.label] = (
            [_name_label(names, tag) for tag in value]
            if isinstance(value, list)
            else _name_label(names, value)
        )
    return found


def _name_label(names: tuple[str, ...], label: int) -> str:
    """The name of a label; numbers without one stay: -1 marks rows without a label."""
    return names[label] if 0 <= label < len(names) else str(label)
