"""What a run reports: RUN/metrics.jsonl, a picture of the loss, and boards (`logging.to`).

metrics.jsonl has one object per logged step, written whole and at once. When a run resumes from a
checkpoint, lines of later steps are removed first, so the file reads as if it had not stopped.

    step                    optimizer steps made; 0, with a validation, in a run from given weights
    time                    at which the line was written, UTC
    device                  null on a GPU that computes nothing (null_device.py), else absent
    memory_gb               peak memory of the first rank's GPU, or of its process if it has none
    loss                    of this step: the weighted sum of its parts, in nats
    mlm_loss, pair_loss, sbo_loss, rtd_loss     its parts, each a mean over the global batch's
                            predicted tokens, labelled pairs, words of spans, tokens; a part
                            without any is absent. ELECTRA's mlm is that of its generator
    words_loss              of the words that the encoder restores, a mean over predicted tokens
                            (replace_mlm) or tokens (all_tokens_mlm)
    words_recall            share of replaced tokens that are restored
    mlm_accuracy, ...       share of these that are predicted correctly
    rtd_precision, rtd_recall, rtd_auc      of replaced tokens; ROC AUC on validation only
    mask_loss               mlm_loss at the positions that showed [MASK]
    phase, sequence_length  of the step, in a run of several phases
    learning_rate           of this step
    grad_norm               of the global gradient, before clipping
    skipped_updates         steps since the start of the run whose gradient was not finite
    clip_fraction, trust_ratio_*, relative_step_*, update_rms_*
                            what the optimizer did: telemetry.py
    loss_spikes             steps with a loss spike, if the run looks for spikes (loss_watch.py)
    rollbacks, skipped_sequences            how the run recovered from them (recovery.py)
    left_out                files of excluded shards (data.damaged=skip)
    sequences, tokens, predictions          read since the start of the run, over all ranks
    epoch, duplicate        pass and masks of the step's last sequence
    step_seconds            mean since the previous line, of which
    data_seconds            were spent waiting for the loader
    tokens_per_second       over all ranks
    slowest_rank, slowest_host              with the longest forward passes, if there are several
    slowest_ratio           their time divided by the median rank's
    model_flops_utilization share of the GPUs' dense bf16 rate, if that rate is known; pads do not
                            count
    validation_loss, validation_mask_loss, validation_mlm_loss, ... on steps with validation
    validation_accuracy, validation_perplexity                      of mlm; compare families by
                            these and validation_mlm_loss, validation_loss sums all parts
    validation_loss/CORPUS  and so on, for each corpus if there are several; of more than 32
                            RUN/held_out/step-N.json has them, and here are
    validation_corpora_mlm_loss, validation_worst_mlm_loss          the mean of the corpora's
                            losses, in which each counts the same, and the highest one
    validation_loss/language/CODE           and so on, for each language that several corpora have
    validation_mask_rate    rate of the held-out masks, if the phase trains at another one
    validation_grammar      share of minimal pairs whose right sentence scores higher (PLL per
                            token, a tie counts half), with validation.grammar;
                            validation_grammar/PHENOMENON if there are several
    general_loss, general_mask_loss, general_mlm_loss, ...  of the general sample, at step 0 and the
                            last step of a run from given weights (validation/general_sample.py)
"""

from __future__ import annotations

import json
import math
import os
import resource
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import torch

from pipeline.base.errors import CheckpointError, DataError
from pipeline.base.files import write_whole
from pipeline.base.plots import Plot, draw_png
from pipeline.base.typed_json import as_object, require
from pipeline.config.run import Run
from pipeline.config.settings import to_dict
from pipeline.costs.device_rates import peak_flops_of
from pipeline.training.run_directory.boards import (
    TENSORBOARD,
    WANDB,
    Line,
    WeightsAndBiases,
    board_tag,
)

METRICS = "metrics.jsonl"
CURVE = "loss.png"
HELD_OUT = "held_out"
T = TypeVar("T")

OTHER_PARTS = ("pair_loss", "sbo_loss", "rtd_loss", "words_loss")
"""Parts of the loss besides masked language modelling."""


class Metrics:
    """Writes metrics for one process, the first of a run.

    If the disk refuses them, it warns once and training continues: lines wait and are written with
    the next one, TensorBoard and the picture are skipped. Waiting lines are lost only if the run is
    killed, and no checkpoint is published before they are written (`sync`).
    """

    def __init__(
        self,
        run: Path,
        restored_step: int,
        tell: Callable[[str], None] = print,
        to: Collection[str] = (TENSORBOARD,),
    ) -> None:
        """restored_step: step of the checkpoint to resume from, -1 for a new run.

        tell: prints a warning; to: logging.to.
        """
        self.run = run
        self.tell = tell
        self.to = to
        self.wandb: WeightsAndBiases | None = None
        self._failing: set[str] = set()
        self._lock = threading.Lock()  # the thread of a checkpoint calls sync
        self._drawn: dict[str, Any] | None = None
        """The last line of the picture."""
        self._open(restored_step)

    def _open(self, restored_step: int) -> None:
        with writing(self.run):
            self._former, self.first, self.last = _cut(self.run, restored_step)
            self.file = (self.run / METRICS).open("ab", buffering=0)  # each line is one write
            self._end = self.file.seek(0, os.SEEK_END)
            """End of the written lines; those in `_waiting` come after it."""
            self._waiting: list[bytes] = []
            self.board = self._new_board(restored_step + 1) if TENSORBOARD in self.to else None

    def show_settings(self, run: Run) -> None:
        """Show the settings of the run on the boards, before any line."""
        if WANDB in self.to:
            self.wandb = WeightsAndBiases(self.run, run, self._former, self.tell)
        lines = json.dumps(to_dict(run), indent=1).splitlines()
        with self._surviving(TENSORBOARD, "it lacks the settings"):
            if self.board:  # indented text is shown as it is
                self.board.add_text("settings", "\n".join(f"    {line}" for line in lines))

    def _new_board(self, step: int) -> Any:
        from torch.utils.tensorboard import SummaryWriter  # a second to import: first rank only

        return SummaryWriter(str(self.run / TENSORBOARD), purge_step=step)

    def go_back(self, restored_step: int) -> None:
        """Remove the lines of the steps after `restored_step`, which are undone.

        Weights & Biases cannot: it keeps them, and continues with the step after the last one.
        """
        self._close_files()
        self._open(restored_step)

    def write(self, line: Line) -> None:
        """Add a line, or fields to the last line if it has this step; not finite becomes null."""
        content = _finite_values(line)
        with self._lock, self._surviving(METRICS, "its lines wait"):
            if self.last and self.last["step"] == line["step"]:
                content = self.last | content
                if self._waiting:
                    self._waiting.pop()  # it will be written with the new fields
                else:
                    self._end -= len(_encode(self.last))  # written: cut off and replaced
            self.last = content
            if self.first.get("step", content["step"]) == content["step"]:
                self.first = content
            self._waiting.append(_encode(content))
            self._flush()
        with self._surviving(TENSORBOARD, f"it skips some lines of {METRICS}"):
            self._show(line)
        if self.wandb:
            self.wandb.show(line)

    def write_corpora(
        self, step: int, corpora: Mapping[str, Line], languages: Mapping[str, Line]
    ) -> None:
        """Write RUN/held_out/step-N.json: the held-out metrics of each of many corpora, and of the
        languages that several have."""
        path = self.run / HELD_OUT / f"step-{step:08d}.json"
        tables = {"corpora": corpora} | ({"languages": languages} if languages else {})
        content = {
            kind: {name: _finite_values(line) for name, line in table.items()}
            for kind, table in tables.items()
        }
        with self._surviving(HELD_OUT, "it lacks the losses of each corpus"):
            path.parent.mkdir(exist_ok=True)
            write_whole(path, json.dumps({"step": step} | content).encode())

    def draw(self) -> None:
        """Draw RUN/loss.png from all lines so far, unless it shows them already."""
        with self._surviving(CURVE, "the old picture remains"):
            if self.last != self._drawn:
                draw_curve(self.run)
                self._drawn = self.last

    def sync(self) -> None:
        """Sync the lines to the disk, before a checkpoint of their step is published."""
        with self._lock, writing(self.run):
            self._flush()
            os.fsync(self.file.fileno())

    def close(self) -> None:
        """Write what is buffered or waits."""
        self._close_files()
        if self.wandb:
            self.wandb.close()

    def _close_files(self) -> None:
        with self._surviving(METRICS, f"{len(self._waiting)} lines are lost"):
            self._flush()
            self.file.close()
        with self._surviving(TENSORBOARD, f"it lacks lines of {METRICS}"):
            if self.board:
                self.board.close()

    def _flush(self) -> None:
        """Write the waiting lines after the whole ones; replaces a line that was cut short."""
        if not self._waiting:
            return
        content = b"".join(self._waiting)
        self.file.truncate(self._end)  # what a full disk left of a line
        done = 0
        while done < len(content):  # a full disk takes a part
            done += self.file.write(content[done:])
        self._end += done
        self._waiting.clear()

    def _show(self, line: Line) -> None:
        if not self.board:
            return
        if TENSORBOARD in self._failing:  # its writer does not survive an error
            self.board = self._new_board(int(line["step"]))
        for name, value in line.items():
            if name != "step" and not isinstance(value, str):
                self.board.add_scalar(board_tag(name), value, line["step"])

    @contextmanager
    def _surviving(self, name: str, meanwhile: str) -> Iterator[None]:
        """Warn that the system refuses to write RUN/name, once for several failures in a row."""
        try:
            yield
        except (OSError, DataError) as error:
            if name not in self._failing:
                reason = error.strerror if isinstance(error, OSError) else error
                self.tell(
                    f"warning: cannot write {self.run / name} ({reason}): {meanwhile}; training "
                    "continues"
                )
            self._failing.add(name)
        else:
            self._failing.discard(name)


class Pace:
    """Time since the last report, and the part of it spent waiting for data."""

    def __init__(self, tokens: int) -> None:
        """tokens: number in the run so far, over all ranks."""
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
        """The items; the time to get each one counts as waiting for data."""
        while True:
            with self.waiting():
                item = next(items, None)
            if item is None:
                return
            yield item

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Exclude the time inside: it does not belong to a step."""
        began = time.perf_counter()
        yield
        self.started_at += time.perf_counter() - began

    def report(self, tokens: int) -> dict[str, float]:
        """Means over the steps since the last report; tokens: in the run so far, over all ranks."""
        now = time.perf_counter()
        seconds, steps = now - self.started_at, max(1, self.steps)
        means = {
            "step_seconds": seconds / steps,
            "data_seconds": self.waited / steps,
            "tokens_per_second": (tokens - self.tokens) / seconds,
        }
        self.tokens, self.steps, self.waited, self.started_at = tokens, 0, 0.0, now
        return means


def memory_gb() -> float:
    """Peak memory so far of this rank's GPU, or of this process if it has no GPU."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 1e9  # not what torch has reserved
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def peak_flops(device: torch.device) -> float:
    """Dense bf16 FLOP/s of a GPU by its data sheet; 0 if unknown."""
    if device.type != "cuda":
        return 0.0
    return peak_flops_of(torch.cuda.get_device_name(device))


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """The lines of RUN/metrics.jsonl, without those at its end that a crash damaged.

    Raises CheckpointError if a damaged line is before a good one.
    """
    path = run / METRICS
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    found: list[dict[str, Any]] = []
    damaged = ""
    for number, line in enumerate(lines, 1):
        try:
            content = as_object(line)
            require(content, {"step": int}, "it")
        except ValueError as error:
            damaged = damaged or f"line {number}: {error}"  # harmless if no good line follows
            continue
        if damaged:
            raise CheckpointError(
                f"{path} is damaged in {damaged}; remove that line, or restore the file from a copy"
            )
        found.append(content)
    return found


def draw_curve(run: Path) -> None:
    """RUN/loss.png: training and validation loss over steps; nothing before there is a loss."""
    if picture := draw_png(loss_plot(read_metrics(run), run.resolve().name)):
        write_whole(run / CURVE, picture)


def loss_plot(lines: Sequence[Mapping[str, Any]], title: str) -> Plot:
    """The losses in the lines of metrics.jsonl, and where phases begin."""
    names = ["loss", "validation_loss", "validation_mask_loss"]
    if any(name in line for line in lines for name in OTHER_PARTS):
        # only masked language modelling: the other parts have other scales
        names[:2] = ["mlm_loss", "validation_mlm_loss"]
    series = [
        (
            name.replace("_mask_loss", " loss at [MASK]").replace("_", " "),
            [(line["step"], line[name]) for line in lines if line.get(name) is not None],
        )
        for name in names
    ]
    marks = []
    for earlier, later in pairwise(line for line in lines if "loss" in line):
        length = later.get("sequence_length")
        if length != earlier.get("sequence_length"):
            marks.append((earlier["step"], f"length {length}"))
        elif later.get("phase") != earlier.get("phase"):
            marks.append((earlier["step"], f"phase {later.get('phase')}"))
    return Plot(title, "nats per predicted token", series, marks)


@contextmanager
def writing(run: Path) -> Iterator[None]:
    """Raises CheckpointError if the system refuses to write into `run`."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"cannot write into {run}: {error.strerror or error}; free space or give access, then "
            "run the same command again, it resumes from the last checkpoint"
        ) from error


def _cut(run: Path, restored_step: int) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Keep the lines up to the restored step; returns the last one before that, then the first and
    the last one after it."""
    lines = read_metrics(run)
    kept = [line for line in lines if line["step"] <= restored_step]
    path = run / METRICS
    content = b"".join(_encode(line) for line in kept)
    if path.exists() and path.read_bytes() != content:  # an unchanged file is left as it is
        write_whole(path, content)
    former = lines[-1] if lines else {}
    return former, *((kept[0], kept[-1]) if kept else ({}, {}))


def _encode(line: Mapping[str, Any]) -> bytes:
    return json.dumps(line).encode() + b"\n"


def _finite_values(line: Line) -> dict[str, float | str | None]:
    return {
        name: value if isinstance(value, str) or math.isfinite(value) else None
        for name, value in line.items()
    }
