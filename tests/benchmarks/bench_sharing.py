"""ALBERT's layers with shared weights and with separate weights: memory, seconds per step.

    python -m tests.benchmarks.bench_sharing [--threads N]

Both have the sizes of `albert_base`, fp32, LAMB, our engine at ZeRO stage 0 (no partitioning) on
the same random batch. Measures the bytes of weights, gradients and optimizer state that the
engine holds, each storage once; then each side's peak in a separate process, by the kernel. A
micro-batch (forward and backward) and the engine's step after it are interleaved: medians of
ratios, by the clock and by CPU seconds. The memory of the larger sizes is computed from their
parameters and the bytes per parameter measured for the base size.
"""

import argparse
import re
import statistics
import subprocess
import sys
from dataclasses import replace

import torch

from model.hugging_face.conversion import logical_parameters
from model.objectives.masked_language import Inputs
from pipeline.base.errors import run_command
from pipeline.cluster.process_group import init_distributed
from pipeline.config.run import Run
from pipeline.evaluation.loss_parts import first_count, loss_sum
from pipeline.loading.micro_batch import LossCounts
from pipeline.planning.build import build_model
from pipeline.planning.deepspeed_config import read_deepspeed_file
from pipeline.planning.phase_plan import encoder_config, parameters_of
from pipeline.recipes import recipe
from pipeline.training.optimizer import engine as engines
from tests.benchmarks.bench_electra import batch
from tests.benchmarks.bench_training import Seconds, parse_threads, print_peak, ratios, rounds
from tests.pipeline.training.held import held_bytes

SIZES = ("base", "large", "xlarge", "xxlarge")
SHARED, UNSHARED = "all", "none"
ROWS, LENGTH, ROUNDS = 4, 128, 7
GOAL_MEMORY, GOAL_SECONDS = 0.6, 1.0


def run_of(size: str, sharing: str) -> Run:
    """A recipe's run, in a precision that a CPU supports."""
    run = recipe(f"albert_{size}")
    return replace(run, precision="fp32", encoder=replace(run.encoder, sharing=sharing))


class Side:
    """An engine that trains on one batch."""

    def __init__(self, sharing: str) -> None:
        run = run_of("base", sharing)
        model = build_model(run, seed=0).train()
        self.parameters = sum(parameter.numel() for parameter in model.parameters())
        self.parts = model.parts
        self.inputs = inputs(run)
        self.counts = LossCounts(len(self.inputs.positions_K), ROWS * LENGTH, ROWS)
        self.engine = engines.initialize_engine(
            model, run, read_deepspeed_file("zero0"), logical_parameters(model),
            rows=ROWS, accumulation=1,
        )  # fmt: skip

    def micro_batch(self) -> None:
        loss = loss_sum(self.parts, self.engine(self.inputs), self.counts)
        self.engine.backward(loss, first_count(self.parts, self.counts))

    def step(self) -> None:
        self.engine.step(1e-4)


def inputs(run: Run) -> Inputs:
    """Random words, some of which are predicted, in pairs of segments."""
    given = batch(encoder_config(run), ROWS, LENGTH, run.data.masks.rate)
    segments = (torch.arange(LENGTH) >= LENGTH // 2).long().repeat(ROWS)
    return given._replace(
        segment_ids_T=segments,
        row_starts_R=LENGTH * torch.arange(ROWS),
        pair_labels_R=torch.arange(ROWS) % 2,
        draws_K=None,
    )


def bench() -> None:
    """Measure the seconds of both sides, and the memory that they hold."""
    shared, unshared = Side(SHARED), Side(UNSHARED)
    micro: list[tuple[Seconds, Seconds]] = []
    whole: list[tuple[Seconds, Seconds]] = []
    held = (0, 0)
    for counted in rounds(ROUNDS):
        first = Seconds.of(shared.micro_batch), Seconds.of(unshared.micro_batch)
        held = held_bytes(shared.engine), held_bytes(unshared.engine)
        second = Seconds.of(shared.step), Seconds.of(unshared.step)
        if counted:
            micro.append(first)
            whole.append((first[0] + second[0], first[1] + second[1]))
    for what, pairs in (("micro-batch", micro), ("step of one micro-batch", whole)):
        wall, cpu = ratios(pairs)
        seconds = [statistics.median(pair[side].wall for pair in pairs) for side in (0, 1)]
        print(
            f"sharing: {what}, {ROWS} x {LENGTH} tokens: shared {seconds[0]:.2f} s, unshared "
            f"{seconds[1]:.2f} s, ratio {wall:.3f} by the clock, {cpu:.3f} by CPU seconds (goal "
            f"<= {GOAL_SECONDS}), {torch.get_num_threads()} threads, {len(pairs)} rounds",
            flush=True,
        )
    each = [total / side.parameters for total, side in zip(held, (shared, unshared), strict=True)]
    print(
        f"sharing: albert_base holds {held[0] / 1e6:,.0f} MB, unshared {held[1] / 1e6:,.0f} MB, "
        f"{held[0] / held[1]:.1%} (goal <= {GOAL_MEMORY:.0%}); {each[0]:.2f} and {each[1]:.2f} "
        "bytes per parameter"
    )
    for size in SIZES[1:]:
        counts = [parameters_of(run_of(size, sharing)) for sharing in (SHARED, UNSHARED)]
        print(
            f"sharing: albert_{size}, {counts[0]:,} parameters, unshared {counts[1]:,}: "
            f"{counts[0] * each[0] / 1e9:,.1f} GB of {counts[1] * each[1] / 1e9:,.1f} GB, "
            f"{counts[0] * each[0] / (counts[1] * each[1]):.1%}",
            flush=True,
        )


def bench_peaks() -> None:
    """Measure the peaks of processes that train two steps of one side."""
    peaks = [alone(sharing) for sharing in (SHARED, UNSHARED)]
    print(
        f"sharing: peak memory of a process, activations and libraries included: shared "
        f"{peaks[0]:,.0f} MB, unshared {peaks[1]:,.0f} MB, {peaks[0] / peaks[1]:.1%}",
        flush=True,
    )


def alone(sharing: str) -> float:
    """Peak memory in megabytes."""
    result = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.bench_sharing", "--alone", sharing,
         "--threads", str(torch.get_num_threads())],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = re.search(r"peak (\d+)", result.stdout)
    assert found
    return int(found[1]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    sharing = parse_threads(parser).alone
    if sharing:
        init_distributed()
        side = Side(sharing)
        for _ in range(2):
            side.micro_batch()
            side.step()
        print_peak()
        return
    bench_peaks()  # first: separate processes must not inherit the state of a joined one
    init_distributed()
    bench()


if __name__ == "__main__":
    run_command(main, at_once=True)
