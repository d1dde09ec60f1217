"""What a ds file may contain, and what is passed to DeepSpeed."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.base.errors import ConfigError
from pipeline.planning.deepspeed_config import (
    ALLOWED,
    FOLDER,
    OWNED_BY_RUN,
    deepspeed_dict,
    read_deepspeed_file,
)
from pipeline.recipes import recipe

SHIPPED = sorted(path.stem for path in FOLDER.glob("*.json"))
SIZES = {"parameters": 7_000_000, "rows": 4, "accumulation": 3, "world_size": 2}


def written(folder: Path, content: Any) -> str:
    path = folder / "mine.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_shipped_files(precision: Any) -> None:
    run = replace(recipe("roberta_tiny"), precision=precision)
    expected = {
        "train_batch_size": 24, "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 3, "communication_data_type": "fp32",
        "data_types": {"grad_accum_dtype": "fp32"},
    }  # fmt: skip
    for name in SHIPPED:
        settings = deepspeed_dict(run, read_deepspeed_file(name), **SIZES)
        assert settings | expected == settings
        assert settings["bf16"]["enabled"] == (precision == "bf16")
        stage = int(name.removesuffix("_offload")[-1])
        assert settings["zero_optimization"]["stage"] == (stage or int(precision == "bf16")), name


def test_a_bucket_holds_the_model_at_most() -> None:
    """At stage 1 in fp32 the shipped 500 million elements would take 2 GB of any device."""
    assert {"zero0", "zero1", "zero2", "zero3", "zero2_offload", "zero3_offload"} <= set(SHIPPED)
    for name in SHIPPED:
        file = read_deepspeed_file(name)
        assert file.offloads() == name.endswith("_offload")
        for parameters, most in ((7_000_000, 7_000_000), (10**12, 500_000_000)):
            sizes = {**SIZES, "parameters": parameters}
            zero = deepspeed_dict(recipe("roberta_tiny"), file, **sizes)["zero_optimization"]
            if file.zero["stage"] == 0:
                assert "reduce_bucket_size" not in zero
            else:
                asked = file.zero["reduce_bucket_size"]
                assert zero["reduce_bucket_size"] == min(asked, most) == file.bucket(parameters)


def test_readme_names_every_file_and_key() -> None:
    text = (FOLDER / "README.md").read_text()
    for name in (*(f"{shipped}.json" for shipped in SHIPPED), *ALLOWED):
        assert f"`{name}`" in text


def test_any_path(tmp_path: Path) -> None:
    """JSON has no integers in scientific notation; 5e8 is still accepted as one."""
    content = '{"zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8}}'
    file = read_deepspeed_file(written(tmp_path, content))
    assert file.zero == {"stage": 2, "reduce_bucket_size": 500_000_000}
    assert type(file.zero["reduce_bucket_size"]) is int


REFUSED = (
    ({"stage": 1, "reduce_bucket_sice": 5}, "did you mean reduce_bucket_size?"),
    ({"stage": 1, "round_robin_gradients": True}, "round_robin_gradients is not allowed"),
    ({"stage": 3, "zero_quantized_gradients": True}, "zero_quantized_gradients is not allowed"),
    ({"stage": 4}, "stage=4 "),
    ({"stage": True}, "stage=True "),
    ({"overlap_comm": True}, "no stage"),
    ({"stage": 1, "reduce_bucket_size": 0.5}, "reduce_bucket_size=0.5 "),
    ({"stage": 1, "reduce_bucket_size": -1}, "reduce_bucket_size=-1 "),
    ({"stage": 1, "reduce_bucket_size": 0}, "reduce_bucket_size=0 "),
    ({"stage": 2, "allgather_bucket_size": 2e8 + 1}, "allgather_bucket_size=200000001 "),
    ({"stage": 1, "overlap_comm": "yes"}, "overlap_comm='yes' "),
    ({"stage": 1, "offload_optimizer": True}, "offload_optimizer=True "),
    ({"stage": 2, "offload_param": {"device": "nvme"}}, "device='nvme' "),
    ({"stage": 2, "offload_optimizer": {"ratio": 0.5}}, "ratio is not allowed"),
    ({"stage": 2, "stage3_max_live_parameters": 5}, "no effect at stage 2"),
    ({"stage": 0, "overlap_comm": True}, "overlap_comm has no effect at stage 0"),
)


def test_what_a_file_may_not_contain(tmp_path: Path) -> None:
    """Keys that the run owns, other keys and values, and other things than a file of settings."""
    contents = [({"zero_optimization": zero}, said) for zero, said in REFUSED]
    for key, setting in OWNED_BY_RUN.items():
        content = {"zero_optimization": {"stage": 1}, key: 1}
        contents += [(content, f"key {key} belongs to the run; set "), (content, setting)]
    invalid = ("{", "[]", "{}", '{"zero_optimization": true}')
    for content, said in (*contents, *((each, "mine.json") for each in invalid)):
        with pytest.raises(ConfigError, match=re.escape(said)):
            read_deepspeed_file(written(tmp_path, content))


def test_unknown_name() -> None:
    for name, said in (("zero4", "zero4; choose one of zero0"), ("nowhere.json", "cannot be read")):
        with pytest.raises(ConfigError, match=said):
            read_deepspeed_file(name)
