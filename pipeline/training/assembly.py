"""A start -> the training loop: model, engine, metrics, saver and trainer, each built once."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial

from tqdm import tqdm

from model.hugging_face.conversion import Model, logical_parameters
from model.layers import attend_by
from pipeline.base.null_device import NULL
from pipeline.cluster.ranks import Cluster
from pipeline.cluster.stop_request import Deadline, StopRequest
from pipeline.cluster.watchdog import Watchdog
from pipeline.planning.build import compile_layers, first_model
from pipeline.planning.phases import steps_at_words
from pipeline.training.attention_choice import attention_cases, choose_attention
from pipeline.training.checkpoints.saver import Saver
from pipeline.training.job import Job
from pipeline.training.loop import Trainer
from pipeline.training.loss_watch import LossWatch
from pipeline.training.optimizer.engine import ZeroEngine, initialize_engine
from pipeline.training.recovery import Recovery
from pipeline.training.run_directory.metrics_log import Metrics
from pipeline.training.run_directory.plan_check import PlanCheck
from pipeline.training.run_directory.profile import PROFILE, Trace
from pipeline.training.run_directory.run_status import PLAN
from pipeline.training.run_directory.stragglers import ForwardClock, Stragglers, host_name
from pipeline.training.run_progress import restore
from pipeline.training.start import Start
from pipeline.training.validation.general_sample import open_general
from pipeline.training.validation.validator import Validator
from pipeline.training.weights.initial_weights import load_initial_weights

warn = partial(tqdm.write, file=sys.stderr)


def initialize_model(job: Job, cluster: Cluster, start: Start) -> tuple[Model, Start]:
    """The model with the recipe's weights or those of --init, and the new start. Collective."""
    model = first_model(job.run)
    with cluster.agreed():
        if job.init and not start.checkpoint:
            tokenizer = start.feed.datasets[0].directory / "tokenizer"
            weights = load_initial_weights(model, job.init.folder, tokenizer, job.init.new)
            origin = {"origin": job.init.origin} if job.init.origin else {}
            record = replace(
                start.record,
                initial_weights=weights.described | origin,
                initial_length=weights.length,
                classifier_pooling=weights.pooling,
            )
            start = replace(start, record=record)
            if cluster.rank == 0:
                print("\n".join(weights.lines))
    return model, start


def take_attention(job: Job, cluster: Cluster, start: Start, model: Model) -> Start:
    """Let the model attend by the kernel that is recorded or chosen; returns the new start.
    Collective."""
    with cluster.agreed():
        kernel = choose_attention(
            attention_cases(job.run, start.feed.phases, cluster.device),
            start.record.attention, start.record.device, cluster,
        )  # fmt: skip
    attend_by(model, kernel)
    return replace(start, record=replace(start.record, attention=kernel))


def add_general_sample(job: Job, cluster: Cluster, start: Start) -> Start:
    """The start with the general sample, if the run starts from given weights. Collective."""
    if not start.record.initial_weights:
        return start
    step = start.progress.step if start.checkpoint else None
    last, tokenizer = start.feed.phases[-1], start.feed.datasets[0].directory / "tokenizer"
    return replace(start, general=open_general(last.run, job.output, tokenizer, cluster, step=step))


def build_engine(job: Job, cluster: Cluster, start: Start, model: Model) -> ZeroEngine:
    """The model under ZeRO with its optimizer, restored from the checkpoint. Collective."""
    logical = logical_parameters(model)
    if cluster.device.type == "cuda":
        model.to(cluster.device)
        compile_layers(model, job.deepspeed.stage(job.run.precision))
    plan = start.plan
    with cluster.agreed():
        engine = initialize_engine(
            model, job.run, job.deepspeed, logical, rows=plan.rows, accumulation=plan.accumulation
        )
    with cluster.agreed():
        if start.checkpoint:
            restore(engine, start.checkpoint)
    return engine


def open_metrics(job: Job, cluster: Cluster, start: Start, held: ExitStack) -> Metrics | None:
    """Write run.json and open the metrics until `held` is closed; rank 0 only. Collective."""
    metrics = None
    with cluster.agreed():
        if cluster.rank == 0:
            start.record.write(job.output)
            restored = start.progress.step if start.checkpoint else -1
            metrics = Metrics(job.output, restored, warn, job.run.logging.to)
            metrics.show_settings(job.run)
            held.callback(metrics.close)
    return metrics


def build_saver(job: Job, cluster: Cluster, start: Start, metrics: Metrics | None) -> Saver:
    """Saves the checkpoints of the run; no checkpoint is published before its metrics."""
    # A fork has saved nothing of its own yet.
    is_own = start.checkpoint and start.checkpoint.directory.is_relative_to(job.output)
    saver = Saver(
        job.output,
        cluster,
        keep=job.run.checkpoint.keep,
        keep_every=job.run.checkpoint.keep_every,
        saved_step=start.progress.step if is_own else -1,
        parameters=start.plan.parameters,
        before_publishing=metrics.sync if metrics else lambda: None,
        tell=warn,
    )
    saver.kept = steps_at_words(job.run, start.feed.phases)
    return saver


def build_trainer(
    job: Job,
    cluster: Cluster,
    stop: StopRequest,
    start: Start,
    engine: ZeroEngine,
    saver: Saver,
    metrics: Metrics | None,
) -> Trainer:
    """The training loop with all its parts. Collective."""
    run, feed, checkpoint = job.run, start.feed, start.checkpoint
    # a fork that reads other data from the first sequence has other losses too
    recent = checkpoint.state.recent_losses if checkpoint and start.progress.sequences else ()
    losses = LossWatch(run.spikes, cluster.device, recent, [phase.begin for phase in feed.phases])
    stop.deadline = Deadline(job.hours, lambda: saver.seconds)
    watchdog = Watchdog(cluster.rank, run.logging.hang_seconds)
    # Before the rank-dependent parts below: a collective must be reached by all ranks.
    hosts = cluster.gather(host_name())
    usable = cluster.gather(" ".join(map(str, os.sched_getaffinity(0))))
    return Trainer(
        record=start.record,
        feed=feed,
        cluster=cluster,
        engine=engine,
        validator=Validator(
            engine=engine, cluster=cluster, stop=stop, metrics=metrics, watchdog=watchdog,
            grammar=start.grammar, general=start.general,
        ),
        stop=stop,
        metrics=metrics,
        progress=start.progress,
        recovery=Recovery(
            run=run, cluster=cluster, engine=engine, feed=feed, saver=saver, stop=stop,
            losses=losses,
        ),
        stragglers=Stragglers(hosts, job.output, ForwardClock(cluster.device)),
        saver=saver,
        watchdog=watchdog,
        trace=Trace(job.output / PROFILE if job.profile and cluster.rank == 0 else None),
        plan_check=build_plan_check(job, cluster, start, engine, hosts, usable),
    )  # fmt: skip


def build_plan_check(
    job: Job,
    cluster: Cluster,
    start: Start,
    engine: ZeroEngine,
    hosts: Sequence[str],
    usable: Sequence[str],
) -> PlanCheck | None:
    """Compares the first steps with the plan, unless an earlier life did; first rank only.

    hosts, usable: of each rank, its host and numbers of the cores it may use. None with
    offload: the rates of a site are of runs without it. None on the null device, which has no rate.
    """
    if cluster.rank != 0 or job.deepspeed.uses_host() or start.record.device == NULL:
        return None
    with suppress(OSError):  # a single rank must not end here
        if (job.output / PLAN).exists():
            return None
    # A set: ranks of a node may share cores.
    here = {core for host, own in zip(hosts, usable) if host == hosts[0] for core in own.split()}
    return PlanCheck(
        output=job.output, record=start.record, file=job.deepspeed,
        engine=engine, device=cluster.device, nodes=len(set(hosts)), usable=len(here), tell=warn,
    )  # fmt: skip
