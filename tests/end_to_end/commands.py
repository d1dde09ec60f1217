"""Runs rows of the tables of commands: command lines as users type them, from outside.

A row runs in a folder of its own. Each word of a command line that names a text (`texts.py`) or a
preparation (`features.py`) is a link to it there; a preparation is itself command lines, which run
once per test session, whichever row needs it first. So a row shows all that it depends on.

Lines start with a command of `pipeline`, with `torchrun N` before one for N ranks, with `mpiexec N`
for N MPI processes, or with any other program. Variables may come first, as in a shell.
"""

import functools
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.end_to_end import texts
from tests.launching import process
from tests.launching.shared import build_once

ROOT = Path(__file__).parents[2]
BESIDE = Path(sys.executable).parent
"""The folder of this environment's programs."""
FORKED = (sys.executable, "-S", "-E", ROOT / "tests" / "launching" / "stand_in.py")
"""Python for mpiexec to start, see stand_in.py."""
PROGRAMS = ("tenfold", *sorted(path.stem for path in (ROOT / "pipeline").glob("[a-z]*.py")))
NOTHING = "nothing is written"
"""A fact: the row leaves no file."""

Fact = str | tuple[str, str] | tuple[str, str, Any]
"""What must hold after the last line of a row:

    "WORD"                  it prints this
    ("FILE", "WORD")        the file contains this; a folder: it has a file of this name
    ("FILE", "a.0.b", X)    this value in a JSON file (of JSON lines: in the last line), a column in
                            a Parquet or Arrow file, or the number of rows or lines ("rows"); "-" is
                            what the command prints. "a.#" is the number of items of a, and "a.*.b"
                            that of each. A pair is a range, both ends included; a float equals to
                            1e-4.

FILE may be a glob for one file.
"""


@dataclass(frozen=True)
class Row:
    """A feature: command lines, and what must hold then."""

    name: str
    lines: tuple[str, ...]
    facts: tuple[Fact, ...]
    code: int
    """Exit code of the last line; those before it end with 0."""
    goes: bool
    """The feature will be dropped; then so is the row."""
    slow: bool
    """Only `make test-all` runs it."""


def row(
    name: str, lines: str, *facts: Fact, code: int = 0, goes: bool = False, slow: bool = False
) -> Row:
    """A row; lines: command lines, one or several."""
    split = tuple(line.strip() for line in lines.replace("\\\n", " ").strip().splitlines())
    return Row(name, split, facts, code, goes, slow)


class Commands:
    """Runs command lines in folders with links to texts and preparations."""

    def __init__(self, factory: pytest.TempPathFactory, preparations: Mapping[str, str]) -> None:
        """preparations: command lines that make a file or folder, by its name."""
        self._factory = factory
        self._preparations = {name: row(name, lines) for name, lines in preparations.items()}

    def run(self, lines: tuple[str, ...], folder: Path) -> subprocess.CompletedProcess[str]:
        """Run lines in a folder; the last one's result. Those before it must end with 0."""
        for line in lines:
            self.link(line, folder)
        for line in lines[:-1]:
            done = run_line(line, folder)
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return run_line(lines[-1], folder)

    def link(self, line: str, folder: Path) -> None:
        """Link what a line names into a folder."""
        for name in self.needs(line):
            self._link(name, folder)

    def needs(self, line: str) -> list[str]:
        """Texts and preparations that a line names."""
        parts = (part for word in shlex.split(line) for part in re.split("[=:]", word))
        names = (part.removeprefix("./").split("/")[0] for part in parts)
        return [name for name in names if name in self._preparations or name in texts.TEXTS]

    def _link(self, name: str, folder: Path) -> None:
        """Link a text or preparation into a folder, and what that needs in turn."""
        if (folder / name).exists():
            return
        if name in texts.TEXTS:
            made = build_once(self._factory, "features-texts", texts.write) / name
        else:
            for need in self._needs_of(name):
                self._link(need, folder)
            build = functools.partial(self._prepare, name)
            made = build_once(self._factory, f"features-{name}", build) / name
        (folder / name).symlink_to(made)

    def _needs_of(self, name: str) -> list[str]:
        lines = self._preparations[name].lines
        return [need for line in lines for need in self.needs(line) if need != name]

    def _prepare(self, name: str, folder: Path) -> None:
        lines = self._preparations[name].lines
        for need in self._needs_of(name):
            self._link(need, folder)
        for line in lines:
            done = run_line(line, folder)
            assert done.returncode == 0, f"preparing {name}: {line}\n{done.stdout}{done.stderr}"


def run_line(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command line in a folder."""
    words = [found for word in shlex.split(line) for found in _expand(word, folder)]
    environment = os.environ | {
        "TENFOLD_ROOT": str(folder / "root"),
        "OMP_NUM_THREADS": "1",
        "PATH": f"{BESIDE}:{os.environ['PATH']}",
        "TENFOLD_TEST_PYTHON": str(process.quick_python()),
    }
    while re.match(r"[A-Z_]+=", words[0]):
        name, _, value = words.pop(0).partition("=")
        environment[name] = value
    command: list[object] = [*words]
    if words[0] in ("torchrun", "mpiexec"):
        program, count, name, *rest = words
        ours = ["-m", f"pipeline.{name}", *rest]
        ranks = [sys.executable, "-m", "tests.launching.ranks", count]
        mpi = [BESIDE / "mpiexec", "-n", count, *FORKED]
        command = [*(ranks if program == "torchrun" else mpi), *ours]
    elif words[0] in PROGRAMS:
        command = [sys.executable, "-m", f"pipeline.{words[0]}", *words[1:]]
    return process.run(command, cwd=folder, env=environment, timeout=300)


def _expand(word: str, folder: Path) -> list[str]:
    """The files of a glob, or the word."""
    found = sorted(folder.glob(word)) if "*" in word and not word.startswith("/") else []
    return [path.relative_to(folder).as_posix() for path in found] or [word]


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of every file and folder, through links to preparations too."""
    found = {}
    for path, folders, names in os.walk(folder, followlinks=True):
        for name in (*folders, *names):
            about = (Path(path) / name).lstat()
            found[f"{path}/{name}"] = (about.st_size, about.st_mtime_ns)
    return found


def check(fact: Fact, done: subprocess.CompletedProcess[str], folder: Path) -> None:
    """Assert a fact; done: the last line."""
    match fact:
        case str(word):
            if word == NOTHING:
                left = [path.name for path in folder.iterdir() if not path.is_symlink()]
                assert not left, f"written: {left}"
            else:
                assert word in done.stdout + done.stderr, done.stdout + done.stderr
        case (str(name), str(word)):
            path = _the_file(folder, name)
            if path.is_dir():
                assert (path / word).exists(), [found.name for found in path.iterdir()]
            else:
                content = path.read_bytes()
                assert word.encode() in content, f"{name} has no {word!r}: {content[:2000]!r}"
        case (str(name), str(key), expected):
            content = json.loads(done.stdout) if name == "-" else _values(_the_file(folder, name))
            found = _value(content, key.split("."))
            if isinstance(expected, tuple):
                low, high = expected
                assert low <= found <= high, f"{name}: {key} is {found}, not in {expected}"
            elif isinstance(expected, float):
                assert found == pytest.approx(expected, rel=1e-4), f"{name}: {key} is {found}"
            else:
                assert found == expected, f"{name}: {key} is {found}, not {expected}"
        case _:
            raise AssertionError(fact)


def _the_file(folder: Path, name: str) -> Path:
    paths = sorted(folder.glob(name)) if "*" in name else [folder / name]
    assert len(paths) == 1 and paths[0].exists(), f"{name}: {sorted(files(folder))}"
    return paths[0]


def _values(path: Path) -> Any:
    if path.suffix in (".parquet", ".arrow"):
        arrow = path.suffix == ".arrow"
        table = pa.ipc.open_file(path).read_all() if arrow else pq.read_table(path)
        return {"rows": len(table)} | table.to_pydict()
    if path.suffix == ".jsonl":
        lines = path.read_text().splitlines()
        return {"rows": len(lines)} | json.loads(lines[-1])
    return json.loads(path.read_text())


def _value(content: Any, keys: list[str]) -> Any:
    for place, key in enumerate(keys):
        if key == "#":
            return len(content)
        if key == "*":
            items = content.values() if isinstance(content, dict) else content
            return [_value(item, keys[place + 1 :]) for item in items]
        content = content[int(key)] if isinstance(content, list) else content[key]
    return content


def parameters(rows: Sequence[Row]) -> list[Any]:
    """Rows as parameters of a test, by name."""
    return [pytest.param(each, id=each.name, marks=[pytest.mark.slow] * each.slow) for each in rows]
