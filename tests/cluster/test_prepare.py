"""Preparing on two nodes, as one MPI job and as a job array, gives the bytes of a local run."""

import os
import signal
import sys
from pathlib import Path

from pipeline.data.shards.manifest import MANIFEST
from tests.cluster.slurm import ONE_HOST, Cluster
from tests.pipeline.preparing import SMALL_SPLITS, contents, finish, many_documents, tiny

BATCH_FILE = "slurm/prepare.sbatch"
SMALL = ("--cpus-per-task=1", "--mem-per-cpu=500M", "--time=10")


def environment(tokenizer: Path, output: Path) -> dict[str, str]:
    """The variables that a user exports to prepare the sample corpus."""
    return {
        "TENFOLD_VENV": sys.prefix,
        "TENFOLD_CORPUS": "sample",
        "TENFOLD_RECIPE": "roberta_tiny",
        "TENFOLD_ROOT": str(output.parent),
        # shared by all tests: kernels are compiled once
        "TENFOLD_LOCAL": str(output.parents[1] / "local"),
        "TENFOLD_PREPARE_ARGS": f"--tokenizer {tokenizer} --output {output}",
    } | ONE_HOST


def test_mpi_on_two_nodes_with_a_time_limit(
    cluster: Cluster, prepared: Path, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    """As --signal sends a minute before the end; `scancel --batch` sends the same."""
    output = tmp_path / "out"
    variables = environment(tiny_tokenizer, output)
    job = cluster.submit(BATCH_FILE, "--nodes=2", "--ntasks-per-node=2", *SMALL, **variables)
    job.until(lambda: "4 ranks on 2 node(s)" in job.log())
    job.signal("USR1")
    assert job.end() == "COMPLETED", job.log()
    assert job.field("Restarts") == "1" and "time is nearly up; requeued" in job.log()
    assert contents(output) == contents(prepared)
    again = cluster.submit(BATCH_FILE, *SMALL, "--ntasks-per-node=2", **variables)
    assert again.end() == "COMPLETED" and "complete already" in again.log()


def test_an_array_of_three_elements(
    cluster: Cluster, prepared: Path, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    """The third is held back until the others have ended, and combines all shares."""
    output = tmp_path / "out"
    first = cluster.submit(
        BATCH_FILE, "--array=4-8:2%2", "--ntasks-per-node=1", *SMALL,
        **environment(tiny_tokenizer, output),
    )  # fmt: skip
    elements = [first.element(number) for number in (4, 6, 8)]
    assert [element.end() for element in elements] == ["COMPLETED"] * 3
    logs = [element.log() for element in elements]
    assert "".join(logs).count("prepared 344 documents") == 1, logs
    assert contents(output) == contents(prepared)


def test_a_killed_element_is_requeued(
    cluster: Cluster, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    """Slurm kills it and starts it again, and it does the remaining work."""
    corpus = many_documents(tmp_path / "in.jsonl")
    small = ("--corpus", corpus, "--workers", 1)
    local = finish(sys.executable, SMALL_SPLITS, *small, *tiny(tiny_tokenizer, tmp_path / "local"))
    assert local.returncode == 0, local.stderr
    command = " ".join(
        map(str, (sys.executable, SMALL_SPLITS, *small, *tiny(tiny_tokenizer, tmp_path / "out")))
    )
    first = cluster.submit_command(
        f"srun --mpi=none --ntasks=1 {command} --part $SLURM_ARRAY_TASK_ID/2", "--array=1-2",
        "--requeue", "--open-mode=append",
    )  # fmt: skip
    victim, other = (first.element(number) for number in (1, 2))
    work = tmp_path / "out" / ".work"
    victim.until(lambda: len([*work.glob("task-*.json")]) >= 4)
    assert cluster.run("scontrol", "requeue", victim.id).returncode == 0
    assert other.end() == "COMPLETED", other.log()
    assert victim.end() == "COMPLETED", victim.log()
    assert victim.field("Restarts") == "1"
    assert (victim.log() + other.log()).count("prepared 700 documents") == 1
    assert contents(tmp_path / "out") == contents(tmp_path / "local")


def test_a_killed_rank_ends_the_job_and_costs_its_split(
    cluster: Cluster, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    corpus = many_documents(tmp_path / "in.jsonl", 2800)  # far more than are done when it is killed
    arguments = ("--corpus", corpus, *tiny(tiny_tokenizer, tmp_path / "out"))
    command = " ".join(map(str, (sys.executable, SMALL_SPLITS, *arguments)))
    step = f"srun --wait=10 --mpi=pmi2 {command}"
    options = ("--nodes=2", "--ntasks-per-node=1")
    job = cluster.submit_command(step, *options, **ONE_HOST)
    work = tmp_path / "out" / ".work"
    job.until(lambda: len([*work.glob("task-*.json")]) >= 4)
    for process in cluster.tasks("node02", job):
        os.kill(process, signal.SIGKILL)
    assert job.end(timeout=300) == "FAILED", job.log()
    assert len([*work.glob("part-*.json")]) >= 4 and not (tmp_path / "out" / MANIFEST).exists()
    again = cluster.submit_command(step, *options, **ONE_HOST)
    assert again.end() == "COMPLETED", again.log()
    whole = ("--corpus", corpus, "--workers", 1, *tiny(tiny_tokenizer, tmp_path / "local"))
    assert finish(sys.executable, SMALL_SPLITS, *whole).returncode == 0
    assert contents(tmp_path / "out") == contents(tmp_path / "local")


SCATTERED = """
import os, random
numbers = random.Random(0)
buffers = [bytearray(os.urandom(numbers.randint(600, 5000))) for _ in range(20000)]
numbers.shuffle(buffers)
del buffers[5000:]
from pipeline.execution.mpi import join_mpi
print(join_mpi().comm.allreduce(1))
"""
"""A process whose memory has holes between bytes that no run-length code shortens."""


def test_ranks_meet_whatever_lies_in_their_memory(cluster: Cluster, tmp_path: Path) -> None:
    """MPICH with UCX sends the process manager the memory after one of its addresses."""
    script = tmp_path / "scattered.py"
    script.write_text(SCATTERED)
    step = f"srun --kill-on-bad-exit=1 --mpi=pmi2 {sys.executable} {script}"
    job = cluster.submit_command(step, "--nodes=2", "--ntasks-per-node=1", **ONE_HOST)
    assert job.end(timeout=300) == "COMPLETED", job.log()
    assert job.log().split() == ["2", "2"]


def test_mistakes_are_one_line_and_no_requeue(
    cluster: Cluster, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    """Also a launcher of another MPI: N processes that each assume to be alone would write the
    same files."""
    variables = environment(tiny_tokenizer, tmp_path / "out")
    two, alone = ("--nodes=2", "--ntasks-per-node=2"), "a launcher started several processes"
    jobs = []
    slow = tmp_path / "slow"  # ranks that are still starting when the first one has failed
    (slow / "bin").mkdir(parents=True)
    (slow / "bin" / "python").write_text(
        '#!/bin/sh\ncase "$SLURM_PROCID $*" in\n[1-9]*pipeline.prepare*) sleep 10 ;;\nesac\n'
        f'exec {sys.executable} "$@"\n'
    )
    (slow / "bin" / "python").chmod(0o755)
    for options, more, message in (
        (two, {"TENFOLD_MPI": "none"}, alone),
        (two, {"TENFOLD_MPI": "none", "TENFOLD_VENV": str(slow)}, alone),
        # a library that does not exist
        (two, {"TENFOLD_MPI": "pmi2", "MPI4PY_MPIABI": "openmpi"}, alone),
        (two[1:], {"TENFOLD_CORPUS": ""}, "TENFOLD_CORPUS is not set"),
        (two[1:], {"TENFOLD_CORPUS": "wikipedia"}, "--fetch"),
        (two[1:], {"TENFOLD_PREPARE_ARGS": "--tokenizer /nonexistent"}, "no such directory"),
    ):
        job = cluster.submit(BATCH_FILE, *options, *SMALL, **variables | more)
        jobs.append((job, message))
    for job, message in jobs:
        assert job.end() == "FAILED", job.log()
        assert (job.field("ExitCode"), job.field("Restarts")) == ("2:0", "0"), job.log()
        (line,) = (line for line in job.log().splitlines() if line.startswith("error: "))
        assert message in line
    assert not (tmp_path / "out").exists()
