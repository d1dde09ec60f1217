"""One rank of the real engine: trains the toy under DeepSpeed in many settings, and compares.

`torchrun --nproc-per-node N zero_worker.py OUT.json usual`: one start of Python and DeepSpeed for
all settings of a world size. Slower tests pass `whole` or `drift` instead of `usual`.
test_engine.py reads the output of rank 0.
"""

import contextlib
import io
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

import torch
import torch.distributed as dist

from pipeline.base.errors import ConfigError, run_command
from pipeline.cluster import process_group
from pipeline.cluster.process_group import init_distributed
from pipeline.planning.deepspeed_config import DeepSpeedFile, deepspeed_dict, read_deepspeed_file
from pipeline.planning.schedule import learning_rate
from pipeline.training.optimizer import fragments
from pipeline.training.optimizer.engine import ZeroEngine, initialize_engine
from tests.pipeline.training import toy, zero_settings
from tests.pipeline.training.frozen import freeze
from tests.pipeline.training.held import whole_weights
from tests.pipeline.training.plain import view
from tests.pipeline.training.step_trace import StepTrace
from tests.pipeline.training.toy import Toy, batches, records, toy_run
from tests.pipeline.training.zero_settings import CLIP, FEW, MORE, SEQUENCES, Setting

NAIVE = {2: (1, 3), 3: (1,)}
"""Stages at which a LAMB without knowledge of ZeRO is measured."""


class NaiveLamb(torch.optim.Optimizer):
    """You et al.'s LAMB with a trust ratio per given tensor: under ZeRO, flat pieces."""

    def __init__(self, parameters: Any, run: Any) -> None:
        super().__init__(parameters, {"lr": 0.0})
        self.run = run.optimizer
        self.steps = 0

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        self.steps += 1
        settings = self.run
        for group in self.param_groups:
            for weight in group["params"]:
                state = self.state[weight]
                if not state:
                    state.update(mean=torch.zeros_like(weight), square=torch.zeros_like(weight))
                state["mean"].lerp_(weight.grad, 1 - settings.beta1)
                state["square"].lerp_(weight.grad**2, 1 - settings.beta2)
                mean = state["mean"] / (1 - settings.beta1**self.steps)
                square = state["square"] / (1 - settings.beta2**self.steps)
                update = mean / (square.sqrt() + settings.eps) + settings.weight_decay * weight
                weight -= group["lr"] * weight.norm() / update.norm() * update


def shares(run: Any, world: int, rank: int, accumulation: int) -> Iterator[Any]:
    """(count, micro-batches) of a rank, for each step."""
    for ids, weights in batches(run.batch.sequences, run.steps):
        rows = ids.chunk(world)[rank].chunk(accumulation)
        marks = weights.chunk(world)[rank].chunk(accumulation)
        yield int(weights[:, 1:].sum()), zip(rows, marks, strict=True)


def started(run: Any, file: DeepSpeedFile, accumulation: int) -> ZeroEngine:
    """The engine of a new toy."""
    model = Toy()
    rows = SEQUENCES // (dist.get_world_size() * accumulation)
    return initialize_engine(model, run, file, records(model), rows=rows, accumulation=accumulation)


def train(
    run: Any, file: DeepSpeedFile, accumulation: int, backward: StepTrace, ours: StepTrace
) -> tuple[ZeroEngine, list[float]]:
    """The engine after all steps, and the gradient norms.

    Traces the last step: its micro-batches, and what our optimizer does in it.
    """
    engine = started(run, file, accumulation)
    norms, plain_step = [], engine.optimizer.step

    def traced_step(*given: Any) -> Any:
        with ours:
            return plain_step(*given)

    steps = shares(run, engine.world_size, engine.rank, accumulation)
    for step, (count, parts) in enumerate(steps, 1):
        is_last = step == run.steps
        if is_last:
            engine.optimizer.step = traced_step
        for rows, marks in parts:
            with backward if is_last else contextlib.nullcontext():
                engine.backward(engine(rows, marks), count)
        assert engine.step(learning_rate(run, step))
        norms.append(engine.gradient_norm)
    engine.optimizer.step = plain_step
    return engine, norms


def check_refresh(engine: ZeroEngine) -> bool:
    """Write other weights through the fragments: the model must be updated, at any stage."""
    before = whole_weights(engine)
    for part in engine.optimizer.fragments():
        part.weight.mul_(2)
    engine.refresh_model_weights()
    good = True
    with engine.whole_weights() as weights:
        for record in engine.optimizer.logical:
            found = view(weights[record.parameter_name], record)
            good &= torch.equal(found, (2 * before[record.name]).to(found))
    return good


def check_non_finite(engine: ZeroEngine, bad: float) -> bool:
    """A step with a bad loss on one rank is reported and changes neither this nor later steps."""
    steps = engine.optimizer.steps
    before = [[tensor.clone() for tensor in part[2:]] for part in engine.optimizer.fragments()]
    weights = whole_weights(engine)
    for index in range(engine.accumulation):
        ids, marks = next(batches(4, 1))
        loss = engine(ids, marks)
        here = engine.rank == engine.world_size - 1 and index == 0
        engine.backward(loss * (bad if here else 1.0), 100)
    applied = engine.step(1.0) or math.isfinite(engine.gradient_norm)
    after = [part[2:] for part in engine.optimizer.fragments()]
    same = all(torch.equal(x, y) for old, new in zip(before, after) for x, y in zip(old, new))
    now = whole_weights(engine)
    same &= all(torch.equal(weights[name], now[name]) for name in now)
    return not applied and same and engine.optimizer.steps == steps


class Plain:
    """Runs of the plain loop, each trained once; only the first rank compares."""

    def __init__(self) -> None:
        self._weights: dict[Any, dict[str, torch.Tensor]] = {}

    def compared(self, run: Any, chunks: int, ours: dict[str, torch.Tensor]) -> dict[str, float]:
        """Distance of our weights from the reference, and of the reference computed in chunks."""
        if dist.get_rank():
            return {}
        # one chunk would be the reference itself, so use at least two
        reference, chunked = self._after(run, 1), self._after(run, max(chunks, 2))
        return {
            "distance": toy.distance(ours, reference, Toy()),
            "floor": toy.distance(chunked, reference, Toy()),
        }

    def _after(self, run: Any, chunks: int) -> dict[str, torch.Tensor]:
        key = (run, chunks)
        if key not in self._weights:
            self._weights[key] = toy.train_plainly(Toy(), run, chunks)
        return self._weights[key]


def measure(setting: Setting, plain: Plain, world: int) -> dict[str, Any]:
    accumulation = setting.accumulation
    run = toy_run(setting.kind, setting.precision, setting.clip_norm, SEQUENCES, setting.steps)
    if setting.steps == FEW:
        # With the published 1e-6 a single element with a tiny gradient decides how far rounding
        # moves such a short run: 4e-7 to 9e-6, depending on chunks and processor.
        run = replace(run, optimizer=replace(run.optimizer, eps=1e-3))
    file = read_deepspeed_file(f"zero{setting.stage}" + "_offload" * setting.offload)
    if accumulation > 1:
        file = DeepSpeedFile("small", {**file.zero, **zero_settings.SMALL[setting.stage]})
    backward, step = StepTrace(), StepTrace()
    engine, norms = train(run, file, accumulation, backward, step)
    ours = whole_weights(engine)
    result = {
        **setting._asdict(), "runs_as": engine.stage, "norms": norms,
        "calls": step.calls, "sent": step.sent, "logical": len(engine.optimizer.logical),
        "world_size": world, "waits": backward.waits.total(),
        **plain.compared(run, world * accumulation, ours),
    }  # fmt: skip
    with engine.whole_weights() as weights:
        result["padding_is_zero"] = not any(
            weights[name][toy.VOCABULARY : toy.PADDED].count_nonzero()
            for name in ("embedding.weight", "bias")
        )
    result["refreshed"] = check_refresh(engine)
    bad = math.inf if setting.clip_norm else math.nan
    result["non_finite_skipped"] = check_non_finite(engine, bad)
    engine.close()
    return result


def measure_traffic(precision: str, stage: int, zero: dict[str, Any]) -> dict[str, Any]:
    """What the second step of a run, of two micro-batches, sends and where it waits."""
    run = toy_run("lamb", precision, CLIP, SEQUENCES, 2)
    file = DeepSpeedFile("traced", {**read_deepspeed_file(f"zero{stage}").zero, **zero})
    engine = started(run, file, 2)
    for count, parts in shares(run, engine.world_size, engine.rank, 2):
        backward, step = StepTrace(), StepTrace()
        with backward:
            for ids, marks in parts:
                engine.backward(engine(ids, marks), count)
        with step:
            engine.step(1e-3)
    engine.close()
    sent = {"backward": backward.sent, "step": step.sent}
    waits = {"backward": backward.waits, "step": step.waits}
    return {"precision": precision, "stage": stage, "zero": zero, "sent": sent, "waits": waits}


def measure_naive(stage: int, plain: Plain, world: int) -> dict[str, Any]:
    import deepspeed

    run = toy_run("lamb", "fp32", 0, SEQUENCES, MORE)
    model = Toy()
    optimizer = NaiveLamb(model.parameters(), run)
    config = deepspeed_dict(
        run, read_deepspeed_file(f"zero{stage}"),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        rows=SEQUENCES // world, accumulation=1, world_size=world,
    )  # fmt: skip
    wrapped, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    for step, (count, parts) in enumerate(shares(run, world, dist.get_rank(), 1), 1):
        for rows, marks in parts:
            wrapped.backward(wrapped(rows, marks) * world / count)
        optimizer.param_groups[0]["lr"] = learning_rate(run, step)
        wrapped.step()
    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        parameters = dict(model.named_parameters())
        ours = {r.name: view(parameters[r.parameter_name], r).clone() for r in records(Toy())}
    wrapped.destroy()
    return {"stage": stage, "world_size": world, **plain.compared(run, world, ours)}


def measure_refusals() -> dict[str, str]:
    """The errors for layouts that are, or might be, read wrongly."""
    run = toy_run("lamb", "fp32", 0, SEQUENCES, MORE)
    said = {}
    round_robin = {"stage": 2, "round_robin_gradients": True}
    genuine = fragments.REFUSED
    for name, zero, refused in (
        ("guarded", round_robin, genuine),
        ("unguarded", round_robin, {}),  # found by comparing the weights
        ("hpz", {"stage": 3, "zero_hpz_partition_size": 2}, genuine),
    ):
        fragments.REFUSED = refused
        try:
            started(run, DeepSpeedFile(name, zero), 1)
        except ConfigError as error:
            said[name] = str(error)
    fragments.REFUSED = genuine
    tested, process_group.TESTED_VERSION = process_group.TESTED_VERSION, "0.0.1"
    with contextlib.redirect_stderr(io.StringIO()) as output:
        process_group.deepspeed_library.__wrapped__()
    process_group.TESTED_VERSION = tested
    return said | {"version": output.getvalue()}


def main() -> None:
    torch.set_num_threads(1)
    init_distributed()
    world, plain = dist.get_world_size(), Plain()
    freeze()
    chosen = {
        "usual": zero_settings.usual(world), "whole": zero_settings.whole(world),
        "drift": zero_settings.DRIFT,
    }[sys.argv[2]]  # fmt: skip
    result: dict[str, Any] = {"exact": [measure(setting, plain, world) for setting in chosen]}
    if sys.argv[2] == "whole" or (sys.argv[2] == "usual" and world == 2):
        result["naive"] = [measure_naive(stage, plain, world) for stage in NAIVE.get(world, ())]
    if sys.argv[2] == "usual" and world == 2:
        result["refusals"] = measure_refusals()
    if world == 2 and sys.argv[2] in zero_settings.TRAFFIC:
        result["traffic"] = [
            measure_traffic(*setting) for setting in zero_settings.TRAFFIC[sys.argv[2]]
        ]
    if dist.get_rank() == 0:
        Path(sys.argv[1]).write_text(json.dumps(result, indent=1))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    run_command(main, at_once=True)
