import json
from pathlib import Path

import pytest

from pipeline.config.data_settings import max_predictions
from pipeline.config.settings import override
from pipeline.costs.step_work import launch_seconds, step_work
from pipeline.loading.placement import Capacity
from pipeline.recipes import recipe

COUNTED = json.loads((Path(__file__).parents[2] / "null_gpu" / "expected.json").read_bytes())
FULL = {key: case["work"] for key, case in COUNTED["cases"].items() if " full stage 1 " in key}


@pytest.mark.parametrize("key", FULL)
def test_work_is_that_of_the_null_gpu(key: str) -> None:
    run, counted = recipe(key.split()[0]), FULL[key]
    rows, length = run.batch.per_device, run.data.sequence_length
    capacity = Capacity(rows * length, rows * max_predictions(run.data), rows, rows)
    work = step_work(run, capacity)
    assert work.product_flops == pytest.approx(counted["product_flops"], rel=1e-3)
    assert list(work.attention_flops["flash"]) == pytest.approx(counted["attention_flops"]["flash"])
    assert work.moved_bytes == pytest.approx(counted["moved_bytes"], rel=0.05)


def test_dropout_moves_bytes_and_layers_are_launched() -> None:
    run, capacity = recipe("roberta_tiny"), Capacity(2048, 100, 64, 64)
    dropping = override(run, ["encoder.dropout=0.1"])
    assert step_work(run, capacity).moved_bytes < step_work(dropping, capacity).moved_bytes
    assert step_work(run, capacity).product_flops == step_work(dropping, capacity).product_flops
    assert launch_seconds(run) == pytest.approx(run.encoder.layers * 1.7e-3)
    assert launch_seconds(recipe("electra_tiny")) > launch_seconds(run)
