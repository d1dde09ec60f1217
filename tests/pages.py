"""The README files of the checkout: their blocks of code, and the commands in them.

The language of a block determines how it is tested:

    console   commands that a test runs, a `$` before each
    bash      commands for a cluster, an image or a large corpus: parsed, not run
    python    programs that a test runs
    text      what a command prints
"""

import argparse
import importlib
import importlib.util
import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

ROOT = Path(__file__).parents[1]
FIRST = "README.md"
"""The first page; the files that its commands write are there for all others."""

OTHERS = ("onnxruntime", "sentence_transformers")
"""Packages of programs in the pages that `make venv` does not install."""


@dataclass(frozen=True, slots=True)
class Page:
    """One README file."""

    name: str
    """Its path in the checkout."""
    text: str

    @property
    def folder(self) -> Path:
        """The folder that its links are relative to."""
        return (ROOT / self.name).parent

    def blocks(self, language: str) -> list[str]:
        """The blocks of code in `language`."""
        return re.findall(rf"^```{language}\n(.*?)^```$", self.text, re.M | re.S)

    def commands(self, language: str) -> list[str]:
        """The commands in the blocks of `language`, one line each."""
        joined = "".join(self.blocks(language)).replace("\\\n", " ")
        lines = [line for line in joined.splitlines() if line.strip()]
        if language == "console":
            assert all(line.startswith("$ ") for line in lines), f"{self.name}: a line without $"
            lines = [line[2:] for line in lines]
        return lines

    def spans(self) -> list[str]:
        """The inline code, between single backquotes."""
        prose = re.sub(r"^```.*?^```$", "", self.text, flags=re.M | re.S)
        return [" ".join(span.split()) for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", prose)]


def read_pages() -> dict[str, Page]:
    """README files of the checkout by path, the first page first, and RELEASES.md and USING.md."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*README.md",
         "*RELEASES.md", "*USING.md"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    listed.sort(key=lambda name: (name != FIRST, name))
    return {name: Page(name, (ROOT / name).read_text(encoding="utf-8")) for name in listed}


def expand(command: str, directory: Path) -> list[str]:
    """The words of a command as the shell passes them, globs replaced by files."""
    result = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {command}"],
        cwd=directory, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return result.stdout.split("\0")[:-1]


def missing_packages(program: str) -> list[str]:
    """The packages of `OTHERS` that a program imports and this environment lacks."""
    return [
        name
        for name in OTHERS
        if re.search(rf"^(?:import|from) {name}\b", program, re.M)
        and importlib.util.find_spec(name) is None
    ]


class _Parsed(Exception):
    """Carries the result of a command's parser out of the command."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        super().__init__()
        self.arguments = arguments


def parse(words: list[str]) -> argparse.Namespace:
    """The parsed arguments of `python -m MODULE ARGUMENTS...`, given without `python -m`.

    The command itself ends there: it reads and writes nothing.
    """
    original = argparse.ArgumentParser.parse_args

    def stop(parser: argparse.ArgumentParser, *given: Any, **options: Any) -> None:
        raise _Parsed(original(parser, *given, **options))

    main = importlib.import_module(words[0]).main
    with (
        patch.object(argparse.ArgumentParser, "parse_args", stop),
        patch("sys.argv", [words[0], *words[1:]]),
    ):
        try:
            main()
        except _Parsed as parsed:
            return parsed.arguments
    raise AssertionError(f"{words[0]} parses no arguments")


def inner_command(words: list[str]) -> list[str]:
    """The module of `pipeline` that a command starts and its arguments; empty if there is none."""
    for flag in ("-m", "--module"):
        for place in (place for place, word in enumerate(words) if word == flag):
            if words[place + 1].startswith("pipeline."):
                return words[place + 1 :]
    return []


def split(command: str) -> list[str]:
    """The words of a command, without a comment, variables and globs as they are."""
    return shlex.split(command, comments=True)
