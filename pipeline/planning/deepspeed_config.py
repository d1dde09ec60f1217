"""ds_configs/*.json and a Run -> the configuration dict passed to DeepSpeed.

A ds file decides how memory and speed are traded and may hold only `ALLOWED` keys. Everything that
could change what is learned belongs to Run and is written here, in `deepspeed_dict`. Not supported,
because wrong or inexact: predivide factors, quantised collectives, round_robin_gradients, NVMe.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.base.errors import ConfigError
from pipeline.config.run import Run

FOLDER = Path(__file__).parents[2] / "ds_configs"  # next to pipeline/, installed or not

BUCKET = 500_000_000
"""DeepSpeed's own bucket, in elements: of stage 0, and of files that set none."""

Choices = tuple[object, ...]
OFFLOAD: dict[str, type | Choices] = {"device": ("none", "cpu"), "pin_memory": bool}
ALLOWED: dict[str, type | Choices | dict[str, type | Choices]] = {
    "stage": (0, 1, 2, 3),
    "reduce_bucket_size": int,
    "allgather_bucket_size": int,
    "overlap_comm": bool,
    "contiguous_gradients": bool,
    "stage3_prefetch_bucket_size": int,
    "stage3_param_persistence_threshold": int,
    "stage3_max_live_parameters": int,
    "stage3_max_reuse_distance": int,
    "offload_optimizer": OFFLOAD,
    "offload_param": OFFLOAD,
}
"""Keys of a file's zero_optimization section, with the type or the choices of their values."""

OWNED_BY_RUN = {
    "train_batch_size": "batch.sequences",
    "train_micro_batch_size_per_gpu": "batch.per_device",
    "gradient_accumulation_steps": "batch.sequences and batch.per_device",
    "gradient_clipping": "optimizer.clip_norm",
    "optimizer": "optimizer.kind and its other settings",
    "scheduler": "schedule.kind and its other settings",
    "bf16": "precision",
    "fp16": "precision",
    "torch_autocast": "precision",
    "data_types": "precision",
    "communication_data_type": "precision",
    "seed": "seed",
    "steps_per_print": "logging.every",
}


@dataclass(frozen=True, slots=True)
class DeepSpeedFile:
    """A ds file that has been checked."""

    name: str
    zero: Mapping[str, Any]
    """Its zero_optimization section."""

    def stage(self, precision: str) -> int:
        """The effective ZeRO stage: in bf16 stage 0 becomes 1, because DeepSpeed 0.19.8 takes an
        optimizer step with zero gradients at start, which moves the weights."""
        stage = int(self.zero["stage"])
        return max(stage, 1) if precision != "fp32" else stage

    def advice(self, precision: str) -> str:
        """A line about what deviates from the file, or ""."""
        if self.stage(precision) == self.zero["stage"]:
            return ""
        return f"{self.name} runs as ZeRO stage 1: DeepSpeed's stage 0 is exact in fp32 only"

    def bucket(self, parameters: int) -> int:
        """Elements of a bucket of gradients: the file's, or those of the whole model if it has
        fewer. DeepSpeed allocates the whole bucket, and fills no more than the model has."""
        return min(int(self.zero.get("reduce_bucket_size", BUCKET)), parameters)

    def offloads(self) -> bool:
        """True if the optimizer's state is in host memory."""
        return self._is_on_host("offload_optimizer")

    def offloads_weights(self) -> bool:
        """True if the network's weights are in host memory too (stage 3)."""
        return self._is_on_host("offload_param")

    def uses_host(self) -> bool:
        """True if weights or optimizer state are in host memory."""
        return self.offloads() or self.offloads_weights()

    def pins(self) -> bool:
        """True if the host memory of the optimizer is locked, for faster copies."""
        return self._is_pinned("offload_optimizer")

    def pins_weights(self) -> bool:
        """True if the host memory of the network's weights is locked."""
        return self._is_pinned("offload_param")

    def _is_pinned(self, section: str) -> bool:
        return bool(self.zero.get(section, {}).get("pin_memory", False))

    def _is_on_host(self, section: str) -> bool:
        return bool(self.zero.get(section, {}).get("device", "none") != "none")


def read_deepspeed_file(name: str) -> DeepSpeedFile:
    """A file of ds_configs by name (zero1), or any by path. Raises ConfigError for a bad key."""
    path = Path(name)
    if not path.suffix:
        path = FOLDER / f"{name}.json"
        known = sorted(file.stem for file in FOLDER.glob("*.json"))
        if not path.is_file():
            raise ConfigError(f"no ds file is called {name}; choose one of {', '.join(known)}")
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{name} cannot be read as a ds file ({error}); give a JSON file"
        ) from None
    if not isinstance(content, dict) or not isinstance(content.get("zero_optimization"), dict):
        raise ConfigError(
            f'{name} has no section {{"zero_optimization": {{"stage": ...}}}}; add it'
        )
    for key in content:
        if key != "zero_optimization":
            raise ConfigError(f"{name}: {_why_not(key, ['zero_optimization'])}")
    zero = _check(content["zero_optimization"], ALLOWED, name)
    if "stage" not in zero:
        raise ConfigError(f"{name}: zero_optimization has no stage; add one of 0, 1, 2, 3")
    _check_effects(zero, name)
    return DeepSpeedFile(name, zero)


def deepspeed_dict(
    run: Run,
    file: DeepSpeedFile,
    *,
    parameters: int,
    rows: int,
    accumulation: int,
    world_size: int,
) -> dict[str, Any]:
    """parameters: trained elements of the model, padding words included; rows: of a micro-batch,
    at most; accumulation: micro-batches per step and rank."""
    half = run.precision != "fp32"
    stage = file.stage(run.precision)
    zero = dict(file.zero) | {"stage": stage, "sub_group_size": 2**60}  # all weights in one group
    if stage:
        zero["reduce_bucket_size"] = file.bucket(parameters)
    if stage in (1, 2) and not file.offloads() and not (half and stage == 1):
        zero["compute_grad_norm"] = False  # our optimizer computes it; other cases need this key
    return {
        "train_batch_size": rows * accumulation * world_size,
        "train_micro_batch_size_per_gpu": rows,
        "gradient_accumulation_steps": accumulation,
        "gradient_clipping": 0.0,  # our optimizer clips, the same at every stage
        "communication_data_type": "fp32",  # bf16 would round in every addition of a reduction
        "data_types": {"grad_accum_dtype": "fp32"},  # also what makes bf16 stage 1 BF16_Optimizer
        "bf16": {
            "enabled": half,
            "check_grad_overflow": False,  # our optimizer checks
            "immediate_grad_update": half,  # stage 1 keeps no bf16 gradients; the same sums
        },
        "zero_allow_untested_optimizer": True,  # tested in tests/pipeline/training/optimizer
        "zero_force_ds_cpu_optimizer": False,  # offload would refuse ours
        "timers": {"throughput": {"enabled": False}},  # waits for the device twice per micro-batch
        "zero_optimization": zero,
    }


def _check(section: Mapping[str, Any], allowed: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The section with whole numbers as int. Raises ConfigError for a key or value not allowed."""
    result: dict[str, Any] = {}
    for key, value in section.items():
        kind = allowed.get(key)
        if kind is None:
            raise ConfigError(f"{place}: {_why_not(key, list(allowed))}")
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # 5e8 is a float in JSON
        if isinstance(kind, dict):
            if not isinstance(value, dict):
                raise ConfigError(f"{place}: {key}={value!r} is not a section; choose {{...}}")
            value = _check(value, kind, f"{place}: {key}")
        elif isinstance(kind, tuple):
            # True == 1 would pass as stage 1.
            if isinstance(value, bool) or value not in kind:
                choices = ", ".join(map(str, kind))
                raise ConfigError(f"{place}: {key}={value!r} is not one of {choices}")
        elif type(value) is not kind or (kind is int and value < 0):  # a bool is an int
            wanted = "true or false" if kind is bool else "a whole number, 0 or more"
            raise ConfigError(f"{place}: {key}={value!r} is not {wanted}")
        result[key] = value
    return result


def _why_not(key: str, allowed: list[str]) -> str:
    if key in OWNED_BY_RUN:
        return f"key {key} belongs to the run; set {OWNED_BY_RUN[key]} there"
    near = difflib.get_close_matches(key, allowed, 1)
    hint = f"did you mean {near[0]}?" if near else f"allowed are {', '.join(allowed)}"
    return f"key {key} is not allowed in a ds file, which only configures memory and speed; {hint}"


def _check_effects(zero: Mapping[str, Any], name: str) -> None:
    """Raises ConfigError for a setting that its stage does not read, or that DeepSpeed refuses."""
    for key in zero:
        least = 3 if key.startswith("stage3_") or key == "offload_param" else 1
        if key != "stage" and zero["stage"] < least:
            raise ConfigError(
                f"{name}: {key} has no effect at stage {zero['stage']}; remove it, or use "
                f"stage {least} or higher"
            )
    if zero.get("reduce_bucket_size") == 0:
        raise ConfigError(f"{name}: reduce_bucket_size=0 holds no gradient; give 1 or more")
    if zero.get("allgather_bucket_size", 0) % 2:
        raise ConfigError(
            f"{name}: allgather_bucket_size={zero['allgather_bucket_size']} is odd; DeepSpeed "
            "aligns buckets to 2 elements, give an even number"
        )
