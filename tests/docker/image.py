"""`make test-image`: builds the CPU image without Docker and runs the steps of the demo in it.

Not part of `make test`: it installs Debian packages, needs root and takes minutes. The base is a
Debian made here. Containers have no network, a read-only root and a user id that is unknown to the
image: the strictest combination of what Docker, Apptainer and Pyxis do.
"""

import json
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker.containers import Containers, new_directory
from tests.pipeline.preparing import wait_until

ROOT = Path(__file__).parents[2]
SUITE = "bookworm"
IMAGE = "localhost/tenfold:cpu"
STRICT = ("--rm", "--user=12345:12345", "--read-only", "--tmpfs=/tmp", "--network=none")
TRAIN = ("pipeline.train", "roberta_tiny", "--data", "shards", "--output")
TORCHRUN = ("torchrun", "--standalone", "--nproc-per-node=2", "-m")
INTERRUPTED = 75


@pytest.fixture(scope="module")
def containers() -> Iterator[Containers]:
    """An image store with the CPU image in it."""
    found = Containers.open(new_directory())
    try:
        found.base("debian:slim", SUITE)
        started = time.monotonic()
        before = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
        found.build(
            ROOT, "tenfold:cpu", "--build-arg=BASE_IMAGE=localhost/debian:slim",
            "--build-arg=FLAVOUR=cpu", "--build-arg=VERSION=test",
            *([f"--build-arg=TORCH_WHEELS={found.wheels}"] if found.wheels else []),
        )  # fmt: skip
        seconds = time.monotonic() - started
        cpu = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]) - before
        size = int(found.podman("inspect", "--format={{.Size}}", IMAGE)) / 1e9
        print(f"\nbuilt in {seconds:.0f} s with {cpu:.0f} s of CPU, {size:.2f} GB")
        yield found
    finally:
        found.close()


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The volume of all containers: each reads what the previous ones wrote."""
    folder = tmp_path_factory.mktemp("workspace")
    folder.chmod(0o777)
    return folder


def inside(containers: Containers, workspace: Path, *command: str) -> str:
    """The output of a command in a strict container."""
    return containers.podman("run", *STRICT, f"--volume={workspace}:/workspace", IMAGE, *command)


def steps_done(run: Path) -> int:
    metrics = run / "metrics.jsonl"
    lines = metrics.read_text().splitlines() if metrics.exists() else []
    return max((json.loads(line)["step"] for line in lines), default=0)


def stopped(containers: Containers, workspace: Path, run: str, signal: str, *launch: str) -> int:
    """Train until there are steps, signal the container, and return how it ended."""
    options = (f"--volume={workspace}:/workspace", f"--name={run}", "--env=OMP_NUM_THREADS=1")
    process = containers.start(*STRICT, *options, IMAGE, *launch, *TRAIN, run)
    try:
        wait_until(lambda: steps_done(workspace / run) >= 5, process, seconds=300)
        containers.podman("kill", f"--signal={signal}", run)
        output, _ = process.communicate(timeout=120)
    finally:
        process.kill()
    assert (workspace / run / "INTERRUPTED").exists(), output
    return process.returncode


def test_prepares_with_the_kernels_it_brought(containers: Containers, workspace: Path) -> None:
    said = inside(
        containers, workspace, "env", "NUMBA_DEBUG_CACHE=1", "python", "-m", "pipeline.prepare",
        "--corpus", "sample", "--recipe", "roberta_tiny", "--output", "shards",
    )  # fmt: skip
    assert (workspace / "shards" / "manifest.json").exists()
    assert (workspace / "data" / "tokenizers").is_dir(), "the default root is in the volume"
    assert "data loaded" in said
    assert "data saved" not in said, "a kernel was compiled again"


def test_prepares_under_mpi(containers: Containers, workspace: Path) -> None:
    """With the image's own MPI, the same bytes."""
    inside(
        containers, workspace, "mpiexec", "-n", "2", "python", "-m", "pipeline.prepare",
        "--corpus", "sample", "--recipe", "roberta_tiny", "--output", "by-mpi",
    )  # fmt: skip
    alone, together = (
        json.loads((workspace / name / "manifest.json").read_text())["shards"]
        for name in ("shards", "by-mpi")
    )
    assert alone == together


def test_resumes_after_sigterm_and_ends_as_the_demo(
    containers: Containers, workspace: Path
) -> None:
    """Two ranks; torchrun changes the exit code, so batch files check the marker."""
    assert stopped(containers, workspace, "run", "TERM", *TORCHRUN) != 0
    done = steps_done(workspace / "run")
    end = str(done + 10)
    inside(containers, workspace, *TORCHRUN, *TRAIN, "run", "--stop-at", end)
    assert steps_done(workspace / "run") == done + 10
    assert not (workspace / "run" / "INTERRUPTED").exists()
    inside(containers, workspace, "python", "-m", "pipeline.export", "run", "--output", "export")
    said = inside(
        containers, workspace, "python", "-m", "pipeline.evaluate", "export", "--data", "shards"
    )
    assert "loss" in said


def test_hands_on_signal_and_exit_code(containers: Containers, workspace: Path) -> None:
    """A single Python, as under srun: the container ends with the run's exit code."""
    code = stopped(containers, workspace, "alone", "USR1", "python", "-m")
    assert code == INTERRUPTED


def test_runs_from_anywhere_without_the_entry_point(
    containers: Containers, workspace: Path
) -> None:
    """As Apptainer and Pyxis start it, in a directory that has another `pipeline`."""
    (workspace / "pipeline").mkdir()
    (workspace / "pipeline" / "__init__.py").write_text("raise SystemExit('wrong pipeline')")
    for directory in ("/", "/workspace"):
        said = containers.podman(
            "run", *STRICT, "--entrypoint=", f"--workdir={directory}",
            f"--volume={workspace}:/workspace", IMAGE, "python", "-m", "pipeline.train", "--help",
        )  # fmt: skip
        assert "usage: python -m pipeline.train" in said


def test_holds_nothing_of_the_machine_and_no_compiler(containers: Containers) -> None:
    configuration = json.loads(containers.podman("inspect", IMAGE))[0]["Config"]
    assert configuration["User"] == "1000"
    assert configuration["Entrypoint"] == ["tini", "--"]
    assert configuration["Labels"]["org.opencontainers.image.version"] == "test"
    assert not any("pip" in name.lower() for name in configuration["Env"])
    containers.podman("run", *STRICT, IMAGE, "sh", "-c", "! command -v cc c++ gcc g++")
    # a mount leaves an empty file; neither its content nor build leftovers may be there
    for empty in ("! -s /etc/pip.conf", "! -s /run/host-certificates.crt", '-z "$(ls -A /tmp)"'):
        containers.podman("run", "--rm", "--network=none", IMAGE, "sh", "-c", f"test {empty}")
