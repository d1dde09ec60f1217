"""What a run's parts depend on; test_train.py trains with all of them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from pipeline.planning.deepspeed_config import DeepSpeedFile
from pipeline.training.assembly import build_plan_check


@pytest.mark.parametrize(
    ("sections", "is_checked"),
    [((), True), (("offload_optimizer",), False), (("offload_param",), False)],
)
def test_offload_gives_no_rate(tmp_path: Path, sections: tuple[str, ...], is_checked: bool) -> None:
    zero = {"stage": 3} | {section: {"device": "cpu"} for section in sections}
    job: Any = SimpleNamespace(output=tmp_path, deepspeed=DeepSpeedFile("mine.json", zero))
    cluster: Any = SimpleNamespace(rank=0, device=torch.device("cpu"))
    start: Any = SimpleNamespace(record=SimpleNamespace(device="cpu"))
    made = build_plan_check(job, cluster, start, cast(Any, None), ["a", "a"], ["0 1", "2"])
    assert (made is not None) == is_checked
