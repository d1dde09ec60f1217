from __future__ import annotations

import pytest

from pipeline.costs.estimate import Estimate
from pipeline.costs.preparation_time import preparation_time
from pipeline.recipes import recipe


def figure(value: float) -> Estimate:
    return Estimate("", value, "bytes", "computed", "")


def test_few_cores_bound_it_and_then_the_file_system() -> None:
    """RESULTS.md: 160 GB at 58 MB/s and core take 46 minutes of 64 cores' time less the reading."""
    run, text, shards = recipe("roberta_base"), figure(160e9), figure(160e9)
    work, on_two = preparation_time(run, text, shards, 2)
    assert work.value == pytest.approx(160e9 / 50e6 / 3600)
    assert on_two.value == pytest.approx(work.value / 2, rel=0.02)
    assert "bound by the cores" in on_two.assumption
    _, on_many = preparation_time(run, text, shards, 128)
    assert on_many.value == pytest.approx(320e9 / 2e9 / 3600, rel=0.03)
    assert "bound by the file system" in on_many.assumption
    assert on_many.least < on_many.value < on_many.most


def test_slower_tokenizers_take_longer() -> None:
    times = [
        preparation_time(recipe(name), figure(1e9), figure(1e9), 4)[0].value
        for name in ("roberta_base", "bert_base", "albert_base")
    ]
    assert times == sorted(times)
