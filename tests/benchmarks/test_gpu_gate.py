"""The GPU gate runs from end to end without a GPU; its figures there mean nothing."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.benchmarks import gpu_gate
from tests.benchmarks.gpu_gate import BUDGET_SECONDS, PARTS, START_SECONDS, Part, measure
from tests.benchmarks.gpu_parts import Gate
from tests.launching import process
from tests.pipeline.conftest import started
from tests.pipeline.test_train import wait_for

GATE = [sys.executable, "-m", "tests.benchmarks.gpu_gate"]


def gate(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return process.run([*GATE, *arguments], env=os.environ | environment)


@pytest.fixture
def here() -> Gate:
    return Gate(
        device=torch.device("cpu"), recipes=(), sizes=(), rows=1, batch=1, steps=1,
        repeats=1, shards=Path(), deadline=time.perf_counter() + 600,
    )  # fmt: skip


def test_dry_run(prepared: Path, tmp_path: Path) -> None:
    """Every part works, and is appended as it is printed; versions first."""
    results = tmp_path / "RESULTS.md"
    results.write_text("# Results\n")
    cache = tmp_path / "cache"
    result = gate("--dry-run", "--shards", prepared, "--append", results, "--cache", cache)
    assert result.returncode == 0, result.stderr
    titles = [line[4:].partition(" (")[0] for line in result.stdout.splitlines() if "###" in line]
    assert "FAILED" not in result.stdout and titles == [part.title for part in PARTS]
    assert "DRY RUN" in result.stdout and titles[0] == "Matrix products"
    assert 0 < result.stdout.index("torch ") < result.stdout.index("###")
    assert results.read_text() == f"# Results\n\n{result.stdout.removesuffix(chr(10))}"


def test_a_killed_gate_leaves_what_was_measured(prepared: Path, tmp_path: Path) -> None:
    """Killed in its third part of five, at toy size."""
    script, results = tmp_path / "script.py", tmp_path / "RESULTS.md"
    script.write_text(
        "import time\nfrom pathlib import Path\nfrom tests.benchmarks import gpu_gate\n"
        "from tests.benchmarks.gpu_gate import Part\n"
        f"def hangs(gate):\n    Path({str(tmp_path / 'third')!r}).touch()\n    time.sleep(60)\n"
        "first = gpu_gate.PARTS[0]\n"
        "gpu_gate.PARTS = (first, Part('B', 9, lambda gate: 'fine'), Part('C', 60, hangs))\n"
        "gpu_gate.main()\n"
    )
    with started(
        sys.executable, script, "--dry-run", "--shards", prepared, "--append", results
    ) as running:
        wait_for(tmp_path / "third", running)
        running.send_signal(signal.SIGKILL)
        output, _ = running.communicate(timeout=60)
    assert results.read_text() == f"\n{output.removesuffix(chr(10))}"
    assert output.startswith("## GPU gate") and "| whole step |" in output
    assert output.endswith("\n\nfine\n\n") and "### C" not in output


def test_without_a_gpu() -> None:
    result = gate(CUDA_VISIBLE_DEVICES="")
    assert result.returncode == 2 and result.stdout == ""
    assert (
        result.stderr.startswith("error: PyTorch finds no GPU") and result.stderr.count("\n") == 1
    )


def test_a_failing_part_does_not_end_the_rest(here: Gate) -> None:
    def fails(gate: Gate) -> str:
        raise RuntimeError("no such kernel\nand more")

    said: list[str] = []
    parts = (Part("A", 20, fails), Part("B", 20, lambda gate: "fine"))
    assert measure(here, parts, said.append) == ["A"]
    assert said[0].endswith("FAILED: RuntimeError: no such kernel") and said[1].endswith("fine")


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
    assert "deepspeed missing, transformers missing" in gpu_gate.heading(
        torch.device("cpu"), dry_run=True
    )
