"""Real MPI jobs on this machine give the bytes of a local run, whatever happens to a rank."""

import gzip
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from pipeline.data.shards.manifest import read_manifest
from pipeline.execution.mpi import announced_size
from tests.pipeline.preparing import (
    FORKED,
    MPIEXEC,
    SMALL_SPLITS,
    contents,
    finish,
    many_documents,
    started,
    tiny,
    write_jsonl,
)

TOGETHER = "from pipeline import prepare; from pipeline.execution.mpi import run_together\n"
WITHOUT_MPI4PY = f"import sys; sys.modules['mpi4py'] = None\n{TOGETHER}run_together(prepare.main)"
PREPARE = ("-m", "pipeline.prepare")
THREE_RANKS = (MPIEXEC, "-n", 3, *FORKED, SMALL_SPLITS)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """About 44 splits."""
    return many_documents(tmp_path_factory.mktemp("corpus") / "in.jsonl")


@pytest.fixture(scope="module", autouse=True)
def several_splits_in_a_shard() -> Iterator[None]:
    """For `small_splits.py`: ranks assemble shards, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHARD_BYTES", str(1 << 16))
        yield


@pytest.fixture(scope="module")
def local(corpus: Path, tiny_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards that one process prepares from it."""
    output = tmp_path_factory.mktemp("local") / "out"
    arguments = ("--corpus", corpus, "--workers", 1, *tiny(tiny_tokenizer, output))
    result = finish(sys.executable, SMALL_SPLITS, *arguments)
    assert result.returncode == 0, result.stderr
    return output


def until(is_so: Callable[[], bool], job: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline and job.poll() is None
        time.sleep(0.01)


def ours(text: str) -> list[str]:
    """Lines of an error output, without MPICH's message about an abort."""
    return [line for line in text.splitlines() if not line.startswith("Abort(")]


def test_three_ranks_give_the_bytes_of_one_process(
    corpus: Path, local: Path, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    result = finish(*THREE_RANKS, "--corpus", corpus, *tiny(tiny_tokenizer, output))
    assert result.returncode == 0, result.stderr
    assert not result.stderr
    assert result.stdout.startswith("3 ranks on 1 node(s)\n")
    assert result.stdout.count("prepared 700 documents") == 1
    assert contents(output) == contents(local)
    assert 3 < len(read_manifest(output).of("train")) < 12
    again = finish(*THREE_RANKS, "--corpus", corpus, *tiny(tiny_tokenizer, output))
    assert again.returncode == 0 and again.stdout.count("complete already") == 1


def test_tenfold_prepare_with_more_ranks_than_splits(
    prepared: Path, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    arguments = tiny(tiny_tokenizer, tmp_path / "out")
    command = ("-m", "pipeline.tenfold", "prepare", "--corpus", "sample")
    result = finish(MPIEXEC, "-n", 7, *FORKED, *command, *arguments)
    assert result.returncode == 0, result.stderr
    assert contents(tmp_path / "out") == contents(prepared)


@pytest.mark.parametrize("victim", [0, 2])
def test_a_killed_rank_costs_only_its_split(
    victim: int, corpus: Path, local: Path, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    command = (*THREE_RANKS, "--corpus", corpus, *tiny(tiny_tokenizer, tmp_path / "out"))
    work = tmp_path / "out" / ".work"
    with started(*command) as job:
        until(lambda: len(processes(work)) == 3 and len([*work.glob("task-*.json")]) >= 5, job)
        logs = processes(work)
        left = shared_memory(logs.values())
        os.kill(logs[victim], signal.SIGKILL)
        job.communicate(timeout=120)
        assert job.returncode
    kept = {marker: marker.stat().st_mtime_ns for marker in work.glob("part-*.json")}
    assert 5 <= len(kept) < 30, "killed too late to tell"
    # the second run is killed too, just before it ends
    with started(*command) as job:
        until(lambda: len([*work.glob("task-*.json")]) >= 35, job)
        left |= shared_memory(processes(work).values())
        job.kill()
    for file in left:
        file.unlink(missing_ok=True)
    assert {marker: marker.stat().st_mtime_ns for marker in kept} == kept, "done twice"
    result = finish(*command)
    assert result.returncode == 0, result.stderr
    assert contents(tmp_path / "out") == contents(local)


def processes(work: Path) -> dict[int, int]:
    """Process number of each rank that has started, from its log: of the last start."""
    found = {}
    for log in work.glob("rank-*.log"):
        for rank, process in re.findall(r"rank (\d+), process (\d+) on ", log.read_text()):
            found[int(rank)] = int(process)
    return found


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--corpus", "sample", "--recipe", "roberta_bse"], "did you mean roberta_base"),
        (["--corpus", "sample", "--workers", "2"], "every rank is a worker"),
        pytest.param(["--corpus"], "expected one argument", marks=pytest.mark.slow),
    ],
)
def test_a_users_mistake_is_one_line(arguments: list[str], message: str) -> None:
    result = finish(MPIEXEC, "-n", 2, *FORKED, *PREPARE, *arguments)
    (line,) = ours(result.stderr)
    assert result.returncode == 2 and line.startswith("error: ") and message in line


def test_a_bug_ends_all_ranks() -> None:
    """One traceback, and no rank that waits forever."""
    code = f"{TOGETHER}prepare.prepare = lambda *_, **__: 1 / 0\nrun_together(prepare.main)"
    result = finish(MPIEXEC, "-n", 3, *FORKED, "-c", code, "--corpus", "sample")
    assert result.returncode == 1 and result.stderr.count("\nZeroDivisionError: ") == 1


def test_interrupted(corpus: Path, tiny_tokenizer: Path, tmp_path: Path) -> None:
    command = (*THREE_RANKS, "--corpus", corpus, *tiny(tiny_tokenizer, tmp_path / "out"))
    with started(*command) as job:
        until(lambda: any(tmp_path.glob("out/.work/task-*.json")), job)
        job.send_signal(signal.SIGINT)
        out, error = job.communicate(timeout=120)
    assert job.returncode == 130
    assert (out + error).count("interrupted; run the same command again") == 1
    assert "Traceback" not in error


def test_help_is_printed_once() -> None:
    result = finish(MPIEXEC, "-n", 2, *FORKED, *PREPARE, "--help")
    assert result.returncode == 0 and result.stdout.count("usage:") == 1


@pytest.mark.parametrize(
    ("size", "rank_name"),
    [
        ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),  # srun
        ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),  # another MPI's mpirun
        pytest.param("PMI_SIZE", "PMI_RANK", marks=pytest.mark.slow),  # pmi2 without its socket
    ],
)
def test_a_launcher_of_another_mpi_is_refused(
    size: str, rank_name: str, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    """Each process would be a job of one rank, and all would write the same files."""
    command = (*PREPARE, "--corpus", "sample", *tiny(tiny_tokenizer, tmp_path / "out"))
    first, second = (
        finish(sys.executable, *command, **{size: "2", rank_name: rank}) for rank in ("0", "1")
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
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(name, raising=False)
    assert announced_size() == 1
    monkeypatch.setenv("SLURM_NTASKS", "64")
    assert announced_size() == 1
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")  # mpiexec's helpers on each node, by srun
    monkeypatch.setenv("PMI_SIZE", "64")
    assert announced_size() == 64
