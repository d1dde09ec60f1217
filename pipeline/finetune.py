"""Fine-tuning: `python -m pipeline.finetune MODEL --task sst2 --data glue/SST-2 --output DIR`.

Fine-tunes a model on a labelled task with several seeds and reports the scores with their protocol,
beside the majority class, a bag of word embeddings, and random weights of the same encoder. Each
finished seed is kept: the same command continues with the next.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.base.command_line import check_least
from pipeline.base.errors import ConfigError, run_command
from pipeline.base.model_folder import check_imports
from pipeline.downstream.arguments import (
    changed,
    chosen_files,
    chosen_part,
    chosen_task,
    parse_finetune,
)

if __name__ == "__main__":
    run_command(partial(check_imports, parse_finetune))  # before torch and `model` are imported

from model.tasks.task_model import TaskDesign
from pipeline.base.null_device import null_entry
from pipeline.cluster.process_group import compute_device, device_name
from pipeline.downstream.data_summary import about_data, describe_data, find_copies
from pipeline.downstream.features import RowEncoder
from pipeline.downstream.jobs import (
    ARMS,
    BAG,
    MODEL,
    TFIDF,
    TuningJob,
    TuningWork,
    claim_output,
    claimed,
    is_done,
    plan_jobs,
    run_job,
)
from pipeline.downstream.protocols import (
    LEAST_LENGTH,
    TuningProtocol,
    protocol_for,
    usual_protocol,
)
from pipeline.downstream.reading.examples import check_gold, content_hash
from pipeline.downstream.reading.labels import check_labels, check_meant, check_varied
from pipeline.downstream.scores import (
    assemble,
    check_started_from,
    describe_device,
    publish,
    report,
    versions,
)
from pipeline.downstream.starting_weights import StartingWeights, load_fine_tuned, load_start
from pipeline.downstream.tasks import (
    LabelledTask,
    TaskData,
    is_published,
    read_task,
    read_tests,
    scored_by_tags,
)
from pipeline.downstream.tfidf import why_not

MOST_SEED = 2**31
"""Of --first-seed; generators take no larger ones."""
ARMS_OF = {
    "all": (*ARMS, TFIDF), "bag": (MODEL, BAG), "tfidf": (MODEL, TFIDF), "majority": (MODEL,),
}  # fmt: skip
"""Arms that are trained, by --baselines."""


def main() -> None:
    arguments = parse_finetune()
    task = chosen_task(arguments)
    part, parts = chosen_part(arguments)
    missing = why_not(task.kind)
    arms = chosen_arms(arguments.baselines, missing)
    data = read_data(arguments, task)
    start = load_start(arguments.model)
    if arguments.init_from:
        tuned = load_fine_tuned(arguments.init_from, start)
        check_started_from(arguments.init_from, start)
        start = tuned
    elif task.begins_with:
        note(f"published scores of {task.name} start from {task.begins_with}; see --init-from")
    protocol = chosen_protocol(arguments, task, start)
    encoder = row_encoder(start, protocol)
    tests = arguments.data or data.train.path.parent
    work = prepare(arguments.output, task, data, tests, start, protocol, encoder)
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    jobs = plan_jobs(seeds, len(work.points), arms)
    claim_output(arguments.output, settings(arguments, data, start, protocol))
    copies = find_copies(data)
    if part == 0:  # ranks share a terminal
        for line in describe_data(task, data, copies):
            note(line)
        if missing and arguments.baselines == "all":
            note(f"without tfidf: {missing}")
    for job in jobs[part::parts]:
        with claimed(work, job):
            if not is_done(work, job):
                tell(work, job, run_job(work, job))
    if left := sum(not is_done(work, job) for job in jobs):
        note(f"{left} of {len(jobs)} fine-tunings are left; the part that ends last writes scores")
        return
    about = {
        "model": about_model(work),
        "grid": arguments.grid,
        "data": about_data(data, encoder, copies),
    }
    scores = assemble(work, jobs, about)
    publish(work, scores, encoder)
    print(report(scores), flush=True)
    print(arguments.output)


def chosen_arms(baselines: str, missing: str) -> tuple[str, ...]:
    """Arms that are trained; missing: why TF-IDF is not, which `all` passes over.

    Raises ConfigError if it was asked for by name.
    """
    if missing and baselines == TFIDF:
        raise ConfigError(f"{missing}; or give another of --baselines")
    return tuple(arm for arm in ARMS_OF[baselines] if not (missing and arm == TFIDF))


def read_data(arguments: argparse.Namespace, task: LabelledTask) -> TaskData:
    """The examples, with the first --train-rows of training."""
    check_least(
        ("--seeds", arguments.seeds, 1),
        ("--first-seed", arguments.first_seed, 0),
        ("--train-rows", arguments.train_rows, 0),
    )
    if arguments.first_seed > MOST_SEED:
        raise ConfigError(f"--first-seed {arguments.first_seed} is above {MOST_SEED:,}; lower it")
    train, dev, more = chosen_files(arguments, task)
    share = arguments.dev_share or task.dev_share
    return read_task(task, train, dev, more, share, arguments.train_rows)


def chosen_protocol(
    arguments: argparse.Namespace, task: LabelledTask, start: StartingWeights
) -> TuningProtocol:
    """The protocol of the model, or the named one, with the changes of the command line.

    Raises ConfigError for a --length that the model has too few positions for.
    """
    width, positions = start.encoder.width, start.encoder.positions
    if (arguments.length or 0) > positions:
        raise ConfigError(
            f"--length {arguments.length} is above the model's {positions} positions; lower it"
        )
    name = arguments.protocol or usual_protocol(start.family, width)
    return changed(protocol_for(name, task, width), arguments)


def row_encoder(start: StartingWeights, protocol: TuningProtocol) -> RowEncoder:
    """Makes rows of the protocol's length, or of the model's if it has fewer positions.

    Raises ConfigError if the model has too few for any task.
    """
    positions = start.encoder.positions
    if positions < LEAST_LENGTH:
        raise ConfigError(
            f"the model has {positions} positions, and fine-tuning needs {LEAST_LENGTH}; give "
            "another model"
        )
    return RowEncoder(start.vocabulary, min(protocol.length, positions))


def prepare(
    output: Path,
    task: LabelledTask,
    data: TaskData,
    tests: Path,
    start: StartingWeights,
    protocol: TuningProtocol,
    encoder: RowEncoder,
) -> TuningWork:
    """Labels, features and device.

    tests: the folder that may have test files. Raises DataError for labels that training lacks, and
    for files without labels.
    """
    labels = data.labels
    files = [("", data.dev), *((f"{split.path.stem}_", split) for split in data.more_dev)]
    for split in data.splits():
        check_gold(split.examples, split.path)
        if not is_published(task):
            check_meant(split.examples, task.labels, split.path)
        if task.kind in ("classification", "regression", "tags"):
            check_varied(split.examples, split.path, is_training=split is data.train)
        if labels:
            check_labels(split.examples, labels, split.path, are_named=bool(task.labels))
    scored = scored_by_tags(task, labels)
    if scored is not task:
        note("these tags mark no entities (O, B-PER, I-PER), so they are scored by accuracy alone")
    return TuningWork(
        task=scored,
        design=TaskDesign("classification" if task.kind == "regression" else task.kind, labels),
        start=start,
        points=protocol.points(),
        training=data.train.examples,
        train=encoder.encode(data.train.examples, task.kind, labels),
        dev=[
            (prefix, split.examples, encoder.encode(split.examples, task.kind, labels))
            for prefix, split in files
        ],
        tests=read_tests(task, tests),
        device=compute_device(),
        output=output,
    )


def settings(
    arguments: argparse.Namespace, data: TaskData, start: StartingWeights, protocol: TuningProtocol
) -> dict[str, Any]:
    """What must be equal for an output to be continued, files by their content."""
    examples = {"training": data.train, "development": data.dev} | {
        split.path.stem: split for split in data.more_dev
    }
    return {
        "task": arguments.task,
        "labels": list(data.labels),
        "weights": start.identity,
        "tokenizer": start.vocabulary.sha256,
        "protocol": protocol.describe(),
        "grid": arguments.grid,
        "seeds": arguments.seeds,
        "first seed": arguments.first_seed,
        "baselines": arguments.baselines,
        **null_entry(device_name(compute_device())),
        **{
            f"{name} examples": f"{len(split.examples):,} with hash {content_hash(split.examples)}"
            for name, split in examples.items()
        },
    }


def about_model(work: TuningWork) -> dict[str, Any]:
    """Origin and size of the weights, and what computed."""
    model = work.start.random_model(work.design, 0)
    return {
        "origin": work.start.origin,
        "family": work.start.family,
        "weights": work.start.identity,
        "encoder_hash": work.start.encoder_hash,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "device": describe_device(work.device),
        "versions": versions(),
    }


def note(text: str) -> None:
    """A line for the user, on stderr."""
    cleared = "\r\033[K" if sys.stderr.isatty() else ""  # of another rank's bar
    print(f"{cleared}{text}", file=sys.stderr, flush=True)


def tell(work: TuningWork, job: TuningJob, result: dict[str, Any]) -> None:
    """One line per finished seed."""
    metric = work.task.metrics[0]
    said = f"{metric} {result['metrics'][metric]:.4f}"
    if job.arm == TFIDF:
        note(f"{job.arm}: {said}, {result['seconds']:.0f} s")
        return
    note(
        f"{job.arm} seed {job.seed}, rate {result['peak_lr']:g}, {result['rows']} rows: {said}, "
        f"loss {result['loss']:.4f}, {result['seconds']:.0f} s"
    )


if __name__ == "__main__":
    run_command(main)
