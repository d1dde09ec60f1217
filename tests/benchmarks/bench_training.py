"""RoBERTa-base on a CPU in fp32: our step and transformers', and DeepSpeed's cost.

    python -m tests.benchmarks.bench_training

- Micro-step: forward and backward of the same rows and masks, dropout 0.1, the same threads. Theirs
  does what transformers' Trainer does: batches of its collator, SDPA attention, the head and the
  loss at every position. Ours computes them at predicted positions only.
- Peak memory: each in a separate process, by the kernel; then again with an AdamW step, theirs with
  Trainer's fused AdamW, ours in our engine at ZeRO stage 0, which like theirs partitions nothing,
  and at stage 1, whose copies of the weights only pay off with more ranks.
- Engine: our engine under ZeRO-1 with accumulation 8, and a bare loop on our model with PyTorch's
  fused AdamW and clipping.

All comparisons are interleaved, piece by piece; medians of ratios, by the clock and by CPU seconds,
since other work on the machine affects the clock. A part that takes too long on a busy machine ends
after fewer rounds, and prints how many there were.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
import transformers
from torch import Tensor
from transformers import DataCollatorForLanguageModeling

from model.hugging_face.conversion import logical_parameters, to_hugging_face
from model.objectives.masked_language import Inputs, MaskedLanguageModel
from model.pieces import pieces_of
from pipeline.base.errors import run_command
from pipeline.cluster.process_group import init_distributed
from pipeline.config.run import Run
from pipeline.planning.deepspeed_config import read_deepspeed_file
from pipeline.planning.phase_plan import encoder_config
from pipeline.recipes import recipe
from pipeline.training.optimizer import engine as engines
from tests.benchmarks.bench_loader import SPECIAL, tokenizer_of_size

LENGTH, MASK_ID = 512, 4
ROWS, ROUNDS = 4, 5
"""Rows of the micro-step."""
ACCUMULATION, ENGINE_STEPS = 8, 3
MOST_SECONDS = 75
"""Seconds for a part; then it ends with the rounds it has, at least one."""
GOAL_SPEED, GOAL_MEMORY, GOAL_ENGINE = 1.3, 0.8, 1.05


class Seconds(NamedTuple):
    """Duration of a piece of work."""

    wall: float
    cpu: float

    @classmethod
    def of(cls, work: Callable[[], object]) -> Seconds:
        started = time.perf_counter(), time.process_time()
        work()
        return cls(time.perf_counter() - started[0], time.process_time() - started[1])

    def __add__(self, other: Seconds) -> Seconds:  # type: ignore[override]
        return Seconds(self.wall + other.wall, self.cpu + other.cpu)


def rounds(most: int) -> Iterator[bool]:
    """False for a warm-up round, then True for up to `most` rounds that count."""
    yield False
    until = time.perf_counter() + MOST_SECONDS
    for number in range(most):
        if number and time.perf_counter() > until:
            return
        yield True


def parse_threads(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The command line, with --threads, which is set in torch."""
    parser.add_argument(
        "--threads", type=int, metavar="N", default=torch.get_num_threads(),
        help="torch threads; 1 on a busy machine, so that other work does not inflate CPU seconds",
    )  # fmt: skip
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    return options


def base_run(kind: str = "adamw") -> Run:
    run = recipe("roberta_base")
    return replace(run, precision="fp32", optimizer=replace(run.optimizer, kind=kind))


def collated(rows: int, seed: int) -> dict[str, Tensor]:
    """Random full rows through transformers' collator: 15 % masked, a label at every position."""
    torch.manual_seed(seed)
    vocabulary = base_run().data.vocab_size
    ids = torch.randint(SPECIAL, vocabulary, (rows, LENGTH))
    ids[:, 0], ids[:, -1] = 0, 2
    examples = [{"input_ids": row, "attention_mask": torch.ones_like(row)} for row in ids]
    return dict(collator()(examples))


def collator() -> DataCollatorForLanguageModeling:
    return DataCollatorForLanguageModeling(tokenizer_of_size(base_run().data.vocab_size))


def as_inputs(batch: dict[str, Tensor]) -> Inputs:
    """The same rows and masks as inputs of our model."""
    labels = batch["labels"].flatten()
    positions = (labels != -100).nonzero()[:, 0]
    weights = torch.ones(len(positions))
    ids = batch["input_ids"]
    pieces = pieces_of([ids.shape[1]] * len(ids))
    return Inputs(ids.flatten(), pieces, positions, labels[positions], weights, MASK_ID)


def our_model() -> MaskedLanguageModel:
    return MaskedLanguageModel(encoder_config(base_run()), seed=0).train()


def their_model() -> transformers.RobertaForMaskedLM:
    """transformers' model of the same size, configured by our converter."""
    with torch.device("meta"):
        _, config = to_hugging_face(MaskedLanguageModel(encoder_config(base_run()), seed=0))
    config.pop("architectures"), config.pop("model_type")
    settings = transformers.RobertaConfig(**config, attn_implementation="sdpa")
    return transformers.RobertaForMaskedLM(settings).train()


def our_micro_step(model: MaskedLanguageModel, inputs: Inputs) -> None:
    (model(inputs)["mlm_loss"] / len(inputs.positions_K)).backward()


def their_micro_step(model: transformers.RobertaForMaskedLM, batch: dict[str, Tensor]) -> None:
    model(**batch).loss.backward()


def bench_micro_step() -> tuple[float, float]:
    """Print and return sequences per second of ours and of theirs, interleaved."""
    ours, theirs = our_model(), their_model()
    batch = collated(ROWS, 0)
    inputs = as_inputs(batch)
    found: list[tuple[Seconds, Seconds]] = []
    for counts in rounds(ROUNDS):
        pair = (
            Seconds.of(lambda: our_micro_step(ours, inputs)),
            Seconds.of(lambda: their_micro_step(theirs, batch)),
        )
        if counts:
            found.append(pair)
    speeds = [ROWS / statistics.median(pair[side].wall for pair in found) for side in (0, 1)]
    wall, cpu = ratios([(their, our) for our, their in found])
    print(
        f"training: micro-step {ROWS} x {LENGTH}, fp32, dropout 0.1, {torch.get_num_threads()} "
        f"threads: ours {speeds[0]:.2f} sequences/s, transformers {speeds[1]:.2f}, ratio "
        f"{wall:.2f} by the clock, {cpu:.2f} by CPU seconds (goal >= {GOAL_SPEED}), "
        f"{len(found)} rounds",
        flush=True,
    )
    return speeds[0], speeds[1]


def ratios(pairs: list[tuple[Seconds, Seconds]]) -> tuple[float, float]:
    """Medians of first / second, by the clock and by CPU seconds."""
    return (
        statistics.median(first.wall / second.wall for first, second in pairs),
        statistics.median(first.cpu / second.cpu for first, second in pairs),
    )


def bench_memory() -> None:
    """Measure peaks of processes that do one thing."""
    peaks = {name: alone(name) for name in ("ours", "transformers", "zero0", "zero1")}
    ours, theirs = peaks["ours"][0], peaks["transformers"][0]
    print(
        f"training: peak memory of the micro-step: ours {ours:,.0f} MB, transformers "
        f"{theirs:,.0f} MB, {ours / theirs:.0%} (goal <= {GOAL_MEMORY:.0%})"
    )
    theirs = peaks["transformers"][-1]
    for name in ("zero0", "zero1"):
        ours = peaks[name][-1]
        print(
            f"training: peak memory with AdamW: our engine ({name}) {ours:,.0f} MB, transformers "
            f"{theirs:,.0f} MB, {ours / theirs:.0%} (goal <= {GOAL_MEMORY:.0%} at zero0)",
            flush=True,
        )


def alone(name: str) -> list[float]:
    """Peak memory in megabytes of a separate process, at several points."""
    result = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.bench_training", "--alone", name,
         "--threads", str(torch.get_num_threads())],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [float(number) / 1024 for number in re.findall(r"peak (\d+)", result.stdout)]


def measure_alone(name: str) -> None:
    """The work of the process that `alone` starts."""
    batch = collated(ROWS, 0)
    inputs = as_inputs(batch)
    if name.startswith("zero"):
        engine = our_engine(our_model(), ROWS, 2, name)
        for _ in range(2):
            our_engine_micro_step(engine, inputs, 2)
        engine.step(1e-4)
        our_engine_micro_step(engine, inputs, 2)
    elif name == "ours":
        model = our_model()
        for _ in range(2):
            our_micro_step(model, inputs)
    else:
        peer = their_model()
        for _ in range(2):
            their_micro_step(peer, batch)
        print_peak()
        optimizer = adamw(peer)  # keeps the moments
        optimizer.step()
        their_micro_step(peer, batch)
    print_peak()


def print_peak() -> None:
    # not ru_maxrss: it includes the memory of the process that started this one
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found
    print("peak", found[1])


def our_engine(
    model: MaskedLanguageModel, rows: int, accumulation: int, stage: str = "zero1"
) -> engines.ZeroEngine:
    """A ZeRO stage with AdamW on this process alone."""
    init_distributed()
    return engines.initialize_engine(
        model, base_run(), read_deepspeed_file(stage), logical_parameters(model),
        rows=rows, accumulation=accumulation,
    )  # fmt: skip


def our_engine_micro_step(engine: engines.ZeroEngine, inputs: Inputs, accumulation: int) -> None:
    engine.backward(engine(inputs)["mlm_loss"], accumulation * len(inputs.positions_K))


def adamw(model: torch.nn.Module) -> torch.optim.Optimizer:
    """PyTorch's fused AdamW with the recipe's settings."""
    settings = base_run().optimizer
    matrices = [part for part in model.parameters() if part.dim() > 1]
    vectors = [part for part in model.parameters() if part.dim() == 1]
    groups = [
        {"params": matrices, "weight_decay": settings.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    betas = (settings.beta1, settings.beta2)
    return torch.optim.AdamW(groups, lr=1e-4, betas=betas, eps=settings.eps, fused=True)


def bench_engine(engine: engines.ZeroEngine) -> None:
    """Measure steps of the engine and of a bare loop, interleaved by micro-batch."""
    model = our_model()
    optimizer = adamw(model)
    inputs = as_inputs(collated(1, 0))

    def bare_micro_step() -> None:
        (model(inputs)["mlm_loss"] / (ACCUMULATION * len(inputs.positions_K))).backward()

    def bare_step() -> None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), base_run().optimizer.clip_norm)
        optimizer.step()
        optimizer.zero_grad()

    found = []
    for counts in rounds(ENGINE_STEPS):
        ours = bare = Seconds(0, 0)
        for _ in range(ACCUMULATION):
            ours += Seconds.of(lambda: our_engine_micro_step(engine, inputs, ACCUMULATION))
            bare += Seconds.of(bare_micro_step)
        ours += Seconds.of(lambda: engine.step(1e-4))
        bare += Seconds.of(bare_step)
        if counts:
            found.append((ours, bare))
    wall, cpu = ratios(found)
    seconds = [statistics.median(pair[side].wall for pair in found) for side in (0, 1)]
    print(
        f"training: step of {ACCUMULATION} x 1 x {LENGTH} with AdamW: our engine {seconds[0]:.1f} "
        f"s, bare loop {seconds[1]:.1f} s, ratio {wall:.3f} by the clock, {cpu:.3f} by CPU seconds "
        f"(goal <= {GOAL_ENGINE}), {len(found)} rounds",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    name = parse_threads(parser).alone
    transformers.logging.set_verbosity_error()
    if name:
        measure_alone(name)
        return
    loads = [os.getloadavg()[0]]
    bench_memory()
    bench_micro_step()
    engine = our_engine(our_model(), 1, ACCUMULATION)
    bench_engine(engine)
    engine.close()
    loads.append(os.getloadavg()[0])
    print(f"training: load before {loads[0]:.1f}, after {loads[1]:.1f} (ours alone would be <= 2)")


if __name__ == "__main__":
    run_command(main, at_once=True)
