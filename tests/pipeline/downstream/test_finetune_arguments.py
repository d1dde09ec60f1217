"""Options that contradict each other, in one line."""

import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.base.errors import ConfigError
from pipeline.downstream import finetune_arguments
from pipeline.downstream.finetune_arguments import apply_changes, choose_part, choose_task
from pipeline.downstream.protocols import BERT, ELECTRA

Parse = Callable[[str], Namespace]


@pytest.fixture
def parse(monkeypatch: pytest.MonkeyPatch) -> Parse:
    def run(words: str) -> Namespace:
        given = ["finetune", "model", "--output", "o", *words.replace("COLUMNS", COLUMNS).split()]
        monkeypatch.setattr(sys, "argv", [word.strip("'") for word in given])
        return finetune_arguments.parse_finetune()

    return run


COLUMNS = "--text a --target b"


def test_contradictions(parse: Parse) -> None:
    for words, said in {
        "--task sst3": "sst3 .* cola",
        "--task sst2 --text a": "columns of its own",
        "--task spans COLUMNS": "spans takes 2",
        "--task tags --choices a": "--choices goes",
        "--task tags --text a --target a": "of --text too",
        "--task tags COLUMNS --answer-start c": "spans, not",
        "--task tags COLUMNS --group c": "no effect",
        "--task sst2 --labels 0 1": "columns of its own",
        "--task regression COLUMNS --labels 0 -1": "goes",
        "--task tags --train a --labels O O": "'O' 'O' must",
        "--task sst2 --group c": "columns of its own",
        "--task sst2": "with --data",
        "--task sst2 --train a": "--dev FILE or --dev-share",
        "--task sst2 --train a --dev-share 2": "from 0 to below 1",
        "--task sst2 --dev a --dev-share 0.1": "exclude",
        "--task tags COLUMNS --data d": "needs --train FILE",
        "--task sst2 --fetch": "in --data DIR",
        "--task tags --data d --fetch": "a published task",
        "--task wikigold --data d --fetch": "--fetch knows cola, sst2",
        "--task sst2 --part 6/5": "6/5 is not I/N",
    }.items():
        with pytest.raises(ConfigError, match=said):
            arguments = parse(words)
            choose_part(arguments)
            finetune_arguments.choose_task_files(arguments, choose_task(arguments))


def test_tasks_of_a_user(parse: Parse) -> None:
    arguments = parse("--task classification --train a --dev b --text x y --target z")
    task = choose_task(arguments)
    assert (task.columns.texts, task.columns.label) == (("x", "y"), "z")
    assert task.metrics == ("accuracy", "macro_f1")
    files = finetune_arguments.choose_task_files(arguments, task)
    assert files == (Path("a"), Path("b"), ())
    named = choose_task(parse("--task tags --train a --labels - -1 ''"))
    assert (named.layout, named.labels) == ("", ("-", "-1", ""))


def test_numbers(parse: Parse, monkeypatch: pytest.MonkeyPatch) -> None:
    found = apply_changes(BERT, parse("--task sst2 --epochs 2 --learning-rate 1e-3"))
    assert (found.epochs, found.peak_lr, found.points()) == (2, 1e-3, [found])
    assert len(apply_changes(BERT, parse("--task sst2 --grid published")).points()) == 4
    assert found.precision == "fp32"
    assert apply_changes(BERT, parse("--task sst2 --bf16")).precision == "bf16"
    with pytest.raises(ConfigError, match="Clark"):
        apply_changes(ELECTRA, parse("--task sst2 --grid published"))
    for option, value in (("rows", 0), ("length", 15), ("epochs", "inf"), ("learning-rate", "nan")):
        with pytest.raises(ConfigError, match=f"--{option} must .*, got {value}"):
            apply_changes(BERT, parse(f"--task sst2 --{option} {value}"))
    assert choose_part(parse("--task sst2 --part 2/5")) == (1, 5)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert choose_part(parse("--task sst2")) == (1, 2)
