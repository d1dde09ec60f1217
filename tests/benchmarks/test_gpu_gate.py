"""The GPU gate runs from end to end without a GPU; its figures there mean nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch

from tests.benchmarks.gpu_gate import measure
from tests.benchmarks.gpu_parts import Gate
from tests.launching import process

GATE = [sys.executable, "-m", "tests.benchmarks.gpu_gate"]


def gate(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return process.run([*GATE, *arguments], env=os.environ | environment)


def test_dry_run(prepared: Path, tmp_path: Path) -> None:
    """Every part works, and the section is appended as it is printed."""
    results = tmp_path / "RESULTS.md"
    results.write_text("# Results\n")
    result = gate("--dry-run", "--shards", prepared, "--append", results)
    assert result.returncode == 0, result.stderr
    assert "FAILED" not in result.stdout and result.stdout.count("\n### ") == 6
    assert "DRY RUN" in result.stdout
    assert results.read_text() == f"# Results\n\n{result.stdout.removesuffix(chr(10))}"


def test_without_a_gpu() -> None:
    result = gate(CUDA_VISIBLE_DEVICES="")
    assert result.returncode == 2 and result.stdout == ""
    assert (
        result.stderr.startswith("error: PyTorch finds no GPU") and result.stderr.count("\n") == 1
    )


def test_a_failing_part_does_not_end_the_rest() -> None:
    def fails(gate: Gate) -> str:
        raise RuntimeError("no such kernel\nand more")

    here = Gate(
        device=torch.device("cpu"), recipes=(), micro_batches=(), rows=1, batch=1, steps=1,
        repeats=1, shards=Path(), deadline=time.perf_counter() + 60,
    )  # fmt: skip
    sections, lost = measure(here, {"A": fails, "B": lambda gate: "fine"})
    assert sections[0].endswith("FAILED: RuntimeError: no such kernel") and lost == ["A"]
    assert sections[1].endswith("fine")
    late = replace(here, deadline=time.perf_counter())
    assert measure(late, {"B": lambda gate: "fine"}) == (["### B\n\nSkipped: no time."], ["B"])
