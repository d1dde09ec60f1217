"""Times of runs, measured from a few steps of each shape, in one process for all.

Start, validations and scoring are counted: in a small run they take longer than the steps. The
steps are of smaller batches on the sample corpus, in the run's own format and sizes: seconds per
token hardly depend on the text. All is in a temporary directory.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.base.files import write_whole
from pipeline.base.typed_json import as_object
from pipeline.config.run import Run
from pipeline.config.settings import override, to_dict
from pipeline.data.shards.manifest import VALIDATION, Manifest
from pipeline.experiments.children import Children

MEASURED_STEPS = 4
"""The first is not counted: it compiles."""
MOST_MICRO_BATCHES = 2
"""Micro-batches of a measured step: enough to share out the optimizer as a tiny recipe does."""
_SPEED = ("data", "encoder", "objective", "precision", "batch")
"""Settings that decide how fast a run is, with the kind of its optimizer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimes:
    """Seconds of the parts of a short run on this machine."""

    start: float
    """Seconds per command: the interpreter, imports."""
    prepare: float
    """Seconds of preparing the sample corpus; 0 if another run's shards served."""
    setup: float
    """Seconds of training without its start and all steps but the first; with a checkpoint."""
    step: float
    step_tokens: float
    """Mean number of tokens in a step."""
    score: float
    """Seconds of scoring the held-out rows."""
    held_out: int
    """Held-out rows of the sample corpus."""

    def of_run(self, run: Run, held_out: int, scorings: int) -> float:
        """Seconds of a whole run and `scorings` commands that score it, one after another.

        held_out: rows that each validation reads.
        """
        small = _short(run)
        tokens = tokens_of(run, self.step_tokens / small.batch.sequences)
        validations = -(-run.steps // run.validation.every)  # rounded up: the end is validated
        score = self.score * held_out / self.held_out
        steps = self.step * tokens / self.step_tokens
        commands = (1 + scorings) * self.start
        return commands + self.setup + steps + (validations + scorings) * score


def measure_runs(runs: Sequence[Run], children: Children) -> list[RunTimes]:
    """The times of each run; those of the same shape are measured once. Raises ChildError."""
    shapes = [_shape(run) for run in runs]
    measured = dict(zip(shapes, runs, strict=True))
    with tempfile.TemporaryDirectory(prefix="tenfold-") as name:
        folder = Path(name)
        for number, run in enumerate(measured.values()):
            content = json.dumps({"run": to_dict(_short(run))}).encode()
            write_whole(folder / f"{number}.json", content)
        began = time.monotonic()
        words = ("pipeline.time_runs", folder)
        found = as_object(children.run(words, folder / "log", reads=True))["runs"]
        seconds = time.monotonic() - began
    parts = sum(each["prepare"] + each["setup"] + each["score"] for each in found)
    steps = sum((MEASURED_STEPS - 1) * each["step"] for each in found)
    # the rest of the process's time: interpreter and imports; only noise makes it negative
    start = max(0.0, seconds - parts - steps)
    # what a process does once, such as loading kernels, is only in the first run
    once = found[0]["setup"]
    times = {
        shape: RunTimes(start=start, **each | {"setup": max(once, each["setup"])})
        for shape, each in zip(measured, found, strict=True)
    }
    return [times[shape] for shape in shapes]


def held_out_rows(manifest: Manifest) -> int:
    """Held-out sequences of shards."""
    return sum(shard.sequences for shard in manifest.shards if shard.split == VALIDATION)


def tokens_of(run: Run, per_sequence: float) -> float:
    """Tokens that a run reads; per_sequence: mean number in a row of the last phase."""
    last = run.batch.step_tokens or run.batch.sequences * per_sequence
    share = per_sequence / run.data.sequence_length
    steps = run.steps - sum(phase.steps for phase in run.phases)
    earlier = sum(p.steps * p.sequences * p.sequence_length for p in run.phases) * share
    return steps * last + earlier


def _short(run: Run) -> Run:
    """A few steps of the same micro-batches, of the last phase."""
    sequences = min(run.batch.sequences, MOST_MICRO_BATCHES * run.batch.per_device)
    # the schedule has to fit, though --stop-at ends the run after MEASURED_STEPS
    warm_up = run.schedule.warmup_steps + run.schedule.decay_steps
    return override(run, [
        "phases=[]", "batch.step_tokens=0", "batch.warmup_steps=0", "batch.first_sequences=1",
        f"batch.sequences={sequences}", "batch.mixture=[]", "batch.mixture_exponent=1",
        "batch.corpora=[]", "logging.to=[]", f"steps={max(warm_up, MEASURED_STEPS) + 1}",
        "epochs=0", f"validation.every={run.steps + MEASURED_STEPS}", "logging.every=1",
    ])  # fmt: skip


def _shape(run: Run) -> str:
    """Equal for runs whose steps take equally long."""
    settings = to_dict(_short(run))
    return json.dumps([settings[name] for name in _SPEED] + [run.optimizer.kind])
