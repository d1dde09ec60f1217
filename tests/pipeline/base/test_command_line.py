"""What the commands share: the choice of settings, and help that shows examples which parse."""

import re
import shlex
from pathlib import Path

import pytest

from pipeline.base.command_line import (
    Parser,
    add_input_arguments,
    add_part_argument,
    add_workers_argument,
    check_least,
    example_text,
    next_lines,
    unused_path,
)
from pipeline.base.errors import ConfigError
from pipeline.config.settings import override
from pipeline.recipes import recipe
from tests.conftest import Command
from tests.pages import inner_command, parse

COMMANDS = ("train_tokenizer", "prepare", "inspect", "train", "export", "evaluate")


def test_counts_have_a_least_value() -> None:
    check_least(("--seeds", 1, 1), ("--steps", 0, 0), ("--nodes", 3, 2))
    with pytest.raises(ConfigError, match=r"^--steps must be 0 or more, got -1$"):
        check_least(("--seeds", 1, 1), ("--steps", -1, 0))


def test_workers_and_parts() -> None:
    parser = Parser(prog="tool")
    add_workers_argument(parser)
    add_part_argument(parser)
    for words, found in (("", (None, None)), ("--workers 3 --part 2/4", (3, (2, 4)))):
        given = parser.parse_args(words.split())
        assert (given.workers, given.part) == found
    for word, part, message in (
        ("--workers", "0", "must be positive, got 0"),
        ("--workers", "x", "must be positive, got x"),
        *(
            ("--part", part, f"{part}: name one of N parts")
            for part in ("0/4", "5/4", "1", "1/0", "a/b", "-1/4", "")
        ),
    ):
        with pytest.raises(ConfigError, match=f"^{word} {message}"):
            parser.parse_args([f"{word}={part}"])
    with pytest.raises(ConfigError, match=r"unrecognized arguments: --nope; see tool --help"):
        parser.parse_args(["--nope"])


def test_one_corpus_a_command() -> None:
    """All of --input would be read under the last name."""
    parser = Parser(prog="tool")
    add_input_arguments(parser)
    assert parser.parse_args(["--corpus", "a", "--corpus=a"]).corpus == "a"
    with pytest.raises(ConfigError, match="books and stories"):
        parser.parse_args(["--corpus=books", "--input", "x", "--corpus=stories", "--input=y"])


def test_next_commands_can_be_pasted(tmp_path: Path) -> None:
    lines = next_lines(("inspect", Path("-a b"), "--verify"), ["export", tmp_path, "--step", 3])
    assert lines == [
        "next: python -m pipeline.inspect './-a b' --verify",
        f"      python -m pipeline.export {tmp_path} --step 3",
    ]
    assert next_lines() == []


def test_an_output_that_is_new(tmp_path: Path) -> None:
    for unused in ("out", "out-2", "out-3"):
        assert unused_path(tmp_path / "out") == tmp_path / unused
        (tmp_path / unused).mkdir()


def test_help_wraps_paragraphs_and_keeps_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    for columns, widest in ((80, 78), (200, 98)):
        monkeypatch.setenv("COLUMNS", str(columns))
        parser = Parser(
            prog="tool", description="word " * 50, epilog=example_text("tool --one", "tool --two")
        )
        text = parser.format_help()
        assert widest - 5 < max(map(len, text.splitlines())) <= widest
        assert text.endswith("examples:\n  tool --one\n  tool --two\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_and_its_examples_parse(name: str, command: Command) -> None:
    text = command(name, "--help", COLUMNS="200").stdout
    assert max(map(len, text.splitlines())) <= 100
    examples = text.partition("\nexamples:\n")[2].replace("\\\n", " ").splitlines()
    assert 2 <= len(examples) <= 4
    for example in examples:
        called = inner_command(shlex.split(example))
        assert called[0] == f"pipeline.{name}", example
        arguments = parse(called)
        for path in re.findall(r"\S+\.(?:py|md)\b", example):
            assert Path(path).exists(), path
        chosen = getattr(arguments, "recipe", None)
        if chosen and "/" not in chosen:  # the others are models that are not here
            override(recipe(chosen), getattr(arguments, "set", []))
