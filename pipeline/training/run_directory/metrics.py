"""What a run reports: RUN/metrics.jsonl, TensorBoard, and a picture of the loss.

metrics.jsonl has one object a logged step, written whole and at once. When a run goes on from a
checkpoint, lines of steps after it are cut off first, so the file reads as if nothing had happened.

    step                    optimizer steps made
    loss                    of this step: the weighted sum of its parts, in nats
    mlm_loss, pair_loss, sbo_loss, rtd_loss     its parts, each over what the global batch has of
                            it: predicted tokens, labelled pairs, words of spans, tokens
    mlm_accuracy, ...       share of them whose likeliest word, or label, was right
    rtd_precision, rtd_recall, rtd_auc      of replaced tokens; the area on validation only
    mask_loss               mlm_loss at the positions that showed [MASK]
    sequence_length         of the step's phase, in a run that has several
    learning_rate           of this step
    grad_norm               of the global gradient, before clipping
    skipped_updates         steps since the run began whose gradient was not finite
    clip_fraction, trust_ratio_*, relative_step_*   what the optimizer did: telemetry.py
    loss_spikes             steps whose loss was one, where spikes are looked for (spikes.py)
    rollbacks, skipped_sequences            what was done about them
    left_out                shards that no row is read of (data.damaged=skip), by their files
    sequences, tokens, predictions          read since the run began, over all ranks
    epoch, duplicate        pass and masks of the step's last sequence
    step_seconds            mean since the line before, and of it
    data_seconds            waiting for the loader
    tokens_per_second       over all ranks
    slowest_rank, slowest_host              whose forward passes took longest, with several ranks
    slowest_ratio           their time beside the median rank's
    model_flops_utilization of the GPUs' dense bf16 rate, where that is known
    validation_loss, validation_mask_loss, validation_mlm_loss, ... on steps with validation
    validation_accuracy, validation_perplexity                      of mlm
    validation_loss/CORPUS  and so on, of each corpus when there are several
"""

from __future__ import annotations

import io
import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import torch

from pipeline.errors import CheckpointError, DataError
from pipeline.files import write_whole

METRICS = "metrics.jsonl"
CURVE = "loss.png"
TENSORBOARD = "tensorboard"
Line = Mapping[str, float | str]
T = TypeVar("T")

PEAK_FLOPS = {
    "B200": 2250e12, "H200": 989e12, "H100 PCIe": 756e12, "H100 NVL": 835e12, "H100": 989e12,
    "A100": 312e12, "L40S": 362e12,
}  # fmt: skip
"""Dense bf16 rates by a part of the GPU's name, the first that fits; NVIDIA's data sheets."""


class Metrics:
    """Writes metrics for one process, the first of a run.

    A disk that refuses them is told once, and training goes on: lines wait and are written with the
    next one, TensorBoard and the picture go without. What waits is missing in metrics.jsonl only
    if the run is killed, and no checkpoint is published before it is there (`sync`).
    """

    def __init__(self, run: Path, restored_step: int, tell: Callable[[str], None] = print) -> None:
        """restored_step: of the checkpoint that the run goes on from, 0 for a new run.

        tell: where warnings go.
        """
        self.run = run
        self.tell = tell
        self._told: set[str] = set()
        self._lock = threading.Lock()  # a checkpoint's thread syncs
        self._open(restored_step)

    def _open(self, restored_step: int) -> None:
        with writing(self.run):
            self.last = _cut(self.run, restored_step)
            self.file = (self.run / METRICS).open("ab", buffering=0)
            self._end = self.file.seek(0, os.SEEK_END)
            """Where the lines end that are written, but for those in `_waiting`."""
            self._waiting: list[bytes] = []
            self.board = self._new_board(restored_step + 1)

    def _new_board(self, step: int) -> Any:
        from torch.utils.tensorboard import SummaryWriter  # a second to import: first rank only

        return SummaryWriter(str(self.run / TENSORBOARD), purge_step=step)

    def go_back(self, restored_step: int) -> None:
        """Cut off the lines of steps after one, which are undone."""
        self.close()
        self._open(restored_step)

    def write(self, line: Line) -> None:
        """Add a line, or more fields to the last step's; a number that is not finite is null."""
        content = {name: _finite(value) for name, value in line.items()}
        with self._lock, self._surviving(METRICS, "its lines wait"):
            if self.last and self.last["step"] == line["step"]:
                content = self.last | content
                if self._waiting:
                    self._waiting.pop()
                else:
                    self._end -= len(_encode(self.last))
            self.last = content
            self._waiting.append(_encode(content))
            self._flush()
        with self._surviving(TENSORBOARD, f"it goes without some lines of {METRICS}"):
            self._show(line)

    def draw(self) -> None:
        """Draw RUN/loss.png from all lines so far."""
        with self._surviving(CURVE, "the old one stays"):
            draw_curve(self.run)

    def sync(self) -> None:
        """Bring the lines to the disk, before a checkpoint says they are there."""
        with self._lock, writing(self.run):
            self._flush()
            os.fsync(self.file.fileno())

    def close(self) -> None:
        """Write out what is buffered or waits."""
        with self._surviving(METRICS, f"{len(self._waiting)} lines are lost"):
            self._flush()
            self.file.close()
        with self._surviving(TENSORBOARD, f"it lacks what {METRICS} has"):
            self.board.close()

    def _flush(self) -> None:
        """Write what waits behind the whole lines; a part that was written before is cut off."""
        if not self._waiting:
            return
        content = b"".join(self._waiting)
        self.file.truncate(self._end)
        done = 0
        while done < len(content):
            done += self.file.write(content[done:])
        self._end += done
        self._waiting.clear()

    def _show(self, line: Line) -> None:
        if TENSORBOARD in self._told:  # its writer does not survive a refusal
            self.board = self._new_board(int(line["step"]))
        for name, value in line.items():
            if name != "step" and not isinstance(value, str):
                self.board.add_scalar(name, value, line["step"])

    @contextmanager
    def _surviving(self, name: str, meanwhile: str) -> Iterator[None]:
        """Tell of the system's refusal to write RUN/name, the first time of several in a row."""
        try:
            yield
        except (OSError, DataError) as error:
            if name not in self._told:
                reason = error.strerror if isinstance(error, OSError) else error
                self.tell(
                    f"warning: cannot write {self.run / name} ({reason}): {meanwhile}; training "
                    "goes on"
                )
            self._told.add(name)
        else:
            self._told.discard(name)


class Pace:
    """Seconds since the last report, and how many of them went by waiting for data."""

    def __init__(self, tokens: int) -> None:
        """tokens: of the run so far, over all ranks."""
        self.tokens = tokens
        self.steps = 0
        self.waited = 0.0
        self.started_at = time.perf_counter()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time inside as waiting for data."""
        began = time.perf_counter()
        yield
        self.waited += time.perf_counter() - began

    def timed(self, items: Iterator[T]) -> Iterator[T]:
        """The items, with the time to get each counted as waiting for data."""
        while True:
            with self.waiting():
                item = next(items, None)
            if item is None:
                return
            yield item

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave the time inside out: it belongs to no step."""
        began = time.perf_counter()
        yield
        self.started_at += time.perf_counter() - began

    def report(self, tokens: int) -> dict[str, float]:
        """Means over the steps since the last report; tokens: of the run so far, as before."""
        now = time.perf_counter()
        seconds, steps = now - self.started_at, max(1, self.steps)
        means = {
            "step_seconds": seconds / steps,
            "data_seconds": self.waited / steps,
            "tokens_per_second": (tokens - self.tokens) / seconds,
        }
        self.tokens, self.steps, self.waited, self.started_at = tokens, 0, 0.0, now
        return means


def peak_flops(device: torch.device) -> float:
    """Dense bf16 FLOP/s of a GPU by its data sheet; 0 where we do not know it."""
    if device.type != "cuda":
        return 0.0
    name = torch.cuda.get_device_name(device)
    return next((rate for part, rate in PEAK_FLOPS.items() if part in name), 0.0)


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """The lines of RUN/metrics.jsonl; one that a crash cut short is left out."""
    path = run / METRICS
    lines = path.read_bytes().split(b"\n") if path.exists() else []
    return [json.loads(line) for line in lines[:-1]]


def draw_curve(run: Path) -> None:
    """RUN/loss.png: training and validation loss over steps."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lines = read_metrics(run)
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    styles: dict[str, dict[str, Any]] = {
        "loss": {"color": "#9db7d5", "linewidth": 1.0},
        "validation_loss": {"color": "#1f4e8c", "marker": "o", "markersize": 3.0},
        "validation_mask_loss": {"color": "#c2571a", "marker": "o", "markersize": 3.0},
    }
    for name, style in styles.items():
        points = [(line["step"], line[name]) for line in lines if line.get(name) is not None]
        if points:
            label = name.replace("_mask_loss", " loss at [MASK]").replace("_", " ")
            axes.plot(*zip(*points, strict=True), label=label, **style)
    lengths = [(line["step"], line.get("sequence_length")) for line in lines if "loss" in line]
    for (before, earlier), (_, later) in pairwise(lengths):
        if later != earlier:
            axes.axvline(before, color="#999999", linewidth=0.8, linestyle="--")
            axes.text(before, axes.get_ylim()[1], f" {later}", va="top", color="#666666")
    axes.set(xlabel="optimizer steps", ylabel="nats a predicted token", title=run.resolve().name)
    axes.grid(alpha=0.3)
    if axes.lines:
        axes.legend(frameon=False)
    picture = io.BytesIO()
    FigureCanvasAgg(figure).print_png(picture)  # type: ignore[no-untyped-call]
    write_whole(run / CURVE, picture.getvalue())


@contextmanager
def writing(run: Path) -> Iterator[None]:
    """The system's refusal to write into `run` as CheckpointError."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"cannot write into {run}: {error.strerror or error}; free space or give access, then "
            "run the same command again, it goes on from the last checkpoint"
        ) from error


def _cut(run: Path, restored_step: int) -> dict[str, Any]:
    """Keep the lines up to the restored step; returns the last of them."""
    kept = [line for line in read_metrics(run) if line["step"] <= restored_step]
    path = run / METRICS
    content = b"".join(_encode(line) for line in kept)
    if path.exists() and path.read_bytes() != content:
        write_whole(path, content)
    return kept[-1] if kept else {}


def _encode(line: Mapping[str, Any]) -> bytes:
    return json.dumps(line).encode() + b"\n"


def _finite(value: float | str) -> float | str | None:
    return value if isinstance(value, str) or math.isfinite(value) else None
