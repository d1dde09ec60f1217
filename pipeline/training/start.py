"""The command line's job -> its data, its record and its checkpoint, checked against each other."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.base.errors import CheckpointError
from pipeline.cluster.process_group import device_name
from pipeline.cluster.ranks import ONE_PROCESS, Cluster, RankGroup, agreed
from pipeline.cluster.shared_shards import open_shards
from pipeline.cluster.stop_request import StopRequest
from pipeline.config.run import Run
from pipeline.data.shards.held_out_check import check_held_out
from pipeline.data.shards.manifest import TRAIN, VALIDATION
from pipeline.evaluation.zero_shot.grammar import GrammarTest
from pipeline.loading.compatibility import check_shards
from pipeline.loading.dataset import Dataset
from pipeline.loading.record_batches import announce_bus_errors
from pipeline.planning.phase_plan import Plan
from pipeline.planning.phases import (
    Phase,
    check_lengths,
    check_phases,
    make_phases,
    steps_at_words,
)
from pipeline.training.attention_choice import recorded_attention
from pipeline.training.checkpoints.read import Checkpoint, open_from, open_latest
from pipeline.training.feed import Feed
from pipeline.training.job import Job
from pipeline.training.recovery import exclude_shards, find_damaged_at_start
from pipeline.training.run_directory.boards import check_boards
from pipeline.training.run_directory.layout import (
    INTERRUPTED,
    claim,
    has_checkpoints,
    mark_ready,
)
from pipeline.training.run_directory.run_json import (
    RunRecord,
    check_same_run,
    check_source,
    read_record,
    recorded_pooling,
    source_length,
)
from pipeline.training.run_progress import Progress, start_progress
from pipeline.training.validation.grammar_curve import open_grammar
from pipeline.training.weights.initial_weights import check_initial_weights


@dataclass(frozen=True, slots=True)
class RunData:
    """The datasets of a run."""

    train: tuple[Dataset, ...]
    """The training datasets, in the order of --data."""
    validation: tuple[Dataset, ...]
    """The held-out datasets of the same directories."""
    phases: tuple[Phase, ...]
    """Each with its datasets of both splits."""
    grammar: GrammarTest | None
    """The minimal pairs of validation.grammar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where a run starts or resumes."""

    record: RunRecord
    feed: Feed
    grammar: GrammarTest | None
    """The minimal pairs that validation scores too."""
    progress: Progress
    checkpoint: Checkpoint | None
    """None if the run has none yet and does not fork another one."""
    forked: bool
    """True if the checkpoint is that of --from."""
    interrupted: bool
    """True if the last job stopped early."""
    general: Dataset | None = None
    """The general sample, if the run is scored on it."""

    @property
    def plan(self) -> Plan:
        """The plan of the first phase: the engine divides by its micro-batches in all phases, as
        another divisor would round differently."""
        return self.feed.phases[0].plan

    def is_done(self, last_step: int) -> bool:
        """True if the run has nothing left to do."""
        return self.progress.step >= last_step and not self.forked and not self.interrupted


def claim_directory(job: Job, cluster: Cluster, held: ExitStack) -> None:
    """Hold RUN until `held` is closed. Collective."""
    with cluster.agreed():
        if cluster.rank == 0:
            check_boards(job.run.logging.to)
            held.enter_context(claim(job.output))


def open_start(job: Job, cluster: Cluster, stop: StopRequest) -> Start:
    """Open the data and the checkpoint; an error if they do not fit the run. Collective."""
    with cluster.agreed():
        record, data = open_run(job, cluster)
        interrupted = (job.output / INTERRUPTED).exists()
    with cluster.agreed():
        # From here on a stop request waits for the loop, which saves.
        stop.can_save = True
        if cluster.rank == 0:
            mark_ready(job.output)
        checkpoint, forked = choose_checkpoint(job, cluster)
        if checkpoint:
            check_source(checkpoint.state, record, checkpoint.directory, forked)
    progress = start_progress(checkpoint, record, forked)
    damaged = find_damaged_at_start(data.train)
    of_phases = [phase.train for phase in data.phases]
    progress = exclude_shards(progress, data.train, of_phases, damaged, cluster)
    if forked and checkpoint:
        source = checkpoint.directory.resolve()
        # RUN/checkpoints/step-N -> RUN.
        length = source_length(checkpoint.state, source.parent.parent)
        record = replace(
            record,
            begun_from=str(source),
            initial_length=length,
            classifier_pooling=recorded_pooling(source.parent.parent),
        )
        if cluster.rank == 0:
            reads = "its data" if progress.sequences else "other data from the first sequence"
            print(f"starts a new run from {checkpoint.directory} and reads {reads}")
    if job.run.data.reader == "mmap":
        # A file that is cut while it is mapped kills with SIGBUS, not with an exception.
        announce_bus_errors()
    return Start(
        record=record,
        feed=Feed(data.phases, data.train, cluster, progress, job.stage),
        grammar=data.grammar,
        progress=progress,
        checkpoint=checkpoint,
        forked=forked,
        interrupted=interrupted,
    )


def open_run(job: Job, cluster: Cluster) -> tuple[RunRecord, RunData]:
    """Open the data and make the run's record; errors if these do not fit RUN or the ranks.

    Collective.
    """
    with agreed(cluster, CheckpointError):  # no rank opens data alone
        # Without a checkpoint nothing was learned under an older run.json, so settings may change.
        earlier = read_record(job.output) if has_checkpoints(job.output) else None
    sha256 = earlier.tokenizer_sha256 if earlier else ""
    stage = job.deepspeed.stage(job.run.precision)
    data = open_data(job.run, job.directories, cluster.world_size, stage, sha256, cluster)
    if earlier:
        check_same_run(earlier, job.run, data.train, job.output)
        if job.init and cluster.rank == 0:
            check_initial_weights(earlier.initial_weights, job.init.folder)
    plans = [phase.plan.to_dict() for phase in data.phases]
    record = RunRecord.of(job.run, plans, data.train, device=device_name(cluster.device))
    if earlier:
        record = replace(
            record,
            attention=recorded_attention(earlier, record.device, cluster.rank == 0),
            begun_from=earlier.begun_from,
            initial_weights=earlier.initial_weights,
            initial_length=earlier.initial_length,
            classifier_pooling=earlier.classifier_pooling,
        )
    return record, data


def open_data(
    run: Run,
    directories: Sequence[Path],
    world_size: int,
    stage: int,
    tokenizer_sha256: str = "",
    ranks: RankGroup = ONE_PROCESS,
) -> RunData:
    """The datasets of --data, by phases, and the pairs; an error if they do not fit the run.

    world_size, stage: number of ranks and effective ZeRO stage to plan for; tokenizer_sha256: of
    the tokenizer that the run started with, "" for a new run; ranks: open the data together, and
    the first one checks whether one directory trains on documents that another holds out.
    Collective.
    """
    skips = run.data.damaged == "skip"
    train, stored = open_shards(directories, (TRAIN, VALIDATION), ranks, skip_damaged=skips)
    # In this order: each of these relies on what the one before has checked.
    check_lengths(run, train)
    check_shards(run, train, tokenizer_sha256)
    check_phases(run, train)
    if ranks.rank == 0:
        check_held_out([(dataset.directory, dataset.manifest) for dataset in train])
    rate = run.validation.mask_rate
    validation = tuple(dataset.at_rate(rate) for dataset in stored)
    phases = make_phases(run, world_size, stage, train, validation)
    steps_at_words(run, phases)  # an error for shards that cannot tell
    return RunData(
        train,
        validation,
        phases,
        open_grammar(run, train[0].directory / "tokenizer"),
    )


def choose_checkpoint(job: Job, cluster: Cluster) -> tuple[Checkpoint | None, bool]:
    """The checkpoint to start from, and whether it is another run's (--from). Collective."""
    checkpoint, messages = open_latest(job.output, cluster)
    # The same command resumes a fork, so its own checkpoints come first.
    forked = checkpoint is None and job.fork is not None
    if checkpoint is None and job.fork is not None:
        checkpoint, messages = open_from(job.fork, cluster)
    for message in messages if cluster.rank == 0 else ():
        print(f"checkpoints: {message}", file=sys.stderr)
    if forked and checkpoint and checkpoint.state.step >= job.last_step:
        raise CheckpointError(
            f"{checkpoint.directory} is at step {checkpoint.state.step} already, the run would end "
            f"at {job.last_step}; raise steps"
        )
    return checkpoint, forked
