"""The cost of checkpoints: how long the loop is blocked, memory, and time to resume.

    python -m tests.benchmarks.bench_checkpoint [stall] [memory] [resume]

- stall: roberta_base with LAMB in our engine on a CPU, one row of 512 per step, the shortest
  realistic step. Measures `Saver.begin`, and the extra time of steps during the write, by the clock
  and by CPU seconds, since other work on the machine affects the clock; together as a share of 50
  steps. For comparison, a save that the loop waits for.
- memory: weights and moments of roberta_large in a separate process, saved, wiped, read back and
  compared; the kernel's figure of its peak, minus the size of the checkpoint.
- resume: from the start of `pipeline.train` to its first new line of metrics, roberta_tiny on the
  sample, from a checkpoint of step 10 and from one labelled step 1,000,000.
"""

import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch
import xxhash

from model.hugging_face.conversion import logical_parameters
from model.objectives.masked_language import Inputs, MaskedLanguageModel
from model.pieces import pieces_of
from pipeline.base.errors import run_command
from pipeline.cluster.process_group import init_distributed
from pipeline.cluster.ranks import Alone
from pipeline.planning.deepspeed_config import read_deepspeed_file
from pipeline.planning.phase_plan import encoder_config
from pipeline.recipes import recipe
from pipeline.training.checkpoints.read import State, open_checkpoint, open_latest, step_name
from pipeline.training.checkpoints.saver import Saver
from pipeline.training.optimizer import engine as engines
from pipeline.training.optimizer.optimizer import FragmentState
from tests.benchmarks.bench_training import Seconds

PARTS = ("stall", "memory", "resume")
INTERVAL = 50
STEPS, SAVES = 3, 2
GOAL_STALL, GOAL_MEMORY_GB = 0.05, 2.0
TINY = ["--set", "checkpoint.every=10", "--set", "logging.every=1"]


def saver_in(folder: Path) -> Saver:
    return Saver(folder, Alone(), keep=1, keep_every=0)


def state(step: int, shapes: dict[str, tuple[int, ...]]) -> State:
    return State(
        step=step, readings=(), updates=step, counters={}, run={}, fingerprints={},
        left_out=(), recent_losses=(),
        world_size=1, stage=0, shapes=shapes, versions={}, device="",
    )  # fmt: skip


def bench_stall(folder: Path) -> None:
    run = replace(recipe("roberta_base"), precision="fp32")
    model = MaskedLanguageModel(encoder_config(run), seed=0).train()
    logical = logical_parameters(model)
    init_distributed()
    engine = engines.initialize_engine(
        model, run, read_deepspeed_file("zero0"), logical, rows=1, accumulation=1
    )
    shapes = {part.name: tuple(part.shape) for part in logical}
    ids = torch.randint(5, 50_000, (1, 512), generator=torch.Generator().manual_seed(0))
    places = torch.arange(0, 512, 7)
    inputs = Inputs(
        ids[0], pieces_of([ids.shape[1]]), places, ids[0, places], torch.ones(len(places)), 4
    )

    def step() -> None:
        engine.backward(engine(inputs)["mlm_loss"], len(places))
        engine.step(1e-4)

    saver = saver_in(folder)
    undisturbed: list[Seconds] = []
    disturbed: list[Seconds] = []
    begins: list[Seconds] = []
    step()
    for number in range(1, SAVES + 1):
        undisturbed += [Seconds.of(step) for _ in range(STEPS)]
        fragments = engine.optimizer.fragments()
        begins.append(Seconds.of(lambda: saver.begin(fragments, state(number, shapes))))  # noqa: B023
        while saver.writing:
            disturbed.append(Seconds.of(step))
        assert saver.finish() == ""
    fragments = engine.optimizer.fragments()
    waited = Seconds.of(lambda: saver.save(fragments, state(SAVES + 1, shapes)))
    engine.close()
    usual = Seconds(*(statistics.median(part) for part in zip(*undisturbed)))
    begin = begins[-1]
    slower = [sum(part) / SAVES for part in zip(*disturbed)]
    meanwhile = len(disturbed) / SAVES
    more = Seconds(*(max(0.0, found - meanwhile * one) for found, one in zip(slower, usual)))
    wall, cpu = ((begin[side] + more[side]) / (INTERVAL * usual[side]) for side in (0, 1))
    print(
        f"checkpoint: roberta_base ({saver_size(folder) / 1e9:.2f} GB): the loop is blocked for "
        f"{begins[0].wall:.2f} s the first time, then {begin.wall:.2f} s (CPU {begin.cpu:.2f}); "
        f"{meanwhile:.1f} steps of {usual.wall:.2f} s (CPU {usual.cpu:.2f}) meanwhile take "
        f"{more.wall:.2f} s more (CPU {more.cpu:.2f}, the writer's included); together {wall:.1%} "
        f"of {INTERVAL} steps, {cpu:.1%} by CPU seconds (goal <= {GOAL_STALL:.0%}); a save that "
        f"the loop waits for takes {waited.wall:.1f} s (CPU {waited.cpu:.1f})",
        flush=True,
    )


def saver_size(folder: Path) -> int:
    found = open_latest(folder, Alone())[0]
    assert found
    return sum(file.bytes for file in found.files)


def measure_memory(folder: Path) -> None:
    """The work of the process that `bench_memory` starts."""
    with torch.device("meta"):
        model = MaskedLanguageModel(encoder_config(recipe("roberta_large")), seed=0)
    shapes = {part.name: tuple(part.shape) for part in logical_parameters(model)}
    generator = torch.Generator().manual_seed(0)
    fragments = [
        FragmentState(
            name, 0, *(torch.empty(math.prod(shape)).uniform_(generator=generator) for _ in "123")
        )
        for name, shape in shapes.items()
    ]

    def digest() -> str:
        total = xxhash.xxh3_64()
        for part in fragments:
            for tensor in part[2:]:
                total.update(tensor.numpy().data)
        return total.hexdigest()

    before, times = digest(), [time.perf_counter()]
    saver_in(folder).save(fragments, state(1, shapes))
    times.append(time.perf_counter())
    checkpoint = open_checkpoint(folder / "checkpoints" / step_name(1))
    for part in fragments:
        for tensor in part[2:]:
            tensor.zero_()
        for tensor, saved in zip(part[2:], checkpoint.read(part.name, 0, part.weight.numel())):
            tensor.copy_(saved)
    times.append(time.perf_counter())
    assert digest() == before
    peak = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    assert peak
    size = sum(file.bytes for file in checkpoint.files)
    over = int(peak[1]) * 1024 - size
    print(
        f"checkpoint: roberta_large, {size / 1e9:.2f} GB: written in {times[1] - times[0]:.1f} s, "
        f"read in {times[2] - times[1]:.1f} s, equal; the process that holds it peaks at its size "
        f"+ {over / 1e9:.2f} GB (goal <= {GOAL_MEMORY_GB:.0f} GB)"
    )


def bench_memory(folder: Path) -> None:
    module = "tests.benchmarks.bench_checkpoint"
    subprocess.run([sys.executable, "-m", module, "--alone", str(folder)], check=True)


def bench_resume(folder: Path) -> None:
    shards, early, late = folder / "shards", folder / "early", folder / "late"
    quiet = {"check": True, "stdout": subprocess.DEVNULL}
    prepare = ["-m", "pipeline.prepare", "--corpus", "sample", "--recipe", "roberta_tiny"]
    subprocess.run([sys.executable, *prepare, "--output", str(shards)], **quiet)  # type: ignore[call-overload]
    settings = [*TINY, "--set", "steps=2000000"]

    def train(run: Path, step: int) -> list[str]:
        return [
            sys.executable, "-m", "pipeline.train", "roberta_tiny", "--data", str(shards),
            "--output", str(run), "--stop-at", str(step), *settings,
        ]  # fmt: skip

    subprocess.run(train(early, 10), **quiet)  # type: ignore[call-overload]
    pretend(early, late, 1_000_000)
    found: dict[int, list[tuple[float, float]]] = {10: [], 1_000_000: []}
    for turn in range(3):
        for run, first in ((early, 10), (late, 1_000_000)):
            found[first].append(
                seconds_to_step(train(run, first + 1 + turn), run, first + 1 + turn)
            )
    early_s, late_s = ([statistics.median(part) for part in zip(*one)] for one in found.values())
    print(
        f"checkpoint: resume to the first new line of metrics: {early_s[0]:.1f} s (CPU "
        f"{early_s[1]:.1f}) from step 10, {late_s[0]:.1f} s (CPU {late_s[1]:.1f}) from step "
        f"1,000,000: ratio {late_s[0] / early_s[0]:.2f}, by CPU seconds "
        f"{late_s[1] / early_s[1]:.2f} (goal: 1)",
        flush=True,
    )


def seconds_to_step(command: list[str], run: Path, step: int) -> tuple[float, float]:
    """Wall and CPU seconds of a command until `step` is in the metrics of a run."""
    metrics = run / "metrics.jsonl"
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            lines = metrics.read_text().splitlines() if metrics.exists() else []
            if lines and lines[-1].endswith("}") and json.loads(lines[-1])["step"] == step:
                seconds = time.perf_counter() - began
                process.wait()
                return seconds, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            time.sleep(0.01)
    raise SystemExit(f"{run} ended before step {step}")


def pretend(early: Path, late: Path, step: int) -> None:
    """A copy of the run `early` whose checkpoint is labelled with another step."""
    found = open_latest(early, Alone())[0]
    assert found
    late.mkdir()
    (late / "run.json").write_bytes((early / "run.json").read_bytes())
    readings = tuple(
        reading._replace(sequences=reading.sequences // found.state.step * step)
        for reading in found.state.readings
    )
    fragments = [
        FragmentState(name, 0, *found.read(name, 0, math.prod(shape)))
        for name, shape in found.state.shapes.items()
    ]
    saver_in(late).save(fragments, replace(found.state, step=step, readings=readings))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--alone", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        measure_memory(options.alone)
        return
    benches = {"stall": bench_stall, "memory": bench_memory, "resume": bench_resume}
    loads = [os.getloadavg()[0]]
    for name in options.parts or PARTS:
        with tempfile.TemporaryDirectory() as folder:
            benches[name](Path(folder))
    loads.append(os.getloadavg()[0])
    print(f"checkpoint: load before {loads[0]:.1f}, after {loads[1]:.1f} (ours alone: <= 2)")


if __name__ == "__main__":
    run_command(main, at_once=True)
