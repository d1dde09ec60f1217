"""The command line of pipeline.finetune; it imports no torch."""

from __future__ import annotations

import argparse
import math
import os
from dataclasses import replace
from pathlib import Path

from pipeline.base.command_line import Parser, add_model_argument, check_least, example_text
from pipeline.base.errors import ConfigError
from pipeline.downstream.finetune_tasks import (
    KINDS,
    METRICS,
    TASKS,
    LabelledTask,
    TaskData,
    TaskKind,
    as_fetched,
    find_file,
    read_task,
)
from pipeline.downstream.protocols import (
    LEAST_LENGTH,
    PROTOCOLS,
    SMALL_WIDTH,
    TuningProtocol,
)
from pipeline.downstream.reading.hub_tasks import fetch_task
from pipeline.downstream.reading.tables import TableColumns

MOST_SEED = 2**31
"""Largest --first-seed; generators take no larger ones."""


def parse_finetune() -> argparse.Namespace:
    """The command line of pipeline.finetune."""
    parser = Parser(
        prog="python -m pipeline.finetune",
        description="Fine-tune a model on a labelled task with several seeds, and print its scores "
        "with their protocol and baselines.",
        epilog=example_text(
            "python -m pipeline.finetune runs/tiny --task sst2 --data glue/SST-2 --output sst2",
            "python -m pipeline.finetune my-model --task rte --data glue/RTE --init-from mnli "
            "--output rte",
            "python -m pipeline.finetune my-model --task classification --train a.tsv --dev b.tsv "
            "\\\n    --text review --target stars --output stars",
        ),
    )
    add_model_argument(parser)
    parser.add_argument(
        "--task",
        required=True,
        metavar="TASK",
        help=f"{', '.join(TASKS)}; or, for files of your own, {', '.join(KINDS)}",
    )
    parser.add_argument(
        "--output",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder for the scores, new or to resume",
    )
    _add_files(parser)
    _add_protocol(parser)
    parser.add_argument(
        "--part",
        default="",
        metavar="I/N",
        help="run only every N-th seed, starting with the I-th, e.g. as an element of a Slurm "
        "array; the last part to finish writes the scores (default: all; under torchrun each rank "
        "is a part)",
    )
    return parser.parse_args()


def _add_files(parser: Parser) -> None:
    """Files and columns."""
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="folder of the task's files as published"
    )
    parser.add_argument(
        "--fetch",
        action="store_true",
        help="download the task from the Hugging Face Hub to --data, as JSON lines; needs a "
        "network once, and pip install '.[hub]'",
    )
    parser.add_argument(
        "--train", type=Path, metavar="FILE", help="training file, instead of the published name"
    )
    parser.add_argument(
        "--dev", type=Path, metavar="FILE", help="development file, instead of the published name"
    )
    parser.add_argument(
        "--dev-share",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="use this share of the training file for development, drawn by a fixed seed and with "
        "the file's shares of labels; articles, passages and --group stay together",
    )
    parser.add_argument(
        "--train-rows",
        type=int,
        default=0,
        metavar="N",
        help="use only the first N training examples, with the labels of the whole file (default: "
        "all)",
    )
    columns = parser.add_argument_group(
        "files of your own",
        "tables with commas, tabs, semicolons or bars, JSON lines, Parquet, Arrow, compressed or "
        "not; for tags also a word and its tags per line, as in CoNLL-U, whose columns have names "
        "or numbers",
    )
    columns.add_argument(
        "--text",
        nargs="+",
        default=[],
        metavar="COLUMN",
        help="one or two texts; spans: question and paragraph; tags: the words",
    )
    columns.add_argument(
        "--target",
        default="",
        metavar="COLUMN",
        help="label, number, index of the right choice, tags (default for a word per line: the "
        "last column), or text of the answer",
    )
    columns.add_argument(
        "--choices", nargs="+", default=[], metavar="COLUMN", help="texts of the choices"
    )
    columns.add_argument(
        "--answer-start",
        default="",
        metavar="COLUMN",
        help="character at which the answer starts (default: its first occurrence in the "
        "paragraph)",
    )
    columns.add_argument(
        "--labels",
        nargs="+",
        default=[],
        metavar="LABEL",
        help="all labels or tags, in this order; needed if '', -, -1 or nan is one, which usually "
        "mark rows without a label (default: those of the training file)",
    )
    columns.add_argument(
        "--group",
        default="",
        metavar="COLUMN",
        help="with --dev-share: keep rows with the same value here, such as an author, together "
        "(default: rows with the same passage)",
    )


def _add_protocol(parser: Parser) -> None:
    """Seeds and hyperparameters."""
    parser.add_argument(
        "--seeds",
        type=int,
        default=5,
        metavar="N",
        help="fine-tunings per point of --grid (default: 5)",
    )
    parser.add_argument(
        "--first-seed",
        type=int,
        default=0,
        metavar="N",
        help="the first seed; the others follow it (default: 0)",
    )
    parser.add_argument(
        "--grid",
        choices=("none", "published"),
        default="none",
        help="try the rates and batch sizes of the paper, and report the best (default: none)",
    )
    parser.add_argument(
        "--init-from",
        type=Path,
        metavar="OUTPUT",
        help="start from the best weights of another fine-tuning, as RTE, MRPC and STS-B do from "
        "MNLI",
    )
    parser.add_argument(
        "--protocol",
        choices=tuple(PROTOCOLS),
        help="whose hyperparameters to use (default: those of the model's family, or small up to a "
        f"width of {SMALL_WIDTH}, except for ELECTRA)",
    )
    parser.add_argument(
        "--baselines",
        choices=("all", "bag", "tfidf", "majority"),
        default="all",
        help="all also fine-tunes a bag of word embeddings and random weights with the same seeds, "
        "and fits TF-IDF of words and word pairs if scikit-learn is installed; bag or tfidf runs "
        "only that baseline, majority trains none (default: all)",
    )
    for option, kind, meaning in (
        ("--epochs", float, "passes over the training examples"),
        ("--learning-rate", float, "peak learning rate (the bag baseline always uses 0.01)"),
        ("--rows", int, "examples per step"),
        ("--length", int, "longest row in tokens"),
    ):
        parser.add_argument(
            option, type=kind, metavar="N", help=f"{meaning} (default: as published)"
        )

    parser.add_argument(
        "--bf16",
        action="store_true",
        help="matrix products of training in bfloat16, the rest in float32: faster on GPUs and on "
        "CPUs with AMX or AVX-512 BF16 (default: all in float32)",
    )


def choose_task(arguments: argparse.Namespace) -> LabelledTask:
    """The published task, or one with the user's columns.

    Fetches it first with --fetch. Raises ConfigError for an unknown name, or columns that are of no
    use; those that are missing are found when the file is read.
    """
    given = (
        arguments.text or arguments.target or arguments.choices or arguments.answer_start
        or arguments.group
    )  # fmt: skip
    if arguments.task in TASKS:
        if given or arguments.labels:
            raise ConfigError(
                f"--task {arguments.task} has columns of its own; drop --text, --target, "
                "--choices, --answer-start, --labels and --group, or give "
                f"--task {TASKS[arguments.task].kind}"
            )
        if not arguments.fetch:
            return TASKS[arguments.task]
        if not arguments.data or arguments.train or arguments.dev:
            raise ConfigError("--fetch keeps the task in --data DIR, without --train and --dev")
        fetch_task(arguments.task, arguments.data)
        return as_fetched(TASKS[arguments.task])
    if arguments.fetch:
        raise ConfigError(f"--fetch goes with a published task, not with --task {arguments.task}")
    kind = next((kind for kind in KINDS if kind == arguments.task), None)
    if kind is None:
        raise ConfigError(
            f"--task {arguments.task} is unknown; known: {', '.join(TASKS)}; or {', '.join(KINDS)}"
        )
    _check_named(kind, arguments.labels)
    columns = TableColumns(
        texts=tuple(arguments.text),
        label=arguments.target,
        choices=tuple(arguments.choices),
        start=arguments.answer_start,
        group=arguments.group,
    )
    _check_columns(kind, arguments)
    return LabelledTask(
        name=kind, kind=kind, metrics=METRICS[kind], train=(), dev=(), layout="",
        columns=columns, labels=tuple(arguments.labels),
    )  # fmt: skip


def _check_columns(kind: TaskKind, arguments: argparse.Namespace) -> None:
    """Raises ConfigError for columns that are too many, or of no use."""
    texts, target = arguments.text, arguments.target
    needed = {"spans": 2, "tags": 1}.get(kind, len(texts))  # other kinds take one or two
    if texts and (len(texts) != needed or needed > 2):
        raise ConfigError(f"--text {' '.join(texts)}: {kind} takes {min(needed, 2)}")
    if target in texts:
        raise ConfigError(f"--target {target} is a column of --text too; it is what is predicted")
    if arguments.choices and kind != "choices":
        raise ConfigError(f"--choices goes with --task choices, not with --task {kind}")
    if arguments.answer_start and kind != "spans":
        raise ConfigError(f"--answer-start goes with --task spans, not with --task {kind}")
    if arguments.group and not arguments.dev_share:
        raise ConfigError(f"--group {arguments.group} has no effect without --dev-share; drop it")


def _check_named(kind: TaskKind, labels: list[str]) -> None:
    """Raises ConfigError for --labels of a task without labels, of fewer than two, or twice."""
    if labels and kind not in ("classification", "tags"):
        raise ConfigError(f"--labels goes with classification and tags, not with --task {kind}")
    if labels and len(set(labels)) < max(2, len(labels)):
        raise ConfigError(f"--labels {' '.join(map(repr, labels))} must be two or more, each once")


def choose_task_files(
    arguments: argparse.Namespace, task: LabelledTask
) -> tuple[Path, Path | None, tuple[Path, ...]]:
    """The training file, the development file (None: part of the training file), further ones.

    Raises ConfigError or DataError for what is missing.
    """
    share = arguments.dev_share
    if not 0 <= share < 1:
        raise ConfigError(f"--dev-share {share} must be from 0 to below 1")
    if share and arguments.dev:
        raise ConfigError(f"--dev-share {share} and --dev {arguments.dev} exclude each other")
    if not arguments.data and not arguments.train:
        raise ConfigError("give the task's folder with --data, or --train and --dev")
    if arguments.train is None and not task.train:
        raise ConfigError(f"--task {task.name} needs --train FILE, and --dev FILE or --dev-share")
    train = arguments.train or find_file(arguments.data, task.train, task)
    if arguments.dev or share:
        # --dev replaces all published development files, MNLI's second one included
        return train, arguments.dev, ()
    if not task.dev:
        if task.dev_share:
            return train, None, ()
        raise ConfigError(f"--task {task.name} needs --dev FILE or --dev-share")
    if arguments.data is None:
        raise ConfigError("give --dev FILE or --dev-share as well")
    more = tuple(arguments.data / name for name in task.more_dev)
    return train, find_file(arguments.data, task.dev, task), more


def read_data(arguments: argparse.Namespace, task: LabelledTask) -> TaskData:
    """The examples, with the first --train-rows of training.

    Raises ConfigError or DataError for counts and files that are of no use.
    """
    check_least(
        ("--seeds", arguments.seeds, 1),
        ("--first-seed", arguments.first_seed, 0),
        ("--train-rows", arguments.train_rows, 0),
    )
    if arguments.first_seed > MOST_SEED:
        raise ConfigError(f"--first-seed {arguments.first_seed} is above {MOST_SEED:,}; lower it")
    train, dev, more = choose_task_files(arguments, task)
    share = arguments.dev_share or task.dev_share
    return read_task(task, train, dev, more, share, arguments.train_rows)


def apply_changes(protocol: TuningProtocol, arguments: argparse.Namespace) -> TuningProtocol:
    """The protocol with the command line's numbers. Raises ConfigError for an illegal one."""
    found = protocol
    if arguments.epochs is not None:
        # max_steps takes precedence, and ALBERT's protocols set it
        found = replace(found, epochs=arguments.epochs, max_steps=0)
    if arguments.learning_rate is not None:
        found = replace(found, peak_lr=arguments.learning_rate)
    if arguments.rows is not None:
        found = replace(found, rows=arguments.rows)
    if arguments.length is not None:
        found = replace(found, length=arguments.length)
    if arguments.bf16:
        found = replace(found, precision="bf16")
    if arguments.grid == "published":
        if arguments.learning_rate is not None or arguments.rows is not None:
            raise ConfigError("--grid published chooses --learning-rate and --rows; drop these")
        if not found.grid:
            raise ConfigError(f"{found.source} has no grid for this task; drop --grid published")
    else:
        found = replace(found, grid=())  # points() would otherwise try the paper's grid
    for option, value in (("--epochs", found.epochs), ("--learning-rate", found.peak_lr)):
        if not 0 < value < math.inf:  # False for NaN, too
            raise ConfigError(f"{option} must be positive, got {value:g}; give a number above 0")
    check_least(("--rows", found.rows, 1), ("--length", found.length, LEAST_LENGTH))
    return found


def choose_part(arguments: argparse.Namespace) -> tuple[int, int]:
    """Number of this process among those that share the jobs, from 0, and how many there are.

    Raises ConfigError unless --part is I/N with I from 1 to N, or if ranks share the jobs already.
    """
    # from the environment: ranks share files, not messages, so there is no process group to ask
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if not arguments.part:
        return int(os.environ.get("RANK", "0")), ranks
    if ranks > 1:
        raise ConfigError(
            f"--part {arguments.part} and {ranks} ranks of torchrun would both share the seeds; "
            "drop --part, or start one process"
        )
    index, _, count = arguments.part.partition("/")
    if not (index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        raise ConfigError(f"--part {arguments.part} is not I/N, e.g. 1/5")
    return int(index) - 1, int(count)
