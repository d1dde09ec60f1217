"""Predicted bytes equal those of real ranks under DeepSpeed, held and sent, at every stage.

One launch per number of ranks measures every setting (held_worker.py).
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pipeline.costs.communication import sent_under
from pipeline.costs.memory import on_host, passing, state
from pipeline.costs.shapes.partition import Partition, partition
from tests.pipeline.conftest import forkrun, launch
from tests.pipeline.costs.held_worker import SETTINGS, file_of, run_of

WORKER = Path(__file__).with_name("held_worker.py")
TOLERANCE = 0.01
LAUNCHES = [
    (2, "some"), *(pytest.param(count, "whole", marks=pytest.mark.slow) for count in (1, 2, 4)),
]  # fmt: skip
COLLECTIVES = {"all-reduce": "allreduce", "all-gather": "allgather_base",
               "reduce-scatter": "reduce_scatter_base"}  # fmt: skip


def measured(ranks: int, what: str, output: Path) -> list[list[dict[str, Any]]]:
    """What each rank found in each setting."""
    result = launch(*forkrun(WORKER, output, what, count=ranks), timeout=1200)
    assert result.returncode == 0, result.stderr
    of_ranks: list[list[dict[str, Any]]] = json.loads(output.read_text())
    settings = [list(setting) for setting in SETTINGS[what]]
    assert all([found["setting"] for found in own] == settings for own in of_ranks)
    return [list(found) for found in zip(*of_ranks, strict=True)]


def held_by(parts: Partition) -> Counter[str]:
    """Predicted bytes by part; on a CPU, what is offloaded is in the same memory."""
    found: Counter[str] = Counter()
    for part in (*state(parts), *passing(parts, on_gpu=False), *on_host(parts, pinned=False)):
        found[part.name.removeprefix("host: ")] += int(part.value)
    return found


@pytest.mark.parametrize(("ranks", "what"), LAUNCHES)
def test_ranks_hold_and_send_what_is_predicted(ranks: int, what: str, tmp_path: Path) -> None:
    """Weights, fp32 weights, moments, gradients and buckets, on the rank that holds most. The sum
    of all parts is enough, and not much more than enough: a row of 12 tokens adds next to nothing.
    """
    for found in measured(ranks, what, tmp_path / "measured.json"):
        precision, name, changes = found[0]["setting"]
        run = run_of(precision, ranks)
        parts = partition(run, ranks, file_of(name, changes))
        predicted = held_by(parts)
        most = {name: max(own["held"][name] for own in found) for name in found[0]["held"]}
        for name in set(most) & set(predicted):
            assert predicted[name] == pytest.approx(most[name], rel=TOLERANCE), (found, name)
        between = predicted["weights"] + predicted["master weights"] + predicted["moments"]
        permanent = parts.stage == 3 or parts.flat_gradients or parts.offload
        between += predicted["gradients"] if permanent else 0
        between += parts.bucket_bytes if parts.stage == 3 else 0
        if parts.offload and parts.stage == 2:  # to the host and from it; summed on the device
            between += predicted["copies"] + parts.width * max(parts.sizes)
            between -= 4 * parts.share if parts.width == 2 else 0
        assert most["at rest"] == pytest.approx(between, rel=TOLERANCE), found
        peak = max(most["backward"], most["step"])
        assert peak * (1 - TOLERANCE) <= sum(predicted.values()) <= 1.75 * peak, found
        sending: Counter[str] = Counter()
        for part in sent_under(run, parts):
            sending[COLLECTIVES[part.name.rsplit(", ")[-1]]] += int(part.value)
        for own in found if ranks > 1 else ():
            sent: Counter[str] = Counter()
            for collective, size in own["sent"].items():
                sent[collective.split()[0]] += size
            assert sent == sending, (found[0]["setting"], sent, sending)
