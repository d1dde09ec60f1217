"""Every objective under DeepSpeed's ZeRO equals the plain loop, at each stage, with LAMB and AdamW.

Toy sizes of every family, compared as in test_engine.py, in one launch per number of ranks.
"""

import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.conftest import forkrun, succeed
from tests.pipeline.training.objectives_worker import settings
from tests.pipeline.training.optimizer.test_engine import FACTOR

WORKER = Path(__file__).parents[1] / "pipeline" / "training" / "objectives_worker.py"
PARTS = {
    "mlm": ["mlm"], "mlm + nsp": ["mlm", "pair"], "mlm + sop, shared": ["mlm", "pair"],
    "mlm + sop, unshared": ["mlm", "pair"], "mlm + rtd": ["mlm", "rtd"],
    "mlm + rtd, tied": ["mlm", "rtd"], "mlm + rtd, masked, own embeddings": ["mlm", "rtd"],
    "mlm + words": ["mlm", "words"], "mlm + words, all": ["mlm", "words"],
    "mlm + sbo": ["mlm", "sbo"], "mlm, gated, rotary": ["mlm"],
}  # fmt: skip


@functools.cache
def measured(count: int, what: str) -> list[dict[str, Any]]:
    """What the worker found on so many ranks; what: see there."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "measured.json"
        succeed(*forkrun(WORKER, output, what, count=count), timeout=1200)
        found: list[dict[str, Any]] = json.loads(output.read_text())
    return found


@pytest.mark.parametrize(
    ("count", "what"),
    [(2, "some"), *(pytest.param(count, "all", marks=pytest.mark.slow) for count in (2, 3, 4))],
)
def test_every_objective_equals_an_unsharded_run(count: int, what: str) -> None:
    results = measured(count, what)
    trained = [(found["case"], found["optimizer"], found["stage"]) for found in results]
    assert trained == settings(what)
    for found in results:
        assert found["parts"] == PARTS[found["case"]] and found["unmoved"] == [], found
        assert 0 < found["floor"] < 1e-4, found
        assert found["distance"] <= FACTOR * found["floor"], found


def test_what_is_always_trained_has_each_objective_stage_and_optimizer() -> None:
    some, every = settings("some"), settings("all")
    assert set(some) <= set(every) and len(every) == 92
    for place in range(3):
        assert {setting[place] for setting in some} == {setting[place] for setting in every}


@pytest.mark.slow
def test_modules_are_compiled_once_or_at_stage_3_not_at_all() -> None:
    """In training and in validation a graph for the layers of each encoder that attend as far, the
    embeddings of each width and each head of masked words; none comes later."""
    results = measured(1, "graphs")
    assert len(results) == 4 * len(PARTS)
    for found in results:
        graphs = 0 if found["stage"] == 3 else 2 * found["kinds"]
        assert found["rounds"] == [graphs, graphs] and found["breaks"] == 0, found


def test_shared_layers_are_held_once() -> None:
    """Weights, gradients and optimizer state are at most 60 % of the same sizes unshared."""
    held = {
        found["case"]: found["held"]
        for found in measured(2, "some")
        if (found["optimizer"], found["stage"]) == ("lamb", 2)
    }
    assert 0 < held["mlm + sop, shared"] <= 0.6 * held["mlm + sop, unshared"]
