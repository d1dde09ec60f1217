"""LAMB's cost on a CPU: the optimizer step of RoBERTa-base in the engine under ZeRO-1, fp32.

    python -m tests.benchmarks.bench_optimizer

Six implementations of a step, interleaved round by round: LAMB, AdamW, StableAdamW, PyTorch's fused
AdamW on the same fragments and, for comparison, LAMB in PyTorch's operations and a naive LAMB,
which takes the norms of ZeRO's flat tensors instead of weights. Times are of the whole
`ZeroEngine.step`, which includes DeepSpeed's copies, and of our part of it, by the clock and by the
CPU seconds of this process, which other work on the machine affects less. Then LAMB's cost in a
whole training step of 8 micro-batches, with the micro-batch measured here too. And how far naive
LAMB, LAMB and AdamW deviate on two ranks: the tests' small network, 50 steps.
"""

import argparse
import os
import statistics
from collections.abc import Sequence
from typing import Any

import torch

from pipeline.base.errors import run_command
from pipeline.training.optimizer.cpu_update import CompiledUpdate
from pipeline.training.optimizer.engine import ZeroEngine
from pipeline.training.optimizer.fragments import view
from pipeline.training.optimizer.gpu_update import ForeachUpdate
from pipeline.training.optimizer.lamb_variants import AdamStep
from tests.benchmarks.bench_training import (
    ACCUMULATION,
    SPECIAL,
    Seconds,
    as_inputs,
    base_run,
    collated,
    our_engine,
    our_engine_micro_step,
    our_model,
    parse_threads,
    ratios,
    rounds,
)
from tests.pipeline.training.zero_launch import measured

ROUNDS = 9
FUSED = "PyTorch's fused AdamW"
GOAL_STEP, GOAL_WHOLE = 1.1, 1.02
TRAFFIC = {"lamb": 44, "adamw": 32}
"""Bytes of memory read and written per parameter: the gradient for its norm (4); weight, gradient
and moments read, moments written (24); AdamW writes the weight (4); LAMB writes the update, then,
with the norms, reads it and the weight and writes the weight (16)."""


class FusedAdamW(CompiledUpdate):
    """PyTorch's fused AdamW; everything else as in ours."""

    def set_fragments(self, engine: ZeroEngine) -> None:
        """The fragments of an engine at stage 1, whose weights are in one flat tensor."""
        optimizer = engine.optimizer
        self.parts = [*optimizer._fragments]
        self.states = [*optimizer.fragments()]
        self.decays = [optimizer._decay(optimizer.logical[part.logical]) for part in self.parts]
        self.step = torch.zeros(())

    def advance_and_apply(
        self, gradients: Sequence[torch.Tensor], adam: AdamStep, rate: float
    ) -> None:
        self.step.fill_(adam.updates)
        scale = None if adam.gradient_scale == 1 else torch.tensor(1 / adam.gradient_scale)
        for decay in set(self.decays):
            own = [index for index, found in enumerate(self.decays) if found == decay]
            torch._fused_adamw_(
                [self.states[index].weight for index in own],
                [view(gradients[0], self.parts[index]) for index in own],
                [self.states[index].exp_avg for index in own],
                [self.states[index].exp_avg_sq for index in own],
                [], [self.step] * len(own), lr=rate, beta1=adam.beta1, beta2=adam.beta2,
                weight_decay=decay, eps=adam.eps, amsgrad=False, maximize=False, grad_scale=scale,
            )  # fmt: skip


class NaiveLamb(CompiledUpdate):
    """One trust ratio for everything that a rank has; the rest as in ours."""

    def advance(self, gradients: Sequence[torch.Tensor], adam: AdamStep) -> torch.Tensor:
        squares = super().advance(gradients, adam)
        first = torch.ones_like(self.owners, dtype=torch.bool)
        first[1:] = self.owners[1:] != self.owners[:-1]  # first piece of a logical parameter
        return squares.sum(1, keepdim=True) * first


def updates(engine: ZeroEngine) -> dict[str, tuple[str, Any]]:
    """What is compared: the kind of the optimizer, and the implementation of its arithmetic."""
    optimizer = engine.optimizer
    ours = optimizer._update
    moments = [tuple(optimizer.state[flat].values()) for flat in optimizer._flats]
    decays = [optimizer._decay(part) for part in optimizer.logical]
    parts = (optimizer._flats, moments, optimizer._fragments, decays)
    fused = FusedAdamW(*parts)  # type: ignore[arg-type]
    fused.set_fragments(engine)
    foreach = ForeachUpdate(*parts)  # type: ignore[arg-type]
    return {
        "LAMB": ("lamb", ours),
        "AdamW": ("adamw", ours),
        "StableAdamW": ("stable_adamw", ours),
        FUSED: ("adamw", fused),
        "LAMB, PyTorch's operations": ("lamb", foreach),
        "naive LAMB": ("lamb", NaiveLamb(*parts)),  # type: ignore[arg-type]
    }


Pair = tuple[Seconds, Seconds]
"""Seconds of `ZeroEngine.step`, and of our part of it."""


def bench_steps(engine: ZeroEngine) -> dict[str, list[Pair]]:
    """Rounds after a warm-up; every step has its own gradients, as in training."""
    batch = {name: value[:, :8] for name, value in collated(1, 0).items()}
    batch["labels"][0, 1] = SPECIAL
    inputs = as_inputs(batch)
    optimizer, ways = engine.optimizer, updates(engine)
    plain_step, ours = optimizer.step, Seconds(0, 0)

    def timed_step() -> None:
        nonlocal ours
        ours = Seconds.of(plain_step)

    optimizer.step = timed_step  # type: ignore[assignment,method-assign]
    found: dict[str, list[Pair]] = {name: [] for name in ways}
    for counts in rounds(ROUNDS):
        for name, (kind, update) in ways.items():
            optimizer.settings, optimizer._update = base_run(kind).optimizer, update
            our_engine_micro_step(engine, inputs, 1)
            whole = Seconds.of(lambda: engine.step(1e-4))
            if counts:
                found[name].append((whole, ours))
    optimizer.step = plain_step  # type: ignore[method-assign]
    return found


def report(found: dict[str, list[Pair]], micro_batch: float) -> None:
    """micro_batch: CPU seconds of one micro-batch."""
    lamb, fused = found["LAMB"], found[FUSED]
    for name, pairs in found.items():
        wall, cpu, own = (
            statistics.median(values) * 1e3
            for values in zip(*((whole.wall, whole.cpu, ours.cpu) for whole, ours in pairs))
        )
        ratio = [ratios([(a[side], b[side]) for a, b in zip(pairs, fused)]) for side in (0, 1)]
        print(
            f"optimizer: {name}: step {wall:.0f} ms, CPU {cpu:.0f} ms, of it ours {own:.0f} ms; "
            f"to {FUSED}: step {ratio[0][0]:.3f} (CPU {ratio[0][1]:.3f}), ours {ratio[1][0]:.3f} "
            f"(CPU {ratio[1][1]:.3f})"
        )
    adamw = ratios([(a[0], b[0]) for a, b in zip(lamb, found["AdamW"])])
    print(
        f"optimizer: LAMB's step is {adamw[0]:.3f} of our AdamW's by the clock, {adamw[1]:.3f} by "
        f"CPU seconds (goal <= {GOAL_STEP}); by memory traffic, ours alone: "
        f"{TRAFFIC['lamb'] / TRAFFIC['adamw']:.3f}"
    )
    work = ACCUMULATION * micro_batch
    whole = statistics.median(
        (work + a[0].cpu) / (work + b[0].cpu) for a, b in zip(lamb, fused, strict=True)
    )
    print(
        f"optimizer: a whole step of {ACCUMULATION} x 1 x 512 with LAMB is {whole:.4f} of one with "
        f"{FUSED} (goal <= {GOAL_WHOLE}), {len(lamb)} rounds"
    )


def report_distances() -> None:
    """Distances from an unsharded run, relative to the distance that it moved."""
    found = measured(2, "naive")
    for result in found["naive"]:
        print(
            f"optimizer: naive LAMB, 2 ranks, stage {result['stage']}: {result['distance']:.2g} "
            f"away from LAMB, whose floor of rounding is {result['floor']:.1e}"
        )
    for result in found["exact"]:
        sent = sum(result["sent"].values())
        computed = 8 + (16 * result["logical"] if result["kind"] == "lamb" else 0)
        print(
            f"optimizer: {result['kind']}, 2 ranks, stage {result['stage']}: "
            f"{result['distance']:.1e} away, floor {result['floor']:.1e}; "
            f"all-reduces of {sent} bytes, computed {computed}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parse_threads(parser)
    load = os.getloadavg()[0]
    engine = our_engine(our_model(), 1, 1)
    inputs = as_inputs(collated(1, 0))
    micro_batches = []
    for _ in range(3):
        micro_batches.append(Seconds.of(lambda: our_engine_micro_step(engine, inputs, 1)).cpu)
        engine.step(1e-4)
    found = bench_steps(engine)
    print(f"optimizer: {torch.get_num_threads()} threads, load {load:.1f} before")
    report(found, statistics.median(micro_batches))
    engine.close()
    report_distances()


if __name__ == "__main__":
    run_command(main, at_once=True)
