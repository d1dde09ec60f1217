"""One rank that trains a step under DeepSpeed and reports the bytes that it holds and sends.

`held_worker.py OUT.json WHAT`, under a launcher; WHAT: a key of SETTINGS. test_real_ranks.py
compares the output with what is predicted. A row is short, so that almost all memory is weights,
gradients and optimizer state.
"""

import gc
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

import torch
import torch.distributed as dist

from model.hugging_face.conversion import logical_parameters
from model.objectives.masked_language import Inputs
from model.pieces import pieces_of
from pipeline.base.errors import run_command
from pipeline.cluster.process_group import init_distributed
from pipeline.config.run import Run
from pipeline.config.settings import override
from pipeline.costs.shapes.activations import LiveBytes, unique_bytes
from pipeline.loading.micro_batch import LossCounts
from pipeline.planning.build import build_model
from pipeline.planning.deepspeed_config import DeepSpeedFile, read_deepspeed_file
from pipeline.recipes import recipe
from pipeline.training.optimizer.engine import ZeroEngine, initialize_engine
from pipeline.training.step_count import StepCount, StopVote
from tests.pipeline.training.frozen import freeze
from tests.pipeline.training.step_trace import StepTrace

ROWS, LENGTH, SLOTS, ACCUMULATION = 1, 12, 1, 2
SMALL, LARGE = ({"reduce_bucket_size": size} for size in (600_000, 5_000_000))
"""Buckets smaller and larger than the model."""
Setting = tuple[str, str, dict[str, Any]]
"""Precision, ds file, and what is changed in it."""
WHOLE: list[Setting] = [
    ("fp32", "zero0", {}),
    *product(("fp32", "bf16"), ("zero1", "zero2", "zero3"), (SMALL, LARGE)),
    *product(("fp32", "bf16"), ("zero2_offload", "zero3_offload"), (SMALL,)),
    ("fp32", "zero3", {"stage3_param_persistence_threshold": 0}),
]
SETTINGS: dict[str, list[Setting]] = {
    "some": [
        ("bf16", "zero1", SMALL), ("fp32", "zero1", LARGE), ("fp32", "zero3", SMALL),
        ("bf16", "zero2_offload", SMALL),
    ],
    "whole": WHOLE,
}  # fmt: skip


def run_of(precision: str, ranks: int) -> Run:
    """A model of two million parameters that no number of ranks divides."""
    sizes = "encoder.width=256 encoder.feed_forward=1024 data.vocab_size=2053"
    batch = f"batch.sequences={ROWS * ACCUMULATION * ranks} batch.per_device={ROWS}"
    settings = f"{sizes} {batch} precision={precision}"
    return override(recipe("roberta_tiny"), settings.split())


def file_of(name: str, changes: dict[str, Any]) -> DeepSpeedFile:
    """A shipped ds file with changes."""
    shipped = read_deepspeed_file(name)
    return replace(shipped, zero={**shipped.zero, **changes})


def micro_batch() -> Inputs:
    return Inputs(
        input_ids_T=torch.randint(5, 2048, (ROWS * LENGTH,)),
        pieces=pieces_of([LENGTH] * ROWS),
        positions_K=torch.arange(1, SLOTS + 1),
        labels_K=torch.randint(5, 2048, (SLOTS,)),
        weights_K=torch.ones(SLOTS),
        mask_id=4,
    )


REDUCERS = ("average_tensor", "_DeepSpeedZeroOptimizer_Stage3__avg_scatter_grads")
"""Methods of DeepSpeed's optimizers that send gradients; at stage 0 it is the engine's own."""
BY_ENGINE = "buffered_allreduce_fallback"


def watch_buckets(engine: ZeroEngine, live: LiveBytes) -> list[int]:
    """Bytes that each sending of gradients needs: its buffers, and copies for its time."""
    found = [0]
    names = [name for name in REDUCERS if hasattr(zero_of(engine), name)]
    owner, name = (zero_of(engine), names[0]) if names else (engine._wrapped, BY_ENGINE)
    send = getattr(owner, name)

    def watched(*args: Any, **named: Any) -> Any:
        start, summed, live.peak = live.now, unique_bytes(gradients(engine)), live.now
        result = send(*args, **named)
        summed = unique_bytes(gradients(engine)) - summed
        found.append(unique_bytes(buffers(engine)) + live.peak - start - summed)
        return result

    setattr(owner, name, watched)
    return found


def zero_of(engine: ZeroEngine) -> Any:
    return engine._wrapped.optimizer


def weights(engine: ZeroEngine) -> Iterator[torch.Tensor]:
    for parameter in engine.module.parameters():
        yield parameter
        if hasattr(parameter, "ds_tensor"):
            yield parameter.ds_tensor


def masters(engine: ZeroEngine) -> Iterator[torch.Tensor]:
    for group in engine.optimizer.param_groups:
        yield from group["params"] if engine.stage else ()
    yield from getattr(zero_of(engine), "fp32_partitioned_groups_flat", ())


def copies(engine: ZeroEngine) -> Iterator[torch.Tensor]:
    """What stage 2 keeps for copies between a device and its host."""
    zero = zero_of(engine)
    yield from getattr(zero, "param_buffer_of_bit16_for_cpu_offload_groups", ())
    if hasattr(zero, "temp_grad_buffer_for_cpu_offload"):
        yield zero.temp_grad_buffer_for_cpu_offload


def gradients(engine: ZeroEngine) -> list[torch.Tensor]:
    zero, found = zero_of(engine), list[torch.Tensor | None]()
    in_bucket = {buffer.untyped_storage()._cdata for buffer in buffers(engine)}
    for parameter in engine.module.parameters():
        for gradient in (parameter.grad, getattr(parameter, "grad_accum", None)):
            if gradient is not None and gradient.untyped_storage()._cdata not in in_bucket:
                found.append(gradient)
    for name in ("averaged_gradients", "all_grad_tensors"):
        for group in getattr(zero, name, {}).values():
            found += group or ()
    found += getattr(zero, "fp32_groups_gradients_flat", ())
    found.append(getattr(zero, "grad_partitions_flat_buffer", None))
    found += [master.grad for master in masters(engine)]
    found += getattr(zero, "accumulated_grads_in_cpu", {}).values()
    return [each for each in found if each is not None]


def buffers(engine: ZeroEngine) -> Iterator[torch.Tensor]:
    for bucket in getattr(zero_of(engine), "ipg_buckets", {}).values():
        buffer = bucket.buffer
        yield from [] if buffer is None else [buffer] if torch.is_tensor(buffer) else buffer


def measure(precision: str, name: str, changes: dict[str, Any]) -> dict[str, Any]:
    """What this rank holds and sends in the second step; all in bytes."""
    run = run_of(precision, dist.get_world_size())
    with LiveBytes(ignored_device="meta") as live:  # DeepSpeed keeps shapes there
        model = build_model(run, seed=0).train()
        engine = initialize_engine(
            model, run, file_of(name, changes), logical_parameters(model),
            rows=ROWS, accumulation=ACCUMULATION,
        )  # fmt: skip
        buckets = watch_buckets(engine, live)
        known, vote = StepCount(), StopVote()
        for _ in range(2):
            held, peak = 0, 0
            with StepTrace() as trace:
                known.start(LossCounts(1, 1, 1))
                known.result()
                for done in range(1, ACCUMULATION + 1):
                    vote.passed()
                    if done < ACCUMULATION:
                        vote.ask(False)
                    live.peak = live.now
                    engine.backward(engine(micro_batch())["mlm_loss"], 1)
                    peak = max(peak, live.peak)
                    held = max(held, unique_bytes(gradients(engine)))
                live.peak = live.now
                engine.step(1e-3)
            gc.collect()
    found = {
        "weights": unique_bytes(weights(engine)),
        "master weights": unique_bytes(masters(engine)),
        "moments": unique_bytes(
            tensor for state in engine.optimizer.state.values() for tensor in state.values()
        ),
        "gradients": held,
        "copies": unique_bytes(copies(engine)),
        "communication buckets": max(buckets),
        "at rest": live.now, "backward": peak, "step": live.peak,
    }  # fmt: skip
    engine.close()
    return {"setting": [precision, name, changes], "held": found, "sent": trace.sent}


def main() -> None:
    torch.set_num_threads(1)
    init_distributed()
    freeze()
    found = [measure(*setting) for setting in SETTINGS[sys.argv[2]]]
    ranks: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(ranks, found)
    if dist.get_rank() == 0:
        Path(sys.argv[1]).write_text(json.dumps(ranks, indent=1))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    run_command(main, at_once=True)
