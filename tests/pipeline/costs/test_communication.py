import pytest

from pipeline.config.settings import override
from pipeline.costs.communication import bytes_sent, wire_bytes
from pipeline.planning.deepspeed_config import read_deepspeed_file
from pipeline.recipes import recipe

ZERO1 = read_deepspeed_file("zero1")


def test_what_each_optimizer_sums_per_weight() -> None:
    for kind, size in (("lamb", 3_232), ("adamw", 0), ("stable_adamw", 1_616)):
        sent = bytes_sent(override(recipe("roberta_base"), [f"optimizer.kind={kind}"]), 64, ZERO1)
        own = [part for part in sent if "LAMB's" in part.name or "StableAdamW's" in part.name]
        assert sum(part.value for part in own) == size


def test_a_ring_sends_twice_the_gradients_and_once_the_weights() -> None:
    sent = bytes_sent(recipe("roberta_base"), 64, ZERO1)
    gradients, weights, *small = (part.value for part in sent)
    total = 63 / 64 * (2 * gradients + weights + 2 * sum(small))
    assert wire_bytes(sent, 64) == pytest.approx(total)
    assert bytes_sent(recipe("roberta_tiny"), 1, ZERO1) == []  # a rank alone sends nothing
