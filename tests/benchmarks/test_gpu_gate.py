"""The GPU gate runs from end to end without a GPU; its figures there mean nothing."""

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.benchmarks import gpu_gate, gpu_parts
from tests.benchmarks.gpu_gate import BUDGET_SECONDS, PARTS, START_SECONDS, Part, measure, say_to
from tests.benchmarks.gpu_parts import Gate
from tests.launching import process


@pytest.fixture
def here() -> Gate:
    return Gate(
        device=torch.device("cpu"), recipes=(), checked=(), sizes=(), rows=1, batch=1,
        steps=1, repeats=1, shards=Path(), deadline=time.perf_counter() + 600,
    )  # fmt: skip


def test_dry_run(prepared: Path, tmp_path: Path) -> None:
    """Every part works, and is appended as it is printed; versions first."""
    results, cache = tmp_path / "RESULTS.md", tmp_path / "cache"
    results.write_text("# Results\n")
    result = process.run(
        [sys.executable, "-m", "tests.benchmarks.gpu_gate", "--dry-run", "--shards", prepared,
         "--append", results, "--cache", cache]
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    titles = [line[4:].partition(" (")[0] for line in result.stdout.splitlines() if "###" in line]
    assert "FAILED" not in result.stdout and titles == [part.title for part in PARTS]
    assert "DRY RUN" in result.stdout and titles[0] == "Matrix products"
    assert 0 < result.stdout.index("torch ") < result.stdout.index("###")
    assert results.read_text() == f"# Results\n\n{result.stdout.removesuffix(chr(10))}"


def test_what_was_measured_is_in_the_file_before_the_next_part_starts(
    here: Gate, tmp_path: Path
) -> None:
    """So it stays if the gate is killed. A part that fails does not end the rest."""
    results = tmp_path / "RESULTS.md"

    def fails(gate: Gate) -> str:
        raise RuntimeError("no such kernel\nand more")

    def fine(gate: Gate) -> str:
        return f"was: {results.read_text()!r}"

    assert measure(here, (Part("A", 20, fails), Part("B", 20, fine)), say_to(results)) == ["A"]
    first, second = results.read_text().split("\n### ")[1:]
    assert first.startswith("A (") and first.endswith("\n\nFAILED: RuntimeError: no such kernel\n")
    assert second.startswith("B (") and "no such kernel" in second


def test_without_a_gpu(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu_gate"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit) as ended:
        gpu_gate.main()
    said = capsys.readouterr()
    assert ended.value.code == 2 and said.out == ""
    assert said.err.startswith("error: PyTorch finds no GPU") and said.err.count("\n") == 1


def test_each_part_has_its_share_of_the_time(here: Gate) -> None:
    """Unused time is left to the next ones; without time a part is skipped."""
    assert START_SECONDS + sum(part.seconds for part in PARTS) <= BUDGET_SECONDS

    deadlines: list[float] = []

    def part(gate: Gate) -> str:
        deadlines.append(gate.deadline)
        return "fine"

    said: list[str] = []
    assert not measure(here, (Part("A", 20, part), Part("B", 30, part)), said.append)
    assert deadlines[1] - deadlines[0] == pytest.approx(30)
    late = replace(here, deadline=time.perf_counter())
    assert measure(late, [Part("B", 20, part)], said.append) == ["B"]
    assert said[2] == "### B\n\nSkipped: no time."


def test_a_missing_package_is_a_version_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(package: str) -> str:
        raise gpu_gate.PackageNotFoundError(package)

    monkeypatch.setattr(gpu_gate, "version", version)
    assert "deepspeed missing, transformers missing" in gpu_gate.heading(torch.device("cpu"))


def test_what_was_compiled_is_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The null GPU's gate does it for real."""
    compiled: list[Any] = [None, (b"kernels " * 1000, None)]
    loaded: list[bytes] = []
    monkeypatch.setattr(torch.compiler, "save_cache_artifacts", lambda: compiled.pop(0))
    monkeypatch.setattr(torch.compiler, "load_cache_artifacts", loaded.append)
    file = tmp_path / "cache"
    gpu_parts.load_cache(file)
    gpu_parts.save_cache(file)  # nothing was compiled
    assert not file.exists()
    gpu_parts.save_cache(file)
    assert file.stat().st_size < 1000
    gpu_parts.load_cache(file)
    assert loaded == [b"kernels " * 1000]
