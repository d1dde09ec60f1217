"""A cluster for all tests of a worker; tests that use one run in `make test-cluster` only.

The tests wait more than they work, so `make test-cluster` has three workers side by side.
"""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import packages
from tests.cluster.configuration import Place
from tests.cluster.slurm import Cluster
from tests.cluster.training import Runs
from tests.launching.shared import build_once

HERE = Path(__file__).parent
LONG = ("test_readme", "test_restarts", "test_interruptions")
"""Files with tests of more than half a minute, which start first."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that need the cluster: `make test` skips them, as it needs no root or packages."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if HERE in item.path.parents and "cluster" in fixtures:
            item.add_marker("cluster")
    items.sort(key=lambda item: LONG.index(name) if (name := item.path.stem) in LONG else len(LONG))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A running Slurm; see tests/cluster/slurm.py for how to use it."""
    reason = packages.why_not()
    assert not reason, f"the cluster's tests cannot run here: {reason}"
    build_once(tmp_path_factory, "packages", lambda folder: packages.install())
    # else the daemons would outlive a CI job that is ended from outside
    signal.signal(signal.SIGTERM, lambda number, frame: pytest.exit("terminated"))
    cluster = Cluster(Place.of(tmp_path_factory.mktemp("slurm")))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(autouse=True)
def no_jobs_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that fails leaves its jobs, which would hold the GPUs of the next test."""
    yield
    if "cluster" in request.fixturenames:
        request.getfixturevalue("cluster").cancel_jobs()


@pytest.fixture(scope="session")
def runs(cluster: Cluster, prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Submits small trainings on the sample corpus."""
    return Runs(cluster, prepared, tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def undisturbed(runs: Runs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run directory of a small training that nothing happened to."""

    def build(folder: Path) -> None:
        job = runs.submit(folder / "run")
        assert job.end() == "COMPLETED", job.log()

    return build_once(tmp_path_factory, "undisturbed", build) / "run"
