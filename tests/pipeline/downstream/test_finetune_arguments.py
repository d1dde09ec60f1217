"""Options that contradict each other, in one line."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

import pytest

from pipeline.base.errors import ConfigError
from pipeline.downstream.finetune_arguments import (
    apply_changes,
    choose_part,
    choose_task,
    choose_task_files,
    parse_finetune,
)
from pipeline.downstream.protocols import BERT, ELECTRA


@pytest.fixture
def parse(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    def run(*words: str) -> Namespace:
        monkeypatch.setattr(sys, "argv", ["finetune", "model", "--output", "o", *words])
        return parse_finetune()

    return run


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--task", "sst3"], "--task sst3 is unknown; known: cola"),
        (["--task", "sst2", "--text", "a"], "has columns of its own"),
        (["--task", "spans", "--text", "a", "--target", "b"], "spans takes 2"),
        (["--task", "tags", "--choices", "a"], "--choices goes with --task choices, not with"),
        (["--task", "tags", "--text", "a", "--target", "a"], "is a column of --text too"),
        (["--task", "tags", "--text", "a", "--target", "b", "--answer-start", "c"], "spans, not"),
        (["--task", "tags", "--text", "a", "--target", "b", "--group", "c"], "no effect without"),
        (["--task", "sst2", "--labels", "0", "1"], "has columns of its own"),
        (["--task", "regression", "--text", "a", "--target", "b", "--labels", "0", "-1"], "goes"),
        (["--task", "tags", "--train", "a", "--labels", "O", "O"], "'O' 'O' must be two or more"),
        (["--task", "sst2", "--group", "c"], "has columns of its own"),
        (["--task", "sst2"], "give the task's folder with --data"),
        (["--task", "sst2", "--train", "a"], "give --dev FILE or --dev-share as well"),
        (["--task", "sst2", "--train", "a", "--dev-share", "2"], "must be from 0 to below 1"),
        (["--task", "sst2", "--dev", "a", "--dev-share", "0.1"], "exclude each other"),
        (["--task", "tags", "--text", "a", "--target", "b", "--data", "d"], "needs --train FILE"),
        (["--task", "sst2", "--fetch"], "keeps the task in --data DIR"),
        (["--task", "tags", "--data", "d", "--fetch"], "goes with a published task"),
        (["--task", "wikigold", "--data", "d", "--fetch"], "--fetch knows cola, sst2"),
        (["--task", "sst2", "--part", "6/5"], "--part 6/5 is not I/N"),
    ],
)  # fmt: skip
def test_contradictions(parse, words: list[str], message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ConfigError, match=message):
        arguments = parse(*words)
        choose_part(arguments)
        choose_task_files(arguments, choose_task(arguments))


def test_tasks_of_a_user(parse) -> None:  # type: ignore[no-untyped-def]
    arguments = parse(
        "--task",
        "classification",
        "--train",
        "a",
        "--dev",
        "b",
        "--text",
        "x",
        "y",
        "--target",
        "z",
    )
    task = choose_task(arguments)
    assert (task.columns.texts, task.columns.label, task.metrics) == (
        ("x", "y"),
        "z",
        ("accuracy", "macro_f1"),
    )
    assert choose_task_files(arguments, task) == (Path("a"), Path("b"), ())
    named = choose_task(parse("--task", "tags", "--train", "a", "--labels", "-", "-1", ""))
    assert (named.layout, named.labels) == ("", ("-", "-1", ""))


def test_numbers(parse, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    found = apply_changes(BERT, parse("--task", "sst2", "--epochs", "2", "--learning-rate", "1e-3"))
    assert (found.epochs, found.peak_lr, found.points()) == (2, 1e-3, [found])
    assert len(apply_changes(BERT, parse("--task", "sst2", "--grid", "published")).points()) == 4
    assert found.precision == "fp32"
    assert apply_changes(BERT, parse("--task", "sst2", "--bf16")).precision == "bf16"
    with pytest.raises(ConfigError, match="Clark has no grid"):
        apply_changes(ELECTRA, parse("--task", "sst2", "--grid", "published"))
    for option, value, said in (
        ("--rows", "0", "--rows must be 1 or more, got 0"),
        ("--length", "15", "--length must be 16 or more, got 15"),
        ("--epochs", "inf", "--epochs must be positive, got inf"),
        ("--learning-rate", "nan", "--learning-rate must be positive, got nan"),
    ):
        with pytest.raises(ConfigError, match=said):
            apply_changes(BERT, parse("--task", "sst2", option, value))
    assert choose_part(parse("--task", "sst2", "--part", "2/5")) == (1, 5)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert choose_part(parse("--task", "sst2")) == (1, 2)
