"""Measures what the design assumes about a GPU, in under ten minutes; prints a Markdown section.

    python -m tests.benchmarks.gpu_gate [--shards DIR] [--append tests/benchmarks/RESULTS.md]
        [--cache FILE]

DIR holds shards of 512 tokens made with roberta_base's data settings; without it the sample corpus
is prepared first. gpu_gate.md says how to run this on a machine without network. --dry-run runs
every part on the CPU at toy size: it shows that the code works, but its figures mean nothing.
Without a GPU: one line, exit code 2. A part that fails is named in the section, the others
continue, exit code 1.

Versions come first, then each part as soon as it is measured, so a gate that is killed leaves the
parts before, and in FILE what they compiled, which a later gate with FILE need not compile. A part
stops at its share of the time; what it does not use is left to the next ones.

Utilisation is model FLOPs (model/objectives/flops.py) over the dense bf16 peak of the data sheet,
pads included.
"""

import argparse
import contextlib
import datetime
import gc
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from pipeline.base.errors import run_command
from pipeline.base.null_device import NULL
from pipeline.cluster.process_group import device_name, init_distributed
from pipeline.cluster.stop_request import process_seconds
from pipeline.config.run import Run
from pipeline.evaluation.device_copies import on_device
from pipeline.evaluation.model_inputs import model_inputs
from pipeline.loading.dataset import Dataset
from pipeline.loading.loader import Loader, Step
from pipeline.loading.micro_batch import BatchForm, MicroBatch
from pipeline.loading.order import Order, Share
from pipeline.planning.phase_plan import make_plan
from pipeline.planning.schedule import learning_rate
from tests.benchmarks.gpu_attention import attention_kernels
from tests.benchmarks.gpu_gradients import gradients
from tests.benchmarks.gpu_parts import (
    Gate,
    flops_of,
    load_cache,
    optimizer_steps,
    product_rates,
    save_cache,
    table,
    utilisation,
)
from tests.benchmarks.gpu_steps import Trace, compile_layers, micro_steps, size_sweep, traced
from tests.benchmarks.models import (
    fused_adamw,
    masked_language_model,
    roberta_of_transformers,
    zero_engine,
)

BUDGET_SECONDS = 570
"""Of the whole process, imports and preparation included."""
WARM_UP = 2
"""Steps of a training that are not timed: of the first one compiles."""
START_SECONDS = 60
"""Of these, until the first part."""


WHOLE: dict[str, Any] = {
    "recipes": ("roberta_large", "roberta_base"),
    "checked": ("roberta_tiny", "albert_tiny", "modernbert_tiny"),
    "sizes": (64, 66, 132), "rows": 64, "batch": 256, "steps": 300, "repeats": 10,
}  # fmt: skip
TOY: dict[str, Any] = {
    "recipes": ("roberta_tiny",), "checked": ("roberta_tiny",),
    "sizes": (2, 4), "rows": 2, "batch": 4, "steps": 3, "repeats": 1,
}  # fmt: skip
"""Of a dry run."""


class Trained(NamedTuple):
    """A short training."""

    losses: list[float]
    speed: float
    """Sequences per second after the first tenth of the steps."""
    tokens: float
    """Of a sequence, on average."""
    dead: float
    """Share of the computed tokens that belong to no sequence."""
    trace: Trace | None
    """Of one more step."""


def loader_of(gate: Gate, run: Run) -> Loader:
    """Of the same steps for both sides."""
    dataset = Dataset.open(gate.shards)
    share = Share(sequences=run.batch.sequences, per_device=run.batch.per_device)
    on_gpu = gate.device.type == "cuda"
    plan = make_plan(run, 1, 1, [dataset], [], run.steps)
    return Loader(
        [dataset], Order(kind="global", seed=0, piece_rows=(dataset.piece_rows,)), share,
        prefetch=2 * share.accumulation,
        form=BatchForm(capacity=plan.on_gpu.capacity if on_gpu else None, pin_memory=on_gpu),
    )  # fmt: skip


def train(
    gate: Gate,
    run: Run,
    micro_batch: Callable[[MicroBatch, int], Tensor],
    update: Callable[[float], object],
    share: float,
    is_traced: bool,
) -> Trained:
    """Train some steps.

    micro_batch: runs forward and backward, given the predictions of the whole step, and returns
    the sum of losses; update: given the learning rate; share: of the remaining time; is_traced:
    trace one more step.
    """
    until = time.perf_counter() + share * gate.left()
    losses: list[Tensor] = []
    tokens = places = sequences = 0

    def one(step: Step) -> None:
        nonlocal tokens, places, sequences
        sums = []
        for batch in on_device(step.batches, gate.device):
            sums.append(micro_batch(batch, step.counts.predictions))
            tokens, places = tokens + batch.tokens, places + batch.input_ids.numel()
            sequences += len(batch.samples)
        update(learning_rate(run, len(losses) + 1))
        losses.append(torch.stack(sums).sum() / step.counts.predictions)

    with contextlib.closing(loader_of(gate, run)) as loader:
        steps = iter(loader.steps())
        for step in islice(steps, WARM_UP):
            one(step)
        gate.wait()
        started = time.perf_counter()
        for step in islice(steps, run.steps - WARM_UP):
            one(step)
            if time.perf_counter() > until and len(losses) % 2 == 0:
                break
        gate.wait()
        seconds = time.perf_counter() - started
        speed = (len(losses) - WARM_UP) * run.batch.sequences / seconds
        trace = None
        if is_traced and (step := next(steps, None)):
            trace = traced(gate, step.accumulation, partial(one, step))
    found = [float(loss) for loss in losses]
    return Trained(found, speed, tokens / sequences, 1 - tokens / places, trace)


def train_ours(gate: Gate, run: Run, share: float, is_traced: bool = False) -> Trained:
    """Our engine: ZeRO-1, bf16, compiled layers; share, is_traced: as in `train`."""
    model = masked_language_model(run).to(init_distributed())
    compile_layers(gate, model)
    accumulation = Share(sequences=run.batch.sequences, per_device=gate.rows).accumulation
    tokenizer = Dataset.open(gate.shards).manifest.tokenizer
    engine = zero_engine(model, run, rows=gate.rows, accumulation=accumulation)

    def micro_batch(batch: MicroBatch, predictions: int) -> Tensor:
        scored = engine(model_inputs(batch, tokenizer))
        engine.backward(scored["mlm_loss"], predictions)
        return scored["mlm_loss"].detach()

    found = train(gate, run, micro_batch, engine.step, share, is_traced)
    engine.close()
    return found


def train_theirs(gate: Gate, run: Run) -> Trained:
    """transformers as its Trainer runs it with bf16: autocast, the head at every position."""
    import transformers

    transformers.logging.set_verbosity_error()
    model = roberta_of_transformers(run, weights=True).to(gate.device)
    optimizer = fused_adamw(model, run)

    def micro_batch(batch: MicroBatch, predictions: int) -> Tensor:
        used = batch.predictions
        labels = torch.full_like(batch.input_ids, -100)
        labels[batch.positions[:used]] = batch.labels[:used]
        # as a collator does, rows of one length: pads are masked and have no label
        parts = [[values[row] for row in batch.rows] for values in (batch.input_ids, labels)]
        ids = pad_sequence(parts[0], batch_first=True, padding_value=1)
        shown = pad_sequence([torch.ones_like(part) for part in parts[0]], batch_first=True)
        labels = pad_sequence(parts[1], batch_first=True, padding_value=-100)
        with torch.autocast(gate.device.type, torch.bfloat16):
            loss = model(ids, attention_mask=shown, labels=labels).loss
        (loss * (used / predictions)).backward()
        return loss.detach() * used

    def update(rate: float) -> None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), run.optimizer.clip_norm)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        optimizer.zero_grad()

    return train(gate, run, micro_batch, update, 0.8, is_traced=False)


def training(gate: Gate) -> str:
    """A short training of the smallest recipe on both sides: loss curves and speed."""
    run = gate.run(gate.recipes[-1])
    ours, theirs = train_ours(gate, run, 0.4), train_theirs(gate, run)
    speeds = [
        [
            name, f"{side.speed:.0f}", utilisation(gate, side.speed * sequence_flops(run)),
            str(len(side.losses)),
        ]
        for name, side in (("ours", ours), ("transformers + AdamW", theirs))
    ]  # fmt: skip
    pairs = [*zip(ours.losses, theirs.losses)]
    every = max(1, len(pairs) // 10)
    gap = sum(abs(our - their) for our, their in pairs[-every:]) / every
    marks = sorted({0, *range(every - 1, len(pairs), every), len(pairs) - 1})
    curves = [[str(mark + 1), *(f"{loss:.4f}" for loss in pairs[mark])] for mark in marks]
    return "\n\n".join(
        [
            f"{run.name}, bf16, AdamW on both sides, batch {gate.batch} in micro-batches of "
            f"{gate.rows}, dropout 0.1, the same weights at the start, the same rows and masks in "
            "the same order, data loading and optimizer steps included. Ours: engine under ZeRO-1, "
            "layers compiled. Theirs: autocast, eager, head at every position, fused AdamW.",
            table(["side", "sequences/s", "utilisation", "steps"], speeds),
            f"Ratio {ours.speed / theirs.speed:.2f}. Losses; mean gap of the last tenth {gap:.4f} "
            "(dropout draws differ):",
            table(["step", "ours", "transformers"], curves),
        ]
    )


def sequence_flops(run: Run) -> float:
    """FLOPs of training on one sequence."""
    sequences = run.batch.sequences
    predictions = round(sequences * run.data.sequence_length * run.data.masks.rate)
    return flops_of(run, sequences, predictions) / sequences


def largest_with_lamb(gate: Gate) -> str:
    """What the recipes train with: the largest model, LAMB, real rows."""
    run = gate.run(gate.recipes[0], "lamb")
    gate.forget_peak()
    found = train_ours(gate, run, 0.8, is_traced=True)
    assert found.trace
    tokens = found.speed * found.tokens
    peak = gate.peak_gb()
    row = [
        f"{found.speed:.0f}", f"{tokens:,.0f}",
        utilisation(gate, found.speed * sequence_flops(run)),
        f"{found.dead:.1%}", f"{peak:.1f}", str(len(found.losses)),
        f"{found.losses[0]:.3f}, {found.losses[-1]:.3f}",
    ]  # fmt: skip
    columns = [
        "sequences/s", "tokens/s", "utilisation", "dead tokens", "peak GB", "steps",
        "first and last loss",
    ]  # fmt: skip
    return (
        f"{run.name}, bf16, LAMB, ZeRO-1, layers compiled, dropout 0.1, batch {gate.batch} in "
        f"micro-batches of {gate.rows}, data loading and optimizer steps included.\n\n"
        + table(columns, [row])
        + "\n\n"
        + found.trace.markdown(gate, run.name)
    )


class Part(NamedTuple):
    """A part of the gate."""

    title: str
    seconds: float
    """Its share of the time."""
    measure: Callable[[Gate], str]
    """Returns Markdown; looks at the gate's remaining time."""


PARTS = (
    Part("Matrix products", 20, product_rates),
    Part("Gradients", 40, gradients),
    Part("Attention", 30, attention_kernels),
    Part("Micro-steps", 120, micro_steps),
    Part("The largest model with LAMB", 120, largest_with_lamb),
    Part("Training beside transformers", 110, training),
    Part("Optimizer step", 30, optimizer_steps),
    Part("Rows of a micro-batch", 40, size_sweep),
)
"""In the order of what rests on them: kernels, a micro-step of them, a training of these."""


def measure(
    gate: Gate, parts: Iterable[Part], say: Callable[[str], object], cache: Path | None = None
) -> list[str]:
    """Say the Markdown of each part when it is measured, and keep what it compiled in `cache`;
    returns the titles of those that failed or were skipped."""
    lost, until = [], time.perf_counter()
    for title, share, part in parts:
        started = time.perf_counter()
        until = min(until + share, gate.deadline)
        print(f"{title} ...", file=sys.stderr, flush=True)
        if until - started < min(5, share):
            say(f"### {title}\n\nSkipped: no time.")
            lost.append(title)
            continue
        try:
            text = part(replace(gate, deadline=until))
        except Exception as error:  # the GPU is lent for minutes: continue with the other parts
            traceback.print_exc()
            text = f"FAILED: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
            lost.append(title)
        gc.collect()
        torch.cuda.empty_cache()
        say(f"### {title} ({time.perf_counter() - started:.0f} s)\n\n{text}")
        if cache:
            save_cache(cache)
    return lost


def version_of(package: str) -> str:
    """Its version, or that it is missing: then only the parts that need it fail."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def heading(device: torch.device) -> str:
    """Date, device and versions."""
    where = "CPU, a DRY RUN: its figures mean nothing"
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        where = f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB"
        if device_name(device) == NULL:
            where = "device: null, which computes nothing: its figures mean nothing"
    versions = {"Python": platform.python_version(), "CUDA": torch.version.cuda or "none"}
    for package in ("torch", "deepspeed", "transformers", "triton", "numpy"):
        versions[package] = version_of(package)
    named = ", ".join(f"{name} {number}" for name, number in versions.items())
    command = shlex.join(["python", "-m", "tests.benchmarks.gpu_gate", *sys.argv[1:]])
    return f"## GPU gate, {datetime.date.today()}\n\n{where}; {named}; `{command}`"


def say_to(file: Path | None) -> Callable[[str], None]:
    """Prints a paragraph at once, and adds it to the file."""

    def say(text: str) -> None:
        print(f"{text}\n", flush=True)
        if file:
            with file.open("a") as opened:
                opened.write(f"\n{text}\n")

    return say


def prepared_sample(folder: Path, name: str) -> Path:
    """The shipped sample as shards for a recipe."""
    command = [sys.executable, "-m", "pipeline.prepare", "--corpus", "sample", "--recipe", name]
    environment = os.environ | {"TENFOLD_ROOT": str(folder)}
    subprocess.run(
        [*command, "--output", str(folder / "shards")],
        check=True, env=environment, stdout=sys.stderr,
    )  # fmt: skip
    return folder / "shards"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shards", type=Path, metavar="DIR", help="default: the sample corpus")
    parser.add_argument("--append", type=Path, metavar="FILE", help="add the section to FILE too")
    parser.add_argument("--cache", type=Path, metavar="FILE", help="keep compiled code in FILE")
    parser.add_argument("--dry-run", action="store_true", help="every part on the CPU, toy size")
    parser.add_argument(
        "--seconds", type=int, default=BUDGET_SECONDS, metavar="N",
        help=f"of the whole gate; each part has its share; default {BUDGET_SECONDS}",
    )  # fmt: skip
    options = parser.parse_args()
    if not options.dry_run and not torch.cuda.is_available():
        print("error: PyTorch finds no GPU here; run this where there is one, or use --dry-run",
              file=sys.stderr)  # fmt: skip
        sys.exit(2)
    if options.dry_run:
        torch.set_num_threads(1)
    device = torch.device("cpu" if options.dry_run else "cuda")
    deadline = time.perf_counter() + options.seconds - process_seconds()
    if options.cache:
        load_cache(options.cache)
    say = say_to(options.append)
    say(heading(device))
    with tempfile.TemporaryDirectory() as folder:
        sizes = TOY if options.dry_run else WHOLE
        shards = options.shards or prepared_sample(Path(folder), sizes["recipes"][-1])
        gate = Gate(device=device, shards=shards, deadline=deadline, **sizes)
        scale = options.seconds / BUDGET_SECONDS
        parts = [part._replace(seconds=scale * part.seconds) for part in PARTS]
        lost = measure(gate, parts, say, options.cache)
    if lost:
        print(f"error: without {', '.join(lost)}; see above", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    run_command(main, at_once=True)
