"""Real MPI jobs on this machine give the bytes of a local run, whatever happens to a rank."""

import gzip
import os
import re
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from pipeline.data.shards.manifest import read_manifest
from pipeline.execution.mpi import LAUNCHERS, announced_size
from tests.pipeline.data.small_shards import prepare_here
from tests.pipeline.preparing import (
    FORKED,
    MPIEXEC,
    SMALL_SPLITS,
    contents,
    finish,
    many_documents,
    started,
    tiny,
    wait_until,
    write_jsonl,
)

TOGETHER = "from pipeline import prepare; from pipeline.execution.mpi import run_together\n"
WITHOUT_MPI4PY = f"import sys; sys.modules['mpi4py'] = None\n{TOGETHER}run_together(prepare.main)"
PREPARE = ("-m", "pipeline.prepare")
THREE_RANKS = (MPIEXEC, "-n", 3, *FORKED, SMALL_SPLITS)


def ours(text: str) -> list[str]:
    """Lines of an error output, without MPICH's message about an abort."""
    return [line for line in text.splitlines() if not line.startswith("Abort(")]


def test_tenfold_prepare_with_more_ranks_than_splits(tiny_tokenizer: Path, tmp_path: Path) -> None:
    """One split, of which one of three ranks that work makes shards."""
    corpus = ("--corpus", "news", "--input", many_documents(tmp_path / "in.jsonl"))
    alone = prepare_here(tiny_tokenizer, tmp_path / "alone", *corpus)
    arguments = (*corpus, *tiny(tiny_tokenizer, tmp_path / "out"))
    result = finish(MPIEXEC, "-n", 4, *FORKED, "-m", "pipeline.tenfold", "prepare", *arguments)
    assert result.returncode == 0, result.stderr
    assert contents(tmp_path / "out") == contents(alone)


def test_ranks_that_are_killed_or_interrupted_cost_only_their_splits(
    tiny_tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command ends in the bytes of one process. There are about 44 splits."""
    monkeypatch.setenv("SHARD_BYTES", str(1 << 16))  # several splits each, so ranks assemble, too
    corpus, output = many_documents(tmp_path / "in.jsonl"), tmp_path / "out"
    command = (*THREE_RANKS, "--corpus", corpus, *tiny(tiny_tokenizer, output))
    work = output / ".work"
    kept: dict[Path, int] = {}
    for victim, finished in ((2, 5), (0, 15)):
        with started(*command) as job:
            wait_until(lambda: len(processes(work)) == 3, job)
            wait_until(lambda: len([*work.glob("task-*.json")]) >= finished, job)  # noqa: B023
            ranks = processes(work)
            left = shared_memory(ranks.values())
            os.kill(ranks[victim], signal.SIGKILL)
            job.communicate(timeout=120)
            assert job.returncode
        for file in left:
            file.unlink(missing_ok=True)
        kept |= {marker: marker.stat().st_mtime_ns for marker in work.glob("part-*.json")}
        assert finished <= len(kept) < 35, "killed too late to tell"
    with started(*command) as job:
        wait_until(lambda: len([*work.glob("task-*.json")]) >= 35, job)
        job.send_signal(signal.SIGINT)
        said = "".join(job.communicate(timeout=120))
    assert job.returncode == 130
    assert said.count("interrupted; run the same command again") == 1 and "Traceback" not in said
    assert {marker: marker.stat().st_mtime_ns for marker in kept} == kept, "done twice"
    result = finish(*command)
    assert result.returncode == 0 and not result.stderr, result.stderr
    assert result.stdout.startswith("3 ranks on 1 node(s)\n")
    assert result.stdout.count("prepared 700 documents") == 1
    alone = ("--corpus", corpus, "--workers", 1, *tiny(tiny_tokenizer, tmp_path / "alone"))
    assert finish(sys.executable, SMALL_SPLITS, *alone).returncode == 0
    assert contents(output) == contents(tmp_path / "alone")
    assert 3 < len(read_manifest(output).of("train")) < 12
    again = finish(*command)
    assert again.returncode == 0 and again.stdout.count("complete already") == 1


def processes(work: Path) -> dict[int, int]:
    """Process number of each rank that runs, from its log."""
    said = "".join(log.read_text() for log in work.glob("rank-*.log"))
    found = re.findall(r"rank (\d+), process (\d+) on ", said)
    return {int(rank): int(number) for rank, number in found if Path("/proc", number).exists()}


def shared_memory(ranks: Iterable[int]) -> set[Path]:
    """MPICH's files in /dev/shm that these processes map; it removes none when a rank is killed."""
    maps = "\n".join(Path(f"/proc/{rank}/maps").read_text() for rank in ranks)
    return {Path(file) for file in re.findall(r"/dev/shm/mpich\S*", maps)}


def test_an_error_on_any_rank_is_one_line(tiny_tokenizer: Path, tmp_path: Path) -> None:
    """Each file is one task; the last but one is truncated, which only its reader detects."""
    (tmp_path / "in").mkdir()
    for number in range(8):
        text = write_jsonl(tmp_path / "text", [os.urandom(400).hex() for _ in range(200)])
        packed = gzip.compress(text.read_bytes(), 1)
        size = len(packed) if number != 6 else len(packed) - 1000
        (tmp_path / "in" / f"{number}.jsonl.gz").write_bytes(packed[:size])
    arguments = ("--corpus", "noise", "--input", tmp_path / "in")
    result = finish(*THREE_RANKS, *arguments, *tiny(tiny_tokenizer, tmp_path / "out"))
    assert result.returncode == 2
    (line,) = ours(result.stderr)
    assert re.match(r"error: .*6\.jsonl\.gz is ", line)
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_users_mistake_is_one_line_and_help_is_printed_once() -> None:
    for arguments, message in (
        (("--corpus", "sample", "--recipe", "roberta_bse"), "did you mean roberta_base"),
        (("--corpus", "sample", "--workers", "2"), "every rank is a worker"),
    ):
        result = finish(MPIEXEC, "-n", 2, *FORKED, *PREPARE, *arguments)
        (line,) = ours(result.stderr)
        assert result.returncode == 2 and line.startswith("error: ") and message in line
    result = finish(MPIEXEC, "-n", 2, *FORKED, *PREPARE, "--help")
    assert result.returncode == 0 and result.stdout.count("usage:") == 1


def test_a_bug_ends_all_ranks() -> None:
    """One traceback, and no rank that waits forever."""
    code = f"{TOGETHER}prepare.prepare = lambda *_, **__: 1 / 0\nrun_together(prepare.main)"
    result = finish(MPIEXEC, "-n", 3, *FORKED, "-c", code, "--corpus", "sample")
    assert result.returncode == 1 and result.stderr.count("\nZeroDivisionError: ") == 1


def test_a_launcher_of_another_mpi_is_refused(tiny_tokenizer: Path, tmp_path: Path) -> None:
    """Each process would be a job of one rank, and all would write the same files."""
    command = (*PREPARE, "--corpus", "sample", *tiny(tiny_tokenizer, tmp_path / "out"))
    first, second = (
        finish(sys.executable, *command, SLURM_STEP_NUM_TASKS="2", SLURM_PROCID=rank)
        for rank in ("0", "1")
    )
    assert (first.returncode, first.stdout) == (second.returncode, second.stdout) == (2, "")
    (line,) = ours(first.stderr)
    assert line.startswith("error: a launcher started several processes") and not second.stderr
    assert "but MPI sees 1" in line and "MPICH" in line and "--part" in line
    assert not (tmp_path / "out").exists()


def test_without_mpi4py_only_one_process_prepares(tiny_tokenizer: Path, tmp_path: Path) -> None:
    """A batch script is one process, however many tasks are allocated; a launcher is refused."""
    variables = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "0"}
    result = finish(sys.executable, "-c", WITHOUT_MPI4PY, **variables)
    assert result.returncode == 2
    assert "pip install mpi4py" in result.stderr and "SLURM_STEP_NUM_TASKS=2" in result.stderr
    batch = {"SLURM_JOB_ID": "5", "SLURM_NTASKS": "8", "SLURM_PROCID": "0"}
    path = write_jsonl(tmp_path / "in.jsonl", ["A text. Fine.", "More."])
    arguments = ("--corpus", path, "--workers", 1, *tiny(tiny_tokenizer, tmp_path / "out"))
    result = finish(sys.executable, "-c", WITHOUT_MPI4PY, *arguments, **batch)
    assert result.returncode == 0, result.stderr


def test_announced_size(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LAUNCHERS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLURM_NTASKS", "64")
    assert announced_size() == 1
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")  # mpiexec's helpers on each node, by srun
    assert announced_size() == 4
    monkeypatch.setenv("PMI_SIZE", "64")
    assert announced_size() == 64
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "65")
    assert announced_size() == 65
