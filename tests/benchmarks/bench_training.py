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

Both sides take turns; medians of ratios. A part that takes too long on a busy machine ends after
fewer rounds, and prints how many there were.
"""

import os
import sys
from dataclasses import replace

import torch
import transformers
from torch import Tensor
from transformers import DataCollatorForLanguageModeling

from model.objectives.masked_language import Inputs, MaskedLanguageModel
from model.pieces import pieces_of
from pipeline.base.errors import run_command
from pipeline.config.run import Run
from pipeline.recipes import recipe
from pipeline.training.optimizer.engine import ZeroEngine
from tests.benchmarks.bench_loader import tokenizer_of_size
from tests.benchmarks.models import (
    MASK_ID,
    SPECIAL,
    fused_adamw,
    masked_language_model,
    roberta_of_transformers,
    zero_engine,
)
from tests.benchmarks.timing import THREADS, in_turn, median, parse, ratio, run_alone

LENGTH, ROWS, ROUNDS = 512, 4, 5
ACCUMULATION, ENGINE_STEPS = 8, 3
ALONE = ("ours", "theirs", "theirs, AdamW", "zero0", "zero1")
GOAL_SPEED, GOAL_MEMORY, GOAL_ENGINE = 1.3, 0.8, 1.05


def base_run(kind: str = "adamw") -> Run:
    run = recipe("roberta_base")
    return replace(run, precision="fp32", optimizer=replace(run.optimizer, kind=kind))


def collated(rows: int) -> dict[str, Tensor]:
    """Random full rows through transformers' collator: 15 % masked, a label at every position."""
    torch.manual_seed(0)
    vocabulary = base_run().data.vocab_size
    ids = torch.randint(SPECIAL, vocabulary, (rows, LENGTH))
    ids[:, 0], ids[:, -1] = 0, 2
    examples = [{"input_ids": row, "attention_mask": torch.ones_like(row)} for row in ids]
    return dict(DataCollatorForLanguageModeling(tokenizer_of_size(vocabulary))(examples))


def as_inputs(batch: dict[str, Tensor]) -> Inputs:
    """The same rows and masks as inputs of our model."""
    labels = batch["labels"].flatten()
    positions = (labels != -100).nonzero()[:, 0]
    weights = torch.ones(len(positions))
    ids = batch["input_ids"]
    pieces = pieces_of([ids.shape[1]] * len(ids))
    keys = torch.arange(ids.numel(), dtype=torch.int32)
    words = positions, labels[positions], weights
    return Inputs(ids.flatten(), pieces, *words, MASK_ID, dropout_keys_T=keys)


def our_micro_step(model: MaskedLanguageModel, inputs: Inputs, accumulation: int = 1) -> None:
    (model(inputs)["mlm_loss"] / (accumulation * len(inputs.positions_K))).backward()


def our_engine_micro_step(engine: ZeroEngine, inputs: Inputs, accumulation: int) -> None:
    engine.backward(engine(inputs)["mlm_loss"], accumulation * len(inputs.positions_K))


def bench_micro_step() -> tuple[float, float]:
    """Print and return sequences per second of ours and of theirs."""
    ours = masked_language_model(base_run())
    theirs = roberta_of_transformers(base_run(), weights=False)
    batch = collated(ROWS)
    inputs = as_inputs(batch)
    found = in_turn(
        {
            "ours": lambda: our_micro_step(ours, inputs),
            "theirs": lambda: theirs(**batch).loss.backward(),
        },
        ROUNDS,
    )
    speed, peer = (ROWS / median(found[side]).wall for side in ("ours", "theirs"))
    faster = ratio(found["theirs"], found["ours"])
    print(
        f"training: micro-step {ROWS} x {LENGTH}, fp32, dropout 0.1, {torch.get_num_threads()} "
        f"threads: ours {speed:.2f} sequences/s, transformers {peer:.2f}, ratio {faster.wall:.2f} "
        f"by the clock, {faster.cpu:.2f} by CPU seconds (goal >= {GOAL_SPEED}), "
        f"{len(found['ours'])} rounds",
        flush=True,
    )
    return speed, peer


def bench_memory() -> None:
    """Measure peaks of processes that do one thing."""
    module = (sys.executable, "-m", "tests.benchmarks.bench_training")
    threads = ("--threads", torch.get_num_threads())
    peaks = {name: run_alone(*module, *threads, "--alone", name).peak for name in ALONE}
    for name, peer in (("ours", "theirs"), ("zero0", "theirs, AdamW"), ("zero1", "theirs, AdamW")):
        print(
            f"training: peak memory: {name} {peaks[name]:,.0f} MB, {peer} {peaks[peer]:,.0f} MB, "
            f"{peaks[name] / peaks[peer]:.0%} (goal <= {GOAL_MEMORY:.0%}, but for zero1)",
            flush=True,
        )


def measure_alone(name: str) -> None:
    """The work of a process that `bench_memory` starts."""
    batch = collated(ROWS)
    inputs = as_inputs(batch)
    if name.startswith("theirs"):
        theirs = roberta_of_transformers(base_run(), weights=False)
        optimizer = fused_adamw(theirs, base_run())
        for _ in range(2):
            theirs(**batch).loss.backward()
        if name == "theirs, AdamW":
            optimizer.step()
            theirs(**batch).loss.backward()
    elif name == "ours":
        ours = masked_language_model(base_run())
        for _ in range(2):
            our_micro_step(ours, inputs)
    else:
        model = masked_language_model(base_run())
        engine = zero_engine(model, base_run(), name, rows=ROWS, accumulation=2)
        for _ in range(2):
            our_engine_micro_step(engine, inputs, 2)
        engine.step(1e-4)
        our_engine_micro_step(engine, inputs, 2)


def bench_engine() -> None:
    """Measure steps of the engine and of a bare loop."""
    run, model = base_run(), masked_language_model(base_run())
    engine = zero_engine(masked_language_model(run), run, accumulation=ACCUMULATION)
    optimizer = fused_adamw(model, run)
    inputs = as_inputs(collated(1))

    def engine_step() -> None:
        for _ in range(ACCUMULATION):
            our_engine_micro_step(engine, inputs, ACCUMULATION)
        engine.step(1e-4)

    def bare_step() -> None:
        for _ in range(ACCUMULATION):
            our_micro_step(model, inputs, ACCUMULATION)
        torch.nn.utils.clip_grad_norm_(model.parameters(), run.optimizer.clip_norm)
        optimizer.step()
        optimizer.zero_grad()

    found = in_turn({"engine": engine_step, "bare": bare_step}, ENGINE_STEPS)
    engine.close()
    slower = ratio(found["engine"], found["bare"])
    print(
        f"training: step of {ACCUMULATION} x 1 x {LENGTH} with AdamW: our engine "
        f"{median(found['engine']).wall:.1f} s, bare loop {median(found['bare']).wall:.1f} s, "
        f"ratio {slower.wall:.3f} by the clock, {slower.cpu:.3f} by CPU seconds (goal <= "
        f"{GOAL_ENGINE}), {len(found['bare'])} rounds",
        flush=True,
    )


def main() -> None:
    name = parse(__doc__, threads=THREADS, alone="").alone
    transformers.logging.set_verbosity_error()
    if name:
        measure_alone(name)
        return
    loads = [os.getloadavg()[0]]
    bench_memory()
    bench_micro_step()
    bench_engine()
    loads.append(os.getloadavg()[0])
    print(f"training: load before {loads[0]:.1f}, after {loads[1]:.1f} (ours alone would be <= 2)")


if __name__ == "__main__":
    run_command(main, at_once=True)
