"""Slow hosts are named, once and not too soon."""

import time
from pathlib import Path

import pytest
import torch

from pipeline.training.run_directory.layout import SLOW_NODES, claim
from pipeline.training.run_directory.stragglers import IN_A_ROW, ForwardClock, Stragglers, host_name

HOSTS = ["a", "a", "b", "b"]
EVEN, SLOW_B = [1.0, 1.1, 1.0, 1.0], [1.0, 1.0, 1.0, 1.3]


def stragglers_of(hosts: list[str], run: Path) -> Stragglers:
    return Stragglers(hosts, run, ForwardClock(torch.device("cpu")))


def test_the_slowest_rank_is_in_the_metrics_and_slurm_names_its_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = stragglers_of(HOSTS, tmp_path).report(SLOW_B)
    assert report == {"slowest_rank": 3, "slowest_host": "b", "slowest_ratio": 1.3}
    assert stragglers_of(["a"], tmp_path).report([1.0]) == {}
    monkeypatch.setenv("SLURMD_NODENAME", "node17")
    assert host_name() == "node17"


def test_a_host_that_stays_slow_is_named_once_and_forgotten_by_the_next_job(tmp_path: Path) -> None:
    stragglers = stragglers_of(HOSTS, tmp_path)
    reports = [SLOW_B] * (IN_A_ROW - 1) + [EVEN] + [SLOW_B] * (IN_A_ROW + 3)
    said = [stragglers.warning(seconds) for seconds in reports]
    assert [bool(text) for text in said].index(True) == 2 * IN_A_ROW - 1
    assert sum(map(bool, said)) == 1 and ": b (forward" in said[2 * IN_A_ROW - 1]
    assert (tmp_path / SLOW_NODES).read_text() == "b\n"
    same_host = stragglers_of(["a", "a"], tmp_path)
    assert not any(same_host.warning([1.0, 2.0]) for _ in range(3 * IN_A_ROW))
    run = tmp_path / "run"
    run.mkdir()
    (tmp_path / SLOW_NODES).rename(run / SLOW_NODES)
    with claim(run):
        assert not (run / SLOW_NODES).exists()


def test_the_clock_counts_only_what_it_measures() -> None:
    clock = ForwardClock(torch.device("cpu"))
    for _ in range(2):
        with clock.running():
            time.sleep(0.02)
    time.sleep(0.02)
    assert 0.04 <= clock.take() < 5
    assert clock.take() == 0
