"""Every command that a command prints after `next:` works as it is printed.

`inspect` and `export` run as they are, `prepare` with --dry-run, which reads all it would read.
"""

import gzip
import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline import export, inspect, prepare
from pipeline.training.announce import finish
from tests.launching.process import ROOT
from tests.pipeline.conftest import Arguments, job
from tests.pipeline.preparing import Call

MAINS: dict[str, Callable[[], None]] = {
    f"pipeline.{module.__name__.rpartition('.')[2]}": module.main
    for module in (export, inspect, prepare)
}
PRINTS = {
    "pipeline/base/command_line.py", "pipeline/data/inspection/inspect_documents.py",
    "pipeline/data/preparation/outcome.py", "pipeline/training/announce.py",
}  # fmt: skip
"""Files that print such lines: a test here is to be added for another one."""
TEXTS = [
    {"text": f"The river {n} is long. It runs to the sea.", "article": f"A {n}."} for n in range(60)
]


def next_of(text: str) -> list[list[str]]:
    """The words of the commands after `next:`."""
    _, _, after = text.partition("next: ")
    lines = [line.strip() for line in after.splitlines()]
    return [shlex.split(line) for line in lines if line.startswith("python -m pipeline.")]


Follow = Callable[..., list[str]]


@pytest.fixture
def follow(call: Call) -> Follow:
    """Runs the commands after `next:`; returns the names of the modules."""

    def follow(text: str) -> list[str]:
        found = next_of(text)
        assert found, text
        for python, option, module, *words in found:
            assert (python, option) == ("python", "-m")
            if module == "pipeline.prepare":
                words.append("--dry-run")
            call(MAINS[module], *words)
        return [module for _, _, module, *_ in found]

    return follow


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a space in its name."""
    folder = tmp_path / "my work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TENFOLD_ROOT", "my data")
    return folder


LINES = "".join(json.dumps(row) + "\n" for row in TEXTS).encode()


def test_all_commands_that_print_such_lines_are_here() -> None:
    found = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "pipeline").rglob("*.py")
        if "next_lines(" in path.read_text() or '"next: ' in path.read_text()
    }
    assert found == PRINTS


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("my text.jsonl", []), ("news.jsonl.gz", []),
        ("sample", []),  # a folder with the name of a corpus
        ("a folder", ["--filter", "max-words=50"]), ("-odd.parquet", ["--text-field", "article"]),
        ("books.txt", ["--plain-text", "lines"]), ("wiki.jsonl", ["--corpus", "wikipedia"]),
        ("it's.jsonl", []),
    ],
)  # fmt: skip
def test_text(name: str, options: list[str], place: Path, call: Call, follow: Follow) -> None:
    path = place / name
    if "." not in name:
        path.mkdir()
        (path / "part 1.jsonl").write_bytes(LINES)
    elif name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(TEXTS), path)
    elif name.endswith(".txt"):
        path.write_text("\n".join(row["text"] for row in TEXTS))
    else:
        path.write_bytes(gzip.compress(LINES) if name.endswith(".gz") else LINES)
    given = {"-odd.parquet": f"./{name}", "it's.jsonl": path}.get(name, name)
    said = call(inspect.main, given, "--samples", 0, *options)
    assert follow(said) == ["pipeline.prepare"]
    if name == "a folder":
        assert "next:" not in call(inspect.main, path, "--filter", "min-words=500")


def test_extracted_documents(place: Path, call: Call, follow: Follow) -> None:
    text = "The river is long, and it runs to the sea. " * 20
    (place / "page.html").write_text(f"<html><body><p>{text}</p></body></html>")
    words = ["--recipe", "roberta_tiny", "--output", "shards", "--workers", 1]
    follow(call(prepare.main, "--corpus", "page.html", *words))
    assert follow(call(inspect.main, "my data/documents")) == ["pipeline.prepare"]


def test_a_run_that_ends(
    trained: Path, arguments: Arguments, place: Path, monkeypatch: pytest.MonkeyPatch,
    follow: Follow, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    run = place / "my runs" / "one run"
    run.parent.mkdir()
    shutil.copytree(trained / "1x16", run)
    trainer = cast("Any", SimpleNamespace(progress=SimpleNamespace(step=20), metrics=None))
    finish(job(monkeypatch, arguments(run)), trainer, interrupted=False)
    assert follow(capsys.readouterr().out) == ["pipeline.export"]
    assert (run.parent / "one run-export" / "model.safetensors").exists()
