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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from model.hugging_face.conversion import logical_parameters, to_hugging_face
from model.objectives.masked_language import MaskedLanguageModel
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
from pipeline.planning.deepspeed_config import read_deepspeed_file
from pipeline.planning.phase_plan import encoder_config, make_plan
from pipeline.planning.schedule import learning_rate
from pipeline.training.optimizer import engine as engines
from tests.benchmarks.gpu_attention import attention_kernels
from tests.benchmarks.gpu_cache import load_cache, save_cache
from tests.benchmarks.gpu_gradients import gradients
from tests.benchmarks.gpu_parts import (
    Gate,
    flops_of,
    optimizer_steps,
    product_rates,
    table,
    utilisation,
)
from tests.benchmarks.gpu_steps import Trace, Tracer, compile_layers, micro_steps, size_sweep

BUDGET_SECONDS = 570
"""Of the whole process, imports and preparation included."""
WARM_UP = 2
"""Steps of a training that are not timed: of the first one compiles."""
START_SECONDS = 60
"""Of these, until the first part."""


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


@contextlib.contextmanager
def training_data(gate: Gate, run: Run) -> Iterator[Loader]:
    """Yield a loader of the same steps for both sides."""
    dataset = Dataset.open(gate.shards)
    share = Share(sequences=run.batch.sequences, per_device=run.batch.per_device)
    on_gpu = gate.device.type == "cuda"
    plan = make_plan(run, 1, 1, [dataset], [], run.steps)
    loader = Loader(
        [dataset], Order(kind="global", seed=0, piece_rows=(dataset.piece_rows,)), share,
        prefetch=2 * share.accumulation,
        form=BatchForm(capacity=plan.on_gpu.capacity if on_gpu else None, pin_memory=on_gpu),
    )  # fmt: skip
    yield loader
    loader.close()


def train(
    gate: Gate,
    run: Run,
    micro_batch: Callable[[MicroBatch, int], Tensor],
    update: Callable[[float], object],
    share: float,
    traced: bool = False,
) -> Trained:
    """Train some steps.

    micro_batch: runs forward and backward, given the predictions of the whole step, and returns
    the sum of losses; update: given the learning rate; share: of the remaining time; traced: trace
    one more step.
    """
    until = time.perf_counter() + share * gate.left()
    losses: list[Tensor] = []
    started, warm_up, tokens, places, sequences = 0.0, 0, 0, 0, 0

    def one(step: Step) -> None:
        nonlocal tokens, places, sequences
        sums = []
        for batch in on_device(step.batches, gate.device):
            sums.append(micro_batch(batch, step.counts.predictions))
            tokens, places = tokens + batch.tokens, places + batch.input_ids.numel()
            sequences += len(batch.samples)
        update(learning_rate(run, len(losses) + 1))
        losses.append(torch.stack(sums).sum() / step.counts.predictions)

    with training_data(gate, run) as loader:
        steps = iter(loader.steps())
        for step in steps:
            one(step)
            if len(losses) == WARM_UP:
                gate.wait()
                started, warm_up = time.perf_counter(), len(losses)
            late = len(losses) > WARM_UP and time.perf_counter() > until
            if len(losses) == run.steps or (late and len(losses) % 2 == 0):
                break
        gate.wait()
        seconds = time.perf_counter() - started
        speed = (len(losses) - warm_up) * run.batch.sequences / seconds
        trace = None
        if traced and (step := next(steps, None)):
            with Tracer(gate, step.accumulation) as tracer:
                one(step)
            trace = tracer.trace()
    found = [float(loss) for loss in losses]
    return Trained(found, speed, tokens / sequences, 1 - tokens / places, trace)


def train_ours(gate: Gate, run: Run, share: float, traced: bool = False) -> Trained:
    """Our engine: ZeRO-1, bf16, compiled layers; share, traced: as in `train`."""
    device = init_distributed()
    model = MaskedLanguageModel(encoder_config(run), seed=0)
    logical = logical_parameters(model)
    compile_layers(gate, model.to(device))
    accumulation = Share(sequences=run.batch.sequences, per_device=gate.rows).accumulation
    mask_id = Dataset.open(gate.shards).manifest.tokenizer["mask"]
    engine = engines.initialize_engine(
        model, run, read_deepspeed_file("zero1"), logical,
        rows=gate.rows, accumulation=accumulation,
    )  # fmt: skip

    def micro_batch(batch: MicroBatch, predictions: int) -> Tensor:
        scored = engine(model_inputs(batch, mask_id))
        engine.backward(scored["mlm_loss"], predictions)
        return scored["mlm_loss"].detach()

    found = train(gate, run, micro_batch, engine.step, share, traced)
    engine.close()
    return found


def train_theirs(gate: Gate, run: Run) -> Trained:
    """transformers as its Trainer runs it with bf16: autocast, the head at every position."""
    import transformers

    transformers.logging.set_verbosity_error()
    with torch.no_grad():
        state, config = to_hugging_face(MaskedLanguageModel(encoder_config(run), seed=0))
    config = {name: value for name, value in config.items() if name != "model_type"}
    settings = transformers.RobertaConfig(**config, attn_implementation="sdpa")
    model = transformers.RobertaForMaskedLM(settings).train()
    model.load_state_dict(state, strict=False)
    model.to(gate.device)
    optimizer = adamw(model, run)

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

    return train(gate, run, micro_batch, update, 0.8)


def adamw(model: torch.nn.Module, run: Run) -> torch.optim.Optimizer:
    """PyTorch's fused AdamW with the run's settings."""
    groups = [
        {
            "params": [part for part in model.parameters() if (part.dim() > 1) == matrices],
            "weight_decay": run.optimizer.weight_decay if matrices else 0.0,
        }
        for matrices in (True, False)
    ]
    betas = (run.optimizer.beta1, run.optimizer.beta2)
    return torch.optim.AdamW(groups, betas=betas, eps=run.optimizer.eps, fused=True)


def training(gate: Gate) -> str:
    """A short training of the smallest recipe on both sides: loss curves and speed."""
    run = gate.run(gate.recipes[-1])
    ours, our_speed, *_ = train_ours(gate, run, 0.4)
    theirs, their_speed, *_ = train_theirs(gate, run)
    common = min(len(ours), len(theirs))
    every = max(1, common // 10)
    marks = sorted({0, *range(every - 1, common, every), common - 1})
    gaps = [abs(our - their) for our, their in zip(ours, theirs)]
    speeds = [
        [name, f"{speed:.0f}", utilisation(gate, speed * sequence_flops(run)), str(len(losses))]
        for name, speed, losses in (
            ("ours", our_speed, ours), ("transformers + AdamW", their_speed, theirs)
        )
    ]  # fmt: skip
    curves = [[str(mark + 1), f"{ours[mark]:.4f}", f"{theirs[mark]:.4f}"] for mark in marks]
    return "\n\n".join(
        [
            f"{run.name}, bf16, AdamW on both sides, batch {gate.batch} in micro-batches of "
            f"{gate.rows}, dropout 0.1, the same weights at the start, the same rows and masks in "
            "the same order, data loading and optimizer steps included. Ours: engine under ZeRO-1, "
            "layers compiled. Theirs: autocast, eager, head at every position, fused AdamW.",
            table(["side", "sequences/s", "utilisation", "steps"], speeds),
            f"Ratio {our_speed / their_speed:.2f}. Losses; mean gap of the last tenth "
            f"{sum(gaps[-every:]) / every:.4f} (dropout draws differ):",
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
    found = train_ours(gate, run, 0.8, traced=True)
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


def heading(device: torch.device, dry_run: bool) -> str:
    """Date, device and versions."""
    where = "CPU, a DRY RUN: its figures mean nothing"
    if device.type == "cuda" and not dry_run:
        properties = torch.cuda.get_device_properties(device)
        where = "device: null, which computes nothing: its figures mean nothing"
        if device_name(device) != NULL:
            where = f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB"
    packages = ("torch", "deepspeed", "transformers", "triton", "numpy")
    versions = {"Python": platform.python_version(), "CUDA": torch.version.cuda or "none"}
    versions |= {package: version_of(package) for package in packages}
    command = shlex.join(["python", "-m", "tests.benchmarks.gpu_gate", *sys.argv[1:]])
    return (
        f"## GPU gate, {datetime.date.today().isoformat()}\n\n{where}; "
        + ", ".join(f"{name} {number}" for name, number in versions.items())
        + f"; `{command}`"
    )


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
    say(heading(device, options.dry_run))
    with tempfile.TemporaryDirectory() as folder:
        first = "roberta_tiny" if options.dry_run else "roberta_base"
        shards = options.shards or prepared_sample(Path(folder), first)
        gate = Gate(
            device=device,
            recipes=(first,) if options.dry_run else ("roberta_large", "roberta_base"),
            sizes=(2, 4) if options.dry_run else (64, 66, 132),
            rows=2 if options.dry_run else 64,
            batch=4 if options.dry_run else 256,
            steps=3 if options.dry_run else 300,
            repeats=1 if options.dry_run else 10,
            shards=shards,
            deadline=deadline,
        )
        scale = options.seconds / BUDGET_SECONDS
        parts = [part._replace(seconds=scale * part.seconds) for part in PARTS]
        lost = measure(gate, parts, say, options.cache)
    if lost:
        print(f"error: without {', '.join(lost)}; see above", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    run_command(main, at_once=True)
