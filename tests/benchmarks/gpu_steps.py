"""Parts of gpu_gate.py: micro-steps beside what was predicted for them, and a trace of a step."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile

from model.objectives.masked_language import MaskedLanguageModel
from pipeline.config.data_settings import max_predictions
from pipeline.config.run import Run
from pipeline.costs.kernel_rates import KERNEL_RATES, StepWork, step_seconds
from pipeline.planning import build
from pipeline.recipes import recipe
from tests.benchmarks.gpu_parts import Gate, flops_of, table, utilisation
from tests.benchmarks.models import masked_language_model, random_inputs
from tests.benchmarks.timing import Seconds

COUNTED = Path(__file__).parents[1] / "null_gpu" / "expected.json"
"""What the null GPU counted of the same micro-steps."""
KINDS = (
    ("attention, forward", r"flash_fwd", "fmha_cutlassF"),
    ("attention, backward", r"flash_bwd", "fmha_cutlassB"),
    ("products", "gemm", "nvjet", "cutlass", "xmma", "splitKreduce"),
    ("compiled", "triton"),
    ("copies", "Memcpy", "Memset"),
    ("collectives", "nccl"),
    ("eager", ""),
)
"""Kinds of kernels, each with parts of their names; a kernel is of the first that fits."""
LONGEST_KERNELS = 12
"""Of a trace, to print."""


def micro_steps(gate: Gate) -> str:
    """Forward and backward of full rows, compiled, with and without dropout, as predicted and as
    measured."""
    rows = []
    for name in gate.recipes:
        run = gate.run(name)
        for title, dropout, in_attention in (
            ("0.1", 0.1, 0.1), ("0.1, in attention 0", 0.1, 0.0), ("0", 0.0, 0.0)
        ):  # fmt: skip
            encoder = replace(run.encoder, dropout=dropout, attention_dropout=in_attention)
            cells = gate.cells(
                15, partial(micro_step_cells, gate, replace(run, encoder=encoder), gate.rows)
            )
            predicted = ""
            if title == "0.1" and (work := counted_work(name, gate.rows)):
                predicted = f"{gate.rows / sum(step_seconds(work, rates_here(gate)).values()):.0f}"
            rows.append([name, title, predicted, *cells])
    columns = ["model", "dropout", "predicted", *MICRO_STEP_COLUMNS]
    return (
        f"{gate.rows} rows of 512 tokens, 15 % predictions, bf16, layers compiled, no engine. "
        "Predicted: sequences/s from the null GPU's counts.\n\n" + table(columns, rows)
    )


def size_sweep(gate: Gate) -> str:
    """The same by rows of a micro-batch."""
    rows = []
    for name in gate.recipes:
        for size in gate.sizes:
            measured = partial(micro_step_cells, gate, gate.run(name), size)
            rows.append([name, str(size), *gate.cells(15, measured, torch.OutOfMemoryError)])
    return "As above, dropout 0.1.\n\n" + table(["model", "rows", *MICRO_STEP_COLUMNS], rows)


MICRO_STEP_COLUMNS = ["sequences/s", "ms", "host ms", "utilisation", "peak GB", "first call, s"]


def micro_step_cells(gate: Gate, run: Run, rows: int) -> list[str]:
    """A row of `MICRO_STEP_COLUMNS`."""
    data, predictions = run.data, max_predictions(run.data)
    inputs = random_inputs(data.vocab_size, rows, data.sequence_length, predictions, gate.device)
    model = masked_language_model(run).to(gate.device).bfloat16()
    compile_layers(gate, model)

    def micro_step() -> None:
        model(inputs)["mlm_loss"].backward()

    started = time.perf_counter()
    micro_step()
    gate.wait()
    first = time.perf_counter() - started
    gate.forget_peak()
    seconds = gate.seconds(micro_step)
    peak = gate.peak_gb()
    gate.wait()
    host = Seconds.of(micro_step).wall
    gate.wait()
    rate = flops_of(run, rows, rows * predictions) / seconds
    return [
        f"{rows / seconds:.0f}", f"{seconds * 1e3:.1f}", f"{host * 1e3:.1f}",
        utilisation(gate, rate), f"{peak:.1f}", f"{first:.0f}",
    ]  # fmt: skip


def compile_layers(gate: Gate, model: MaskedLanguageModel) -> None:
    torch._dynamo.reset()
    # a dry run avoids a minute of C++ compilation
    build.compile_layers(model, 1, "inductor" if gate.device.type == "cuda" else "eager")


def counted_work(name: str, rows: int) -> StepWork | None:
    """Of a recipe's micro-step with full rows, as the null GPU counted it; None: it has not."""
    case = json.loads(COUNTED.read_bytes())["cases"].get(f"{name} full stage 1 H200", {})
    if "work" not in case:
        return None
    share = rows / recipe(name).batch.per_device
    work = case["work"]
    return StepWork(
        product_flops=share * work["product_flops"],
        attention_flops={
            kernel: (share * ahead, share * back)
            for kernel, (ahead, back) in work["attention_flops"].items()
        },
        moved_bytes=share * work["moved_bytes"],
    )


def rates_here(gate: Gate) -> Any:
    """Of this GPU, or an H200's."""
    name = torch.cuda.get_device_name().lower() if gate.device.type == "cuda" else ""
    return next((rates for key, rates in KERNEL_RATES.items() if key in name), KERNEL_RATES["h200"])


class Trace(NamedTuple):
    """What the device did in a traced step."""

    seconds: float
    """By the wall."""
    micro_batches: int
    kernels: Mapping[str, tuple[float, int]]
    """Name -> seconds and launches."""

    def of(self, kind: str) -> tuple[float, int]:
        """Seconds and launches of a kind of kernels."""
        own = [both for name, both in self.kernels.items() if kind_of(name) == kind]
        return sum(seconds for seconds, _ in own), sum(count for _, count in own)

    def markdown(self, gate: Gate, name: str) -> str:
        """By kind beside the prediction, the constants that this step would give the model, and
        the longest kernels."""
        predicted: dict[str, float] = {}
        refit = []
        if work := counted_work(name, gate.rows):
            rates = rates_here(gate)
            (ahead, back), (ahead_rate, back_rate) = (
                both["flash"] for both in (work.attention_flops, rates.attention)
            )
            for title, kinds, amount, rate in (
                ("products, TFLOP/s", ("products",), work.product_flops, rates.products),
                ("flash forward, TFLOP/s", ("attention, forward",), ahead, ahead_rate),
                ("flash backward, TFLOP/s", ("attention, backward",), back, back_rate),
                ("moving, TB/s", ("compiled", "eager"), work.moved_bytes, rates.bandwidth),
            ):
                predicted[kinds[0]] = amount / rate
                if seconds := sum(self.of(kind)[0] for kind in kinds):
                    new = self.micro_batches * amount / seconds
                    refit.append([title, f"{rate / 1e12:.1f}", f"{new / 1e12:.1f}"])
        rows = []
        for kind, *_ in KINDS:
            seconds, count = self.of(kind)
            per = f"{1e3 * seconds / self.micro_batches:.2f}"
            guess = f"{1e3 * predicted[kind]:.2f}" if kind in predicted else ""
            rows.append([kind, guess, per, str(count)])
        busy = sum(seconds for seconds, _ in self.kernels.values())
        idle = f"{1e3 * (self.seconds - busy) / self.micro_batches:.2f}"
        longest = sorted(self.kernels.items(), key=lambda item: -item[1][0])[:LONGEST_KERNELS]
        return "\n\n".join(
            [
                f"A traced step of {self.micro_batches} micro-batches, {1e3 * self.seconds:.0f} ms "
                "with its update; ms are per micro-batch, predictions are of a bare micro-step, "
                "where `compiled` stands for all that moves bytes.",
                table(
                    ["kernels", "predicted ms", "ms", "launches"],
                    [*rows, ["nothing", "0", idle, ""]],
                ),
                "The constants of pipeline/costs/kernel_rates.py, and what this step gives.",
                table(["constant", "is", "measured"], refit),
                table(
                    ["longest kernels", "ms of the step", "launches"],
                    [
                        [f"`{kernel[:110]}`", f"{1e3 * seconds:.2f}", str(count)]
                        for kernel, (seconds, count) in longest
                    ],
                ),
            ]
        )


def kind_of(kernel: str) -> str:
    """One of `KINDS`."""
    return next(kind for kind, *parts in KINDS if any(part in kernel for part in parts))


def traced(gate: Gate, micro_batches: int, step: Callable[[], object]) -> Trace:
    """What a step of so many micro-batches does."""
    on_gpu = gate.device.type == "cuda"
    with profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]) as seen:
        gate.wait()
        started = time.perf_counter()
        step()
        gate.wait()
        seconds = time.perf_counter() - started
    kernels = {
        event.key: (event.self_device_time_total / 1e6, event.count)
        for event in seen.key_averages()
        if event.device_type == torch.autograd.DeviceType.CUDA
    }
    return Trace(seconds, micro_batches, kernels)
