from __future__ import annotations

import pytest

from pipeline.costs.scaling import efficiency
from tests.pipeline.costs.planned import planned


def test_efficiency_falls_with_nodes_and_faster_with_a_slow_network() -> None:
    """facts of the roofline, large at 64 and 512 GPUs: 96 to 99 % and 73 to 88 % with eight cards
    per node, 91 to 94 % and 55 to 63 % with one, if a GPU computes 366 rows a second. It computes a
    tenth more (RESULTS.md), so at 512 less is left."""
    found = {}
    for nics in (8, 1):
        job = planned("roberta_large", gpu="h200", nics=nics)
        found[nics] = {p.name: p for p in efficiency(job.hardware, job.hours)}
        assert next(iter(found[nics])) == "1 node" and len(found[nics]) == 8
        shares = [part.value for part in found[nics].values()]
        assert shares == sorted(shares, reverse=True) and shares[0] == 1.0
    assert found[8]["8 nodes"].value == pytest.approx(0.97, abs=0.02)
    assert 0.66 < found[8]["64 nodes"].value < 0.88
    assert found[1]["8 nodes"].value < 0.90 and found[1]["64 nodes"].value < 0.63


def test_it_ends_where_ranks_have_nothing_to_do() -> None:
    job = planned("roberta_tiny", gpu="h100")  # 64 sequences, 8 ranks per node
    assert [part.name for part in efficiency(job.hardware, job.hours)][-1] == "8 nodes"
