from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.costs.communication import bytes_sent, wire_bytes
from pipeline.planning.deepspeed_config import read_deepspeed_file
from pipeline.recipes import recipe

ZERO1 = read_deepspeed_file("zero1")


def test_a_rank_alone_sends_nothing() -> None:
    assert bytes_sent(recipe("roberta_tiny"), 1, ZERO1) == []


def test_what_each_optimizer_sums_per_weight() -> None:
    run = recipe("roberta_base")
    sizes = {
        kind: sum(
            part.value
            for part in bytes_sent(
                replace(run, optimizer=replace(run.optimizer, kind=kind)), 64, ZERO1
            )
            if "LAMB's norms" in part.name or "StableAdamW's RMS" in part.name
        )
        for kind in ("lamb", "adamw", "stable_adamw")
    }
    assert sizes == {"lamb": 3_232, "adamw": 0, "stable_adamw": 1_616}


def test_a_ring_sends_twice_the_gradients_and_once_the_weights() -> None:
    sent = bytes_sent(recipe("roberta_base"), 64, ZERO1)
    gradients, weights, *small = (part.value for part in sent)
    assert wire_bytes(sent, 64) == pytest.approx(
        63 / 64 * (2 * gradients + weights + 2 * sum(small))
    )
