"""The parts of gpu_gate.py that need no data: each returns a paragraph and a table in Markdown."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from model.hugging_face.conversion import logical_parameters
from model.objectives.flops import step_flops
from model.objectives.masked_language import Inputs, MaskedLanguageModel
from model.pieces import pieces_of
from pipeline.config.data_settings import max_predictions
from pipeline.config.run import Run
from pipeline.recipes import recipe
from pipeline.training.optimizer.fragments import cut, read_layout
from pipeline.training.optimizer.optimizer import LogicalOptimizer
from pipeline.training.planning.plan import encoder_config
from pipeline.training.run_directory.metrics import peak_flops

BACKENDS = (
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
)


@dataclass(frozen=True, kw_only=True)
class Gate:
    """All sizes, for the GPU or for a dry run on a CPU."""

    device: torch.device
    recipes: tuple[str, ...]
    micro_batches: tuple[tuple[int, ...], ...]
    """Rows to sweep, for each recipe."""
    rows: int
    """Rows of a micro-batch if only one size is tried."""
    batch: int
    """Sequences of a training step."""
    steps: int
    """Steps of training."""
    repeats: int
    """Calls of each timing."""
    shards: Path
    deadline: float

    def run(self, name: str, kind: Literal["adamw", "lamb"] = "adamw") -> Run:
        """A recipe in bf16 for a short training; kind: of optimizer."""
        run = recipe(name)
        # fairseq's guidance for a batch of 256; LAMB's by its square-root rule
        rate = 1e-4 if kind == "adamw" else run.optimizer.peak_lr * 0.18
        return replace(
            run,
            precision="bf16",
            steps=self.steps,
            batch=replace(run.batch, sequences=self.batch, per_device=self.rows),
            schedule=replace(run.schedule, warmup_steps=max(1, self.steps // 10)),
            optimizer=replace(run.optimizer, kind=kind, peak_lr=rate),
        )

    def left(self) -> float:
        return self.deadline - time.perf_counter()

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def seconds(self, work: Callable[[], object], calls: int = 1) -> float:
        """Median time of one call."""
        found = []
        for number in range(self.repeats + 2):
            self.wait()
            started = time.perf_counter()
            for _ in range(calls):
                work()
            self.wait()
            if number > 1:
                found.append((time.perf_counter() - started) / calls)
        return statistics.median(found)

    def random(self, *shape: int) -> Tensor:
        return torch.randn(shape, device=self.device).bfloat16()


def table(columns: list[str], rows: list[list[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def gemm_rates(gate: Gate) -> str:
    """TFLOP/s of every matrix product of a layer and the head, forward and for both gradients."""
    rows = []
    for name in gate.recipes:
        config, data = encoder_config(gate.run(name)), gate.run(name).data
        tokens, width = gate.rows * data.sequence_length, config.width
        predictions = gate.rows * max_predictions(data)
        shapes = {
            "query, key, value": (tokens, width, 3 * width),
            "attention output": (tokens, width, width),
            "feed-forward in": (tokens, width, config.feed_forward),
            "feed-forward out": (tokens, config.feed_forward, width),
            "head, words": (predictions, width, config.padded_vocab_size),
        }
        for layer, (m, k, n) in shapes.items():
            if gate.left() < 1:
                rows.append([name, layer, "skipped, no time"])
                continue
            x, weight, grad = gate.random(m, k), gate.random(n, k), gate.random(m, n)
            products = {
                "forward": lambda: x @ weight.T,  # noqa: B023
                "to input": lambda: grad @ weight,  # noqa: B023
                "to weight": lambda: grad.T @ x,  # noqa: B023
            }
            rates = [2 * m * k * n / gate.seconds(work, 5) / 1e12 for work in products.values()]
            rows.append([name, layer, f"{m} x {k} x {n}", *(f"{rate:.0f}" for rate in rates)])
    columns = ["model", "matrix", "M x K x N", "forward", "input gradient", "weight gradient"]
    return "TFLOP/s, bf16.\n\n" + table(columns, rows)


def attention_backends(gate: Gate) -> str:
    """Milliseconds of a layer's attention by backend, with the layout of model/layers.py."""
    run = gate.run(gate.recipes[0])
    heads, length = run.encoder.heads, run.data.sequence_length
    size = run.encoder.width // heads
    lengths = torch.full((gate.rows,), length - 8, device=gate.device)
    padding = (torch.arange(length, device=gate.device) < lengths[:, None])[:, None, None]
    rows = []
    for backend in BACKENDS:
        for mask in (None, padding):
            cells = []
            for dropout in (0.0, 0.1) if gate.left() > 2 else ():
                packed = gate.random(gate.rows, length, 3, heads, size).requires_grad_()
                cells += attention_times(gate, packed, backend, mask, dropout)
            rows.append([backend.name, "none" if mask is None else "padding", *cells])
    columns = ["backend", "mask", "forward", "backward", "dropout forward", "dropout backward"]
    shape = f"{gate.rows} x {heads} x {length} x {size}"
    return f"Milliseconds, bf16, {shape}, without and with dropout 0.1.\n\n" + table(columns, rows)


def attention_times(
    gate: Gate, packed: Tensor, backend: SDPBackend, mask: Tensor | None, dropout: float
) -> list[str]:
    """Forward and backward milliseconds, or that there is no such kernel."""

    def forward() -> Tensor:
        query, key, value = packed.permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(query, key, value, mask, dropout)

    try:
        with sdpa_kernel(backend):
            out = forward()
            grad = torch.randn_like(out)
            ahead = gate.seconds(forward, 5)
            back = gate.seconds(
                lambda: torch.autograd.grad(out, packed, grad, retain_graph=True), 5
            )
    except RuntimeError as error:  # also torch.OutOfMemoryError
        return ["none" if "kernel" in str(error) else type(error).__name__] * 2
    return [f"{ahead * 1e3:.2f}", f"{back * 1e3:.2f}"]


def random_inputs(gate: Gate, run: Run, rows: int, halves: bool = False) -> Inputs:
    """A micro-batch with as many predictions as full rows may have; halves: two pieces per row."""
    length, slots = run.data.sequence_length, max_predictions(run.data)
    ids = torch.randint(5, run.data.vocab_size, (rows, length), device=gate.device)
    places = torch.rand(rows, length - 8, device=gate.device).topk(slots).indices
    positions = (places + length * torch.arange(rows, device=gate.device)[:, None]).flatten()
    half = length // 2
    lengths = [half, length - half] * rows if halves else [length] * rows
    pieces = pieces_of(lengths, gate.device)._replace(longest=length)
    labels = ids.flatten()[positions]
    weights = torch.ones(len(labels), device=gate.device)
    return Inputs(ids.flatten(), pieces, positions, labels, weights, 4)


def bf16_model(gate: Gate, run: Run, compiled: bool) -> MaskedLanguageModel:
    model = MaskedLanguageModel(encoder_config(run), seed=0).to(gate.device).bfloat16().train()
    if compiled:
        compile_layers(gate, model)
    return model


def compile_layers(gate: Gate, model: MaskedLanguageModel) -> None:
    torch._dynamo.reset()
    # a dry run avoids a minute of C++ compilation
    model.encoder.compile_layers("inductor" if gate.device.type == "cuda" else "eager")


def micro_step(model: MaskedLanguageModel, inputs: Inputs) -> None:
    model(inputs)["mlm_loss"].backward()


def compile_or_not(gate: Gate) -> str:
    """Forward and backward with each layer compiled and without, of whole rows and halves."""
    rows = []
    for name in gate.recipes:
        run = gate.run(name)
        for compiled, halves in itertools.product((False, True), (False, True)):
            if gate.left() < 10:
                rows.append([name, "per layer" if compiled else "no", "skipped, no time"])
                continue
            inputs = random_inputs(gate, run, gate.rows, halves)
            model = bf16_model(gate, run, compiled)
            started = time.perf_counter()
            micro_step(model, inputs)
            gate.wait()
            first = time.perf_counter() - started
            seconds = gate.seconds(lambda: micro_step(model, inputs))  # noqa: B023
            cells = [f"{seconds * 1e3:.1f}", f"{gate.rows / seconds:.0f}", f"{first:.1f}"]
            kind = ["per layer" if compiled else "no", "halves" if halves else "rows"]
            rows.append([name, *kind, *cells])
    columns = ["model", "compiled", "pieces are", "ms a micro-step", "sequences/s", "first call, s"]
    return f"Micro-batches of {gate.rows}, dropout 0.1.\n\n" + table(columns, rows)


def micro_batch_sweep(gate: Gate) -> str:
    """Speed, utilisation and memory of a micro-step, layers compiled, by its rows."""
    rows = []
    for name, sizes in zip(gate.recipes, gate.micro_batches):
        run = gate.run(name)
        for size in sizes:
            if gate.left() < 30:
                rows.append([name, str(size), "skipped, no time"])
                continue
            try:
                rows.append([name, str(size), *speed_and_memory(gate, run, size)])
            except torch.OutOfMemoryError:
                rows.append([name, str(size), "out of memory"])
    columns = ["model", "rows", "sequences/s", "TFLOP/s", "utilisation", "peak GB"]
    return "Forward and backward, bf16, dropout 0.1, full rows, layers compiled.\n\n" + table(
        columns, rows
    )


def speed_and_memory(gate: Gate, run: Run, rows: int) -> list[str]:
    inputs = random_inputs(gate, run, rows)
    model = bf16_model(gate, run, compiled=True)
    if gate.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    seconds = gate.seconds(lambda: micro_step(model, inputs))
    peak = torch.cuda.max_memory_allocated() / 1e9 if gate.device.type == "cuda" else 0.0
    rate = flops_of(run, rows, len(inputs.positions_K)) / seconds
    return [f"{rows / seconds:.0f}", f"{rate / 1e12:.1f}", utilisation(gate, rate), f"{peak:.1f}"]


def flops_of(run: Run, sequences: int, predictions: int) -> int:
    config, length = encoder_config(run), run.data.sequence_length
    return step_flops(config, sequences=sequences, sequence_length=length, predictions=predictions)


def utilisation(gate: Gate, rate: float) -> str:
    peak = peak_flops(gate.device)
    return f"{rate / peak:.1%}" if peak else "unknown peak"


def optimizer_steps(gate: Gate) -> str:
    """Our LAMB and AdamW and PyTorch's, compared with the time of their memory traffic alone."""
    block = torch.empty((1 << 30 if gate.device.type == "cuda" else 1 << 20) // 4)
    source, target = block.to(gate.device), torch.empty_like(block, device=gate.device)
    bandwidth = 2 * block.nbytes / gate.seconds(lambda: target.copy_(source), 5)
    rows = []
    for name in gate.recipes:
        if gate.left() < 5:
            rows.append([name, "skipped, no time"])
            continue
        for kind, traffic in (("adamw", 28), ("lamb", 40)):
            rows.append(optimizer_step(gate, name, kind, traffic / bandwidth))
        model = MaskedLanguageModel(encoder_config(gate.run(name)), seed=0).to(gate.device)
        fill_gradients(model)
        step = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True).step
        rows.append([name, "torch's fused AdamW", f"{gate.seconds(step) * 1e3:.2f}", "", ""])
    return (
        f"fp32; a copy moves {bandwidth / 1e12:.2f} TB/s. Floor: AdamW reads weight, gradient and "
        "moments and writes all but the gradient, 28 bytes per parameter; LAMB also keeps the "
        "update until it has the norms, 40 bytes.\n\n"
        + table(["model", "optimizer", "ms", "floor, ms", "times the floor"], rows)
    )


def optimizer_step(gate: Gate, name: str, kind: str, seconds_a_parameter: float) -> list[str]:
    run = gate.run(name)
    model = MaskedLanguageModel(encoder_config(run), seed=0).to(gate.device)
    logical, parameters = logical_parameters(model), dict(model.named_parameters())
    settings = replace(run.optimizer, kind=kind)
    optimizer = LogicalOptimizer(parameters, logical, settings)
    layout = read_layout(parameters, [], None)
    optimizer.bind(layout, cut(layout, logical), gate.device)
    fill_gradients(model)
    seconds = gate.seconds(optimizer.step)
    floor = seconds_a_parameter * sum(value.numel() for value in parameters.values())
    return [name, kind, f"{seconds * 1e3:.2f}", f"{floor * 1e3:.2f}", f"{seconds / floor:.2f}"]


def fill_gradients(model: torch.nn.Module) -> None:
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 1e-3)
