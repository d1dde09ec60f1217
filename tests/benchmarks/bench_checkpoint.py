"""The cost of checkpoints: how long the loop is blocked, memory, and time to resume.

    python -m tests.benchmarks.bench_checkpoint [stall] [memory] [resume]

- stall: roberta_base with LAMB in our engine on a CPU, one row of 512 per step, the shortest
  realistic step. Measures `Saver.begin`, and the extra time of steps during the write; together as
  a share of 50 steps.
- memory: weights and moments of roberta_large in a separate process, saved, wiped, read back and
  compared; the kernel's figure of its peak, minus the size of the checkpoint.
- resume: from the start of `pipeline.train roberta_base` to its first new line of metrics, on the
  sample, one row per step.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch
import xxhash

from model.hugging_face.conversion import logical_parameters
from model.objectives.masked_language import MaskedLanguageModel
from pipeline.base.errors import run_command
from pipeline.cluster.ranks import Alone
from pipeline.planning.phase_plan import encoder_config
from pipeline.recipes import recipe
from pipeline.training.checkpoints.read import State, open_checkpoint, step_name
from pipeline.training.checkpoints.saver import Saver
from pipeline.training.optimizer.optimizer import FragmentState
from tests.benchmarks.models import masked_language_model, random_inputs, zero_engine
from tests.benchmarks.timing import Seconds, median, run_alone
from tests.pipeline.conftest import keep_held_out
from tests.pipeline.training import toy_checkpoints

INTERVAL = 50
STEPS, SAVES = 3, 2
GOAL_STALL, GOAL_MEMORY_GB, GOAL_RESUME = 0.05, 2.0, 15
RESUMED = "roberta_base"


def saver_in(folder: Path) -> Saver:
    return Saver(folder, Alone(), keep=1, keep_every=0)


def state(step: int, shapes: dict[str, tuple[int, ...]]) -> State:
    return replace(toy_checkpoints.state(step), shapes=shapes)


def bench_stall(folder: Path) -> None:
    run = replace(recipe("roberta_base"), precision="fp32")
    model = masked_language_model(run)
    shapes = {part.name: tuple(part.shape) for part in logical_parameters(model)}
    engine = zero_engine(model, run, "zero0")
    inputs = random_inputs(run.data.vocab_size, 1, run.data.sequence_length, 77)

    def step() -> None:
        engine.backward(engine(inputs)["mlm_loss"], len(inputs.positions_K))
        engine.step(1e-4)

    saver = saver_in(folder)
    undisturbed, disturbed, begins = list[Seconds](), list[Seconds](), list[Seconds]()
    step()
    for number in range(1, SAVES + 1):
        undisturbed += [Seconds.of(step) for _ in range(STEPS)]
        fragments = engine.optimizer.fragments()
        begins.append(Seconds.of(lambda: saver.begin(fragments, state(number, shapes))))  # noqa: B023
        while saver.writing:
            disturbed.append(Seconds.of(step))
        assert saver.finish() == ""
    engine.close()
    usual, begin = median(undisturbed), begins[-1]
    meanwhile = len(disturbed) / SAVES
    slower = (sum(part) / SAVES for part in zip(*disturbed))
    more = Seconds(*(max(0.0, found - meanwhile * one) for found, one in zip(slower, usual)))
    wall, cpu = ((begin[side] + more[side]) / (INTERVAL * usual[side]) for side in (0, 1))
    print(
        f"checkpoint: roberta_base: the loop is blocked for {begins[0].wall:.2f} s the first time, "
        f"then {begin.wall:.2f} s (CPU {begin.cpu:.2f}); {meanwhile:.1f} steps of "
        f"{usual.wall:.2f} s (CPU {usual.cpu:.2f}) meanwhile take {more.wall:.2f} s more (CPU "
        f"{more.cpu:.2f}, the writer's included); together {wall:.1%} of {INTERVAL} steps, "
        f"{cpu:.1%} by CPU seconds (goal <= {GOAL_STALL:.0%})",
        flush=True,
    )


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
    size = sum(file.bytes for file in checkpoint.files) / 1e9
    print(size, times[1] - times[0], times[2] - times[1])


def bench_memory(folder: Path) -> None:
    command = (sys.executable, "-m", "tests.benchmarks.bench_checkpoint", "--alone", folder)
    _, peak, said = run_alone(*command)
    size, written, read = map(float, said.split())
    print(
        f"checkpoint: roberta_large, {size:.2f} GB: written in {written:.1f} s, read in "
        f"{read:.1f} s, equal; the process that holds it peaks at its size + "
        f"{peak * 2**20 / 1e9 - size:.2f} GB (goal <= {GOAL_MEMORY_GB:.0f} GB)",
        flush=True,
    )


def bench_resume(folder: Path) -> None:
    shards, run = folder / "shards", folder / "run"

    def command(name: str, *words: object) -> list[str]:
        return [sys.executable, "-m", f"pipeline.{name}", *map(str, words)]

    settings = ("precision=fp32", "steps=1000000", "checkpoint.every=1", "logging.every=1",
                "batch.sequences=1", "batch.per_device=1", "validation.every=1000000")  # fmt: skip
    train = ("train", RESUMED, "--data", shards, "--output", run)
    train = (*train, *(f"--set={setting}" for setting in settings), "--stop-at")
    prepare = command("prepare", "--corpus", "sample", "--recipe", RESUMED, "--output", shards)
    subprocess.run(prepare, check=True, stdout=subprocess.DEVNULL)
    keep_held_out(shards, 1)  # a command validates at its end
    subprocess.run(command(*train, 1), check=True, stdout=subprocess.DEVNULL)
    seconds = [seconds_to_step(command(*train, step), run, step) for step in (2, 3)]
    print(
        f"checkpoint: {RESUMED} resumes to its first new line of metrics in "
        f"{' and '.join(f'{wall:.1f} s (CPU {cpu:.1f})' for wall, cpu in seconds)} (goal <= "
        f"{GOAL_RESUME} s)",
        flush=True,
    )


def seconds_to_step(command: list[str], run: Path, step: int) -> Seconds:
    """Of a command until `step` is in the metrics of a run."""
    metrics = run / "metrics.jsonl"
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            lines = metrics.read_text().splitlines()
            if lines[-1].endswith("}") and json.loads(lines[-1])["step"] == step:
                wall = time.perf_counter() - began
                process.wait()
                ticks = int(fields[11]) + int(fields[12])
                return Seconds(wall, ticks / os.sysconf("SC_CLK_TCK"))
            time.sleep(0.01)
    raise SystemExit(f"{run} ended before step {step}")


BENCHES = {"memory": bench_memory, "resume": bench_resume, "stall": bench_stall}
"""In this order: processes would inherit what the last one sets, which joins a group of ranks."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*BENCHES, []], default=[])
    parser.add_argument("--alone", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        measure_memory(options.alone)
        return
    loads = [os.getloadavg()[0]]
    for name in options.parts or BENCHES:
        with tempfile.TemporaryDirectory() as folder:
            BENCHES[name](Path(folder))
    loads.append(os.getloadavg()[0])
    print(f"checkpoint: load before {loads[0]:.1f}, after {loads[1]:.1f} (ours alone: <= 2)")


if __name__ == "__main__":
    run_command(main, at_once=True)
