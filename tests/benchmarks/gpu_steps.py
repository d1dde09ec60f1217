"""Parts of gpu_gate.py: micro-steps beside what was predicted for them, and a trace of a step."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile

from model.objectives.masked_language import Inputs, MaskedLanguageModel
from model.pieces import pieces_of
from pipeline.config.data_settings import max_predictions
from pipeline.config.run import Run
from pipeline.costs.kernel_rates import KERNEL_RATES, StepWork, step_seconds
from pipeline.planning import build
from pipeline.planning.phase_plan import encoder_config
from pipeline.recipes import recipe
from tests.benchmarks.gpu_parts import Gate, flops_of, table, utilisation

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
"""Of a trace, to print; and as many that are neither products, attention nor compiled."""


def micro_steps(gate: Gate) -> str:
    """Forward and backward of full rows, compiled, with and without dropout, as predicted and as
    measured."""
    rows = []
    for name in gate.recipes:
        run = gate.run(name)
        for title, dropout, in_attention in (
            ("0.1", 0.1, 0.1), ("0.1, in attention 0", 0.1, 0.0), ("0", 0.0, 0.0)
        ):  # fmt: skip
            if gate.left() < 15:
                rows.append([name, title, "skipped, no time"])
                continue
            encoder = replace(run.encoder, dropout=dropout, attention_dropout=in_attention)
            cells = micro_step_cells(gate, replace(run, encoder=encoder), gate.rows)
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
            if gate.left() < 15:
                rows.append([name, str(size), "skipped, no time"])
                continue
            try:
                rows.append([name, str(size), *micro_step_cells(gate, gate.run(name), size)])
            except torch.OutOfMemoryError:
                rows.append([name, str(size), "out of memory"])
    return "As above, dropout 0.1.\n\n" + table(["model", "rows", *MICRO_STEP_COLUMNS], rows)


MICRO_STEP_COLUMNS = ["sequences/s", "ms", "host ms", "utilisation", "peak GB", "first call, s"]


def micro_step_cells(gate: Gate, run: Run, rows: int) -> list[str]:
    """A row of `MICRO_STEP_COLUMNS`."""
    inputs = random_inputs(gate, run, rows)
    model = MaskedLanguageModel(encoder_config(run), seed=0).to(gate.device).bfloat16().train()
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
    started = time.perf_counter()
    micro_step()
    host = time.perf_counter() - started
    gate.wait()
    rate = flops_of(run, rows, len(inputs.positions_K)) / seconds
    return [
        f"{rows / seconds:.0f}", f"{seconds * 1e3:.1f}", f"{host * 1e3:.1f}",
        utilisation(gate, rate), f"{peak:.1f}", f"{first:.0f}",
    ]  # fmt: skip


def random_inputs(gate: Gate, run: Run, rows: int) -> Inputs:
    """A micro-batch of full rows with as many predictions as they may have."""
    length, slots = run.data.sequence_length, max_predictions(run.data)
    ids = torch.randint(5, run.data.vocab_size, (rows, length), device=gate.device)
    places = torch.rand(rows, length, device=gate.device).topk(slots).indices
    positions = (places + length * torch.arange(rows, device=gate.device)[:, None]).flatten()
    pieces = pieces_of([length] * rows, gate.device)
    labels = ids.flatten()[positions]
    weights = torch.ones(len(labels), device=gate.device)
    return Inputs(ids.flatten(), pieces, positions, labels, weights, 4)


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
        work, rates = counted_work(name, gate.rows), rates_here(gate)
        predicted: dict[str, float] = defaultdict(float)
        refit = []
        if work:
            (ahead, back) = work.attention_flops["flash"]
            ahead_rate, back_rate = rates.attention["flash"]
            predicted |= {
                "products": work.product_flops / rates.products,
                "attention, forward": ahead / ahead_rate,
                "attention, backward": back / back_rate,
                "compiled": work.moved_bytes / rates.bandwidth,
            }
            moving = self.of("compiled")[0] + self.of("eager")[0]
            for title, amount, seconds, old in (
                ("products, TFLOP/s", work.product_flops, self.of("products")[0], rates.products),
                ("flash forward, TFLOP/s", ahead, self.of("attention, forward")[0], ahead_rate),
                ("flash backward, TFLOP/s", back, self.of("attention, backward")[0], back_rate),
                ("moving, TB/s", work.moved_bytes, moving, rates.bandwidth),
            ):
                if seconds:
                    new = self.micro_batches * amount / seconds
                    refit.append([title, f"{old / 1e12:.1f}", f"{new / 1e12:.1f}"])
        kinds = []
        for kind, *_ in KINDS:
            seconds, count = self.of(kind)
            per = f"{1e3 * seconds / self.micro_batches:.2f}"
            guess = f"{1e3 * predicted[kind]:.2f}" if kind in predicted else ""
            kinds.append([kind, guess, per, str(count)])
        busy = sum(seconds for seconds, _ in self.kernels.values())
        idle = f"{1e3 * (self.seconds - busy) / self.micro_batches:.2f}"
        kinds.append(["nothing", "0", idle, ""])
        ordered = sorted(self.kernels.items(), key=lambda item: -item[1][0])
        around = [item for item in ordered if kind_of(item[0]) in ("eager", "copies")]
        longest = [
            [
                [f"`{kernel[:110]}`", f"{1e3 * seconds:.2f}", str(count)]
                for kernel, (seconds, count) in part[:LONGEST_KERNELS]
            ]
            for part in (ordered, around)
        ]
        return "\n\n".join(
            [
                f"A traced step of {self.micro_batches} micro-batches, {1e3 * self.seconds:.0f} ms "
                "with its update; ms are per micro-batch, predictions are of a bare micro-step, "
                "where `compiled` stands for all that moves bytes.",
                table(["kernels", "predicted ms", "ms", "launches"], kinds),
                "The constants of pipeline/costs/kernel_rates.py, and what this step gives.",
                table(["constant", "is", "measured"], refit),
                table(["longest kernels", "ms of the step", "launches"], longest[0]),
                table(["longest eager kernels", "ms of the step", "launches"], longest[1]),
            ]
        )


def kind_of(kernel: str) -> str:
    """One of `KINDS`."""
    return next(kind for kind, *parts in KINDS if any(part in kernel for part in parts))


class Tracer:
    """Traces the step inside `with`."""

    def __init__(self, gate: Gate, micro_batches: int) -> None:
        self.gate, self.micro_batches = gate, micro_batches
        on_gpu = gate.device.type == "cuda"
        self._profile = profile(
            activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]
        )

    def __enter__(self) -> Tracer:
        self.gate.wait()
        self._profile.__enter__()
        self._started = time.perf_counter()
        return self

    def __exit__(self, *about: Any) -> None:
        self.gate.wait()
        self._seconds = time.perf_counter() - self._started
        self._profile.__exit__(*about)

    def trace(self) -> Trace:
        """What was seen."""
        kernels: dict[str, tuple[float, int]] = {}
        for event in self._profile.key_averages():
            if event.device_type == torch.autograd.DeviceType.CUDA:
                kernels[event.key] = (event.self_device_time_total / 1e6, event.count)
        return Trace(self._seconds, self.micro_batches, kernels)
