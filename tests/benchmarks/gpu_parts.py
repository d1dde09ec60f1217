"""What the parts of gpu_gate.py share, and two of them: products and optimizers."""

import lzma
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from model.objectives.flops import step_flops
from pipeline.base.files import write_whole
from pipeline.cluster.process_group import init_distributed
from pipeline.config.data_settings import max_predictions
from pipeline.config.run import Run
from pipeline.planning.phase_plan import encoder_config
from pipeline.recipes import recipe
from pipeline.training.run_directory.metrics_log import peak_flops
from tests.benchmarks.models import masked_language_model, zero_engine

Kind = Literal["adamw", "lamb", "stable_adamw"]


@dataclass(frozen=True, kw_only=True)
class Gate:
    """All sizes, for the GPU or for a dry run on a CPU."""

    device: torch.device
    recipes: tuple[str, ...]
    """The largest first."""
    checked: tuple[str, ...]
    """Recipes whose gradients are compared with exact ones."""
    sizes: tuple[int, ...]
    """Rows of a micro-batch to try."""
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

    def run(self, name: str, kind: Kind = "adamw") -> Run:
        """A recipe in bf16 for a short training; kind: of optimizer."""
        run = recipe(name)
        # fairseq's guidance for a batch of 256; LAMB's by its square-root rule
        rate = run.optimizer.peak_lr * 0.18 if kind == "lamb" else 1e-4
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

    def cells(
        self, least: float, measured: Callable[[], list[str]], *expected: type[Exception]
    ) -> list[str]:
        """Of a row, or why there are none: without so many seconds, or after an expected error."""
        if self.left() < least:
            return ["no time"]
        try:
            return measured()
        except expected as failed:
            reason = str(failed).strip().partition("\n")[0]
            return [f"{type(failed).__name__}: {reason[:80]}"]

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

    def peak_gb(self) -> float:
        """Largest memory that tensors took since `forget_peak`."""
        return torch.cuda.max_memory_allocated() / 1e9 if self.device.type == "cuda" else 0.0

    def forget_peak(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()


def table(columns: list[str], rows: list[list[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def product_rates(gate: Gate) -> str:
    """TFLOP/s of every matrix product of a layer and the head, forward and for both gradients."""
    rows = []
    for name in gate.recipes:
        config, data = encoder_config(gate.run(name)), gate.run(name).data
        for count in gate.sizes:
            tokens, width = count * data.sequence_length, config.width
            shapes = {
                "query, key, value": (tokens, width, 3 * width),
                "attention output": (tokens, width, width),
                "feed-forward in": (tokens, width, config.feed_forward),
                "feed-forward out": (tokens, config.feed_forward, width),
                "head, words": (count * max_predictions(data), width, config.padded_vocab_size),
            }
            flops = seconds = 0.0
            cells = []
            for m, k, n in shapes.values():
                if gate.left() < 1:
                    cells.append("no time")
                    continue
                spent = product_seconds(gate, m, k, n)
                cells.append(" ".join(f"{2 * m * k * n / part / 1e12:.0f}" for part in spent))
                layers = config.layers if n != config.padded_vocab_size else 1
                flops += layers * 6 * m * k * n
                seconds += layers * sum(spent)
            whole = f"{flops / seconds / 1e12:.0f}" if seconds else ""
            rows.append([name, str(count), *cells, whole])
    columns = ["model", "rows", *shapes, "whole step"]
    return "TFLOP/s, bf16: forward, gradient of the input, gradient of the weight.\n\n" + table(
        columns, rows
    )


def product_seconds(gate: Gate, m: int, k: int, n: int) -> list[float]:
    """Of x W^T and its two gradients."""
    x, weight, grad = gate.random(m, k), gate.random(n, k), gate.random(m, n)
    products: list[Callable[[], object]] = [
        lambda: x @ weight.T, lambda: grad @ weight, lambda: grad.T @ x,
    ]  # fmt: skip
    return [gate.seconds(product, 5) for product in products]


def flops_of(run: Run, sequences: int, predictions: int) -> int:
    config, length = encoder_config(run), run.data.sequence_length
    return step_flops(config, sequences=sequences, sequence_length=length, predictions=predictions)


def utilisation(gate: Gate, rate: float) -> str:
    peak = peak_flops(gate.device)
    return f"{rate / peak:.1%}" if peak else "unknown peak"


def optimizer_steps(gate: Gate) -> str:
    """Our optimizers and PyTorch's AdamW, compared with the time of their memory traffic alone."""
    block = torch.empty((1 << 30 if gate.device.type == "cuda" else 1 << 20) // 4)
    source, target = block.to(gate.device), torch.empty_like(block, device=gate.device)
    bandwidth = 2 * block.nbytes / gate.seconds(lambda: target.copy_(source), 5)
    kinds: tuple[tuple[Kind, int], ...] = (("adamw", 28), ("lamb", 40), ("stable_adamw", 40))
    rows = [
        [
            name,
            kind,
            *gate.cells(5, partial(optimizer_cells, gate, name, kind, traffic / bandwidth)),
        ]
        for name in gate.recipes
        for kind, traffic in kinds
    ]
    return (
        f"fp32, one flat tensor as under ZeRO-1; a copy moves {bandwidth / 1e12:.2f} TB/s. Floor: "
        "AdamW reads weight, gradient and moments and writes all but the gradient, 28 bytes per "
        "parameter; LAMB and StableAdamW also keep the update until they have the sums of each "
        "weight, 40 bytes.\n\n"
        + table(["model", "optimizer", "ms", "floor, ms", "times the floor", "torch's, ms"], rows)
    )


def optimizer_cells(gate: Gate, name: str, kind: Kind, floor_a_parameter: float) -> list[str]:
    """Of the optimizer that a run has in its engine; for AdamW also torch's fused one."""
    run = gate.run(name, kind)
    engine = zero_engine(masked_language_model(run).to(init_distributed()), run, rows=gate.rows)
    flats = engine.optimizer.param_groups[0]["params"]
    for flat in flats:
        flat.grad = torch.full_like(flat, 1e-3)
    spent = gate.seconds(engine.optimizer.step)
    floor = floor_a_parameter * sum(flat.numel() for flat in flats)
    theirs = ""
    if kind == "adamw":
        fused = torch.optim.AdamW(flats, lr=1e-4, fused=True)
        theirs = f"{gate.seconds(fused.step) * 1e3:.2f}"
    engine.close()
    return [f"{spent * 1e3:.2f}", f"{floor * 1e3:.2f}", f"{spent / floor:.2f}", theirs]


def load_cache(file: Path) -> None:
    """Put what a gate compiled, if the file exists, where torch looks before it compiles.

    Torch keeps it by the code and the device; on other ones the file has no effect. Load only a
    file that you wrote: its code runs.
    """
    if file.exists():
        torch.compiler.load_cache_artifacts(lzma.decompress(file.read_bytes()))


def save_cache(file: Path) -> None:
    """Write all that this process has compiled or loaded so far."""
    if found := torch.compiler.save_cache_artifacts():
        write_whole(file, lzma.compress(found[0], preset=1))
