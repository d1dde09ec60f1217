"""One cluster for all tests of this folder; tests that use it run in `make test-cluster` only."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import packages
from tests.cluster.configuration import Place
from tests.cluster.slurm import Cluster
from tests.cluster.training import Runs

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs the cluster: `make test` leaves it out, wanting no root and no packages."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if HERE in item.path.parents and "cluster" in fixtures:
            item.add_marker("cluster")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A running Slurm; see tests/cluster/slurm.py for how to use it."""
    reason = packages.why_not()
    assert not reason, f"the cluster's tests cannot run here: {reason}"
    packages.install()
    # else the daemons would outlive a CI job that is ended from outside
    signal.signal(signal.SIGTERM, lambda number, frame: pytest.exit("terminated"))
    cluster = Cluster(Place.of(tmp_path_factory.mktemp("slurm")))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="session")
def runs(cluster: Cluster, prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Submits small trainings on the sample corpus."""
    return Runs(cluster, prepared, tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def undisturbed(runs: Runs) -> Path:
    """The run directory of a small training that nothing happened to."""
    run = runs.folder / "undisturbed"
    job = runs.submit(run)
    assert job.end() == "COMPLETED", job.log()
    return run
