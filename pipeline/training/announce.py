"""What a run prints: before its first step its plan and warnings, at its end how to continue.

`--dry-run` prints the plan and writes nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer
from torch.cuda import is_available

from pipeline.base.command_line import cores, next_lines, unused_path
from pipeline.base.errors import DataError
from pipeline.cluster.ranks import Cluster, launched_rank
from pipeline.config.mask_rates import at_rate
from pipeline.config.run import Run
from pipeline.costs.disk import PARAMETER_BYTES
from pipeline.costs.shapes.parameters import parameter_sizes
from pipeline.loading.loader import Loader
from pipeline.loading.micro_batch import MicroBatch
from pipeline.planning.build import first_model
from pipeline.planning.deepspeed_config import deepspeed_dict
from pipeline.planning.doubts import Machines, doubts
from pipeline.planning.phase_plan import format_digits
from pipeline.planning.phases import Phase
from pipeline.training.job import Job
from pipeline.training.loop import Trainer
from pipeline.training.run_directory.layout import mark_interrupted
from pipeline.training.start import Start, open_data
from pipeline.training.validation.before_after import change
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
    # `cores` is of this node; the others are taken to be alike.
    machines = Machines(device, ranks, cores() * max(1, ranks // beside))
    for advice in (*job.advice, *doubts(phases, machines, continued=job.init is not None)):
        print(f"warning: {advice}", file=sys.stderr)


def run_lines(run: Run, phases: Sequence[Phase]) -> list[str]:
    """Lines about what all phases share."""
    encoder, optimizer, saved, held_out = run.encoder, run.optimizer, run.checkpoint, run.validation
    size = phases[0].plan.parameters * PARAMETER_BYTES / 1e9
    epochs = f" for epochs={run.epochs:g}" if run.epochs else ""
    return [
        f"run: {run.steps:,} steps{epochs} in {run.precision} with {optimizer.kind}, learning "
        f"rate up to {optimizer.peak_lr:g} after {_steps(run.schedule.warmup_steps)} of warm-up",
        f"encoder: {encoder.layers} layers of width {encoder.width:,}, {run.data.vocab_size:,} ids",
        f"saved: {_when(saved.every, run)}, {format_digits(size, 2)} GB each; validated "
        f"{_when(held_out.every, run)}{' with grammar' if held_out.grammar else ''}"
        f"{at_rate(held_out.mask_rate)}",
    ]


def _when(every: int, run: Run) -> str:
    return f"every {_steps(every)}" if every < run.steps else "after the last step"


def _steps(count: int) -> str:
    return f"{count:,} step{'s' * (count != 1)}"


def print_start(job: Job, cluster: Cluster, start: Start) -> None:
    """Print the plans and an example of what the run reads next; rank 0 only. Collective."""
    with cluster.agreed():
        if cluster.rank == 0:
            print_plan(job, start.feed.phases, cluster.device.type)
            sequences = start.feed.reading(start.progress).sequences
            print_example(start.feed.loader, sequences, start.progress.step)


def finish(job: Job, trainer: Trainer, interrupted: bool) -> None:
    """Draw the loss curve, mark an interrupted run and print how to continue."""
    step = trainer.progress.step
    if trainer.metrics:
        trainer.metrics.draw()
    if interrupted:
        saved = trainer.saver.saved_step
        mark_interrupted(job.output, max(0, saved))
        how = "and saved"
        if saved != step:  # see `Trainer._save`
            how = f"without saving it; saved is {f'step {saved:,}' if saved >= 0 else 'nothing'}"
        print(f"interrupted at step {step:,} {how}; run the same command again to resume")
    else:
        print(f"{job.output} is at step {step:,} of {job.run.steps:,}")
        if trainer.metrics and (words := change(trainer.metrics.first, trainer.metrics.last)):
            print(words)
        if job.run.checkpoint.exportable:
            exported = unused_path(Path(f"{job.output}-export"))
            print("\n".join(next_lines(("export", job.output, "--output", exported))))


def print_example(loader: Loader, sequences: int, step: int) -> None:
    """Print one sequence of the next step as the encoder sees it; sequences: read so far."""
    try:
        batch = next(loader.micro_batches(sequences, step))
    except DataError as error:  # the training loop gets the same error and handles it
        print(f"  example: none, {error}")
        return
    tokenizer = Tokenizer.from_file(
        str(loader.datasets[0].directory / "tokenizer" / "tokenizer.json")
    )
    print(f"  example: {describe_example(batch, tokenizer)}")
    if step:
        print(f"resuming after step {step:,}")
    sys.stdout.flush()


def describe_example(batch: MicroBatch, tokenizer: Tokenizer, tokens: int = 48) -> str:
    """A line for the batch's first row; a predicted token is {what the encoder sees | the
    answer}."""
    shown = batch.input_ids[batch.rows[0]][:tokens].tolist()
    used = zip(batch.positions.tolist()[: batch.predictions], batch.labels.tolist(), strict=False)
    answers = {place: label for place, label in used if place < len(shown)}

    def text(ids: list[int]) -> str:
        return str(tokenizer.decode(ids, skip_special_tokens=False))

    parts: list[str] = []
    start = 0
    for place, label in sorted(answers.items()):
        parts += [text(shown[start:place]), f" {{{text([shown[place]])} | {text([label])}}}"]
        start = place + 1
    parts.append(text(shown[start:]))
    # One line, whatever the text holds.
    return " ".join("".join(parts).split())
