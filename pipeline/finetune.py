"""Fine-tuning: `python -m pipeline.finetune MODEL --task sst2 --data glue/SST-2 --output DIR`.

Fine-tunes a model on a labelled task with several seeds and reports the scores with their protocol,
next to those of the majority class, a bag of word embeddings, and random weights of the same
encoder. Each finished seed is kept: the same command continues with the next.
"""

from __future__ import annotations

from functools import partial

from pipeline.base.errors import run_command
from pipeline.base.model_folder import check_imports
from pipeline.downstream.finetune_arguments import (
    choose_part,
    choose_task,
    parse_finetune,
    read_data,
)

if __name__ == "__main__":
    # before torch and `model` are imported
    run_command(partial(check_imports, parse_finetune), outlives_output=True)

from pipeline.base.progress import note
from pipeline.downstream.data_summary import about_data, describe_data, find_copies
from pipeline.downstream.jobs import (
    choose_arms,
    claim_output,
    describe_result,
    hold_job,
    is_done,
    plan_jobs,
    run_job,
)
from pipeline.downstream.scores import (
    assemble_scores,
    check_started_from,
    describe_model,
    publish_scores,
    summarize_scores,
)
from pipeline.downstream.starting_weights import load_fine_tuned, load_start
from pipeline.downstream.tfidf import why_not
from pipeline.downstream.work import (
    choose_protocol,
    describe_work,
    make_encoder,
    prepare_work,
)


def main() -> None:
    arguments = parse_finetune()
    task = choose_task(arguments)
    part, parts = choose_part(arguments)
    # options and files are checked before weights are loaded
    missing = why_not(task.kind)
    arms = choose_arms(arguments.baselines, missing)
    data = read_data(arguments, task)
    start = load_start(arguments.model)
    if arguments.init_from:
        tuned = load_fine_tuned(arguments.init_from, start)
        # against the weights that both started from, so before these take their place
        check_started_from(arguments.init_from, start)
        start = tuned
    elif task.begins_with:
        note(f"published scores of {task.name} start from {task.begins_with}; see --init-from")
    protocol = choose_protocol(arguments, task, start)
    encoder = make_encoder(start, protocol)
    tests = arguments.data or data.train.path.parent
    work = prepare_work(arguments.output, task, data, tests, start, protocol, encoder)
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    jobs = plan_jobs(seeds, len(work.points), arms)
    claim_output(arguments.output, describe_work(arguments, data, start, protocol))
    copies = find_copies(data)
    if part == 0:  # ranks share a terminal
        for line in describe_data(task, data, copies):
            note(line)
        if missing and arguments.baselines == "all":
            note(f"without tfidf: {missing}")
    for job in jobs[part::parts]:
        with hold_job(work, job):
            if not is_done(work, job):
                note(describe_result(work, job, run_job(work, job)))
    if left := sum(not is_done(work, job) for job in jobs):
        note(f"{left} of {len(jobs)} fine-tunings are left; the part that ends last writes scores")
        return
    about = {
        "model": describe_model(work),
        "grid": arguments.grid,
        "data": about_data(data, encoder, copies),
    }
    # several parts may get here; publish_scores lets them write in turn
    scores = assemble_scores(work, jobs, about)
    publish_scores(work, scores, encoder)
    print(summarize_scores(scores), flush=True)
    print(arguments.output)


if __name__ == "__main__":
    run_command(main, outlives_output=True)
