"""What a run prints before its first step: its plan in words, and warnings about doubtful choices.

`--dry-run` prints this and writes nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from torch.cuda import is_available

from pipeline.base.command_line import cores
from pipeline.cluster.ranks import launched_rank
from pipeline.config.mask_rates import at_rate
from pipeline.config.run import Run
from pipeline.costs.disk import PARAMETER_BYTES
from pipeline.costs.shapes.parameters import parameter_sizes
from pipeline.planning.build import first_model
from pipeline.planning.deepspeed_config import deepspeed_dict
from pipeline.planning.doubts import Machines, doubts
from pipeline.planning.phases import Phase
from pipeline.planning.plan import rounded
from pipeline.training.job import Job
from pipeline.training.start import open_data
from pipeline.training.weights.initial_weights import load_initial_weights


def dry_run(job: Job) -> None:
    """Print the plan and write nothing."""
    ranks = job.ranks or int(os.environ.get("WORLD_SIZE", "1"))
    stage = job.deepspeed.stage(job.run.precision)
    phases = open_data(job.run, job.directories, ranks, stage).phases
    if launched_rank() != 0:
        return
    if job.init:
        tokenizer = phases[0].train[0].directory / "tokenizer"
        model = first_model(job.run)
        weights = load_initial_weights(model, job.init.folder, tokenizer, job.init.new)
        print("\n".join(weights.lines))
    # --ranks plans for another machine, and ranks there have GPUs
    device = "cuda" if job.ranks or is_available() else "cpu"
    print_plan(job, phases, device)
    print("  memory, hours, cost, disk: python -m pipeline.plan --help")
    if job.verbose:
        plan = phases[0].plan
        settings = deepspeed_dict(
            job.run, job.deepspeed, parameters=sum(parameter_sizes(job.run)),
            rows=plan.rows, accumulation=plan.accumulation, world_size=ranks,
        )  # fmt: skip
        print(f"DeepSpeed: {settings}")


def print_plan(job: Job, phases: Sequence[Phase], device: str) -> None:
    """Print the run and the plan of each of its phases, then warnings; device: cpu or cuda."""
    print(f"{job.run.name} -> {job.output}")
    for line in (*run_lines(job.run, phases), *job.notes):
        print(f"  {line}")
    indent = "    " if len(phases) > 1 else "  "
    for phase in phases:
        if len(phases) > 1:
            print(f"  {phase.words}")
        for line in phase.lines():
            print(f"{indent}{line}")
    ranks = phases[0].plan.world_size
    beside = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    machines = Machines(device, ranks, cores() * max(1, ranks // beside))
    for advice in (*job.advice, *doubts(phases, machines, continued=job.init is not None)):
        print(f"warning: {advice}", file=sys.stderr)


def run_lines(run: Run, phases: Sequence[Phase]) -> list[str]:
    """What all phases share, in words."""
    encoder, optimizer, saved, held_out = run.encoder, run.optimizer, run.checkpoint, run.validation
    size = phases[0].plan.parameters * PARAMETER_BYTES / 1e9
    return [
        f"run: {run.steps:,} steps in {run.precision} with {optimizer.kind}, learning rate up to "
        f"{optimizer.peak_lr:g} after {run.schedule.warmup_steps:,} steps of warm-up",
        f"encoder: {encoder.layers} layers of width {encoder.width:,}, {run.data.vocab_size:,} ids",
        f"saved: every {saved.every:,} steps, {rounded(size, 2)} GB each; validated every "
        f"{held_out.every:,} steps{' with grammar' if held_out.grammar else ''}"
        f"{at_rate(held_out.mask_rate)}",
    ]
