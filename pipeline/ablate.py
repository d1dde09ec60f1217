"""Compare training choices: `python -m pipeline.ablate TABLE --corpus sample --output DIR`.

Trains every arm of a table with the same seeds, each run as a pipeline.train of its own, and writes
DIR/ablation.json with the differences to the baseline. Kill it at any time and run it again; or
divide the runs among the elements of a Slurm array. Needs torch only in the runs.
"""

from __future__ import annotations

import sys
from functools import partial

from pipeline.base.command_line import parse_before
from pipeline.base.errors import ConfigError, run_command
from pipeline.experiments.ablate_arguments import chosen_jobs, parse_ablate, read_ablation

if __name__ == "__main__":
    # --help does not wait for it
    run_command(partial(parse_before, "numba", parse_ablate), outlives_output=True)

from pipeline.experiments.ablation_estimate import (
    check_arms,
    describe_arms,
    describe_costs,
    estimate_arms,
)
from pipeline.experiments.children import Children
from pipeline.experiments.results import collect
from pipeline.experiments.runner import (
    AblationRunner,
    check_ablation,
    claim_ablation,
    with_scored_tasks,
)
from pipeline.reporting.ablation_section import read_ablation_report
from pipeline.reporting.renderings import as_text


def main() -> None:
    arguments = parse_ablate()
    ablation = with_scored_tasks(read_ablation(arguments))
    jobs = chosen_jobs(arguments, ablation)
    children = Children()
    runner = AblationRunner(ablation, children)
    children.listen()
    if not arguments.collect:
        print("\n".join(describe_arms(ablation)), flush=True)
    if arguments.dry_run:
        check_ablation(ablation)  # claim_ablation would write
        print("\n".join(describe_costs(runner, estimate_arms(runner))))
        return
    claim_ablation(ablation)
    if not arguments.collect:
        check_arms(runner, jobs)
        runner.finish(jobs)
    if path := collect(runner):
        print(as_text(read_ablation_report(path)))
        print(path)
    elif arguments.collect:
        missing = [job.name for job in ablation.jobs() if not runner.is_done(job)]
        raise ConfigError(
            f"{len(missing)} runs are not done: {', '.join(missing)}; run them, or drop --collect"
        )


if __name__ == "__main__":
    run_command(main, outlives_output=True)
    sys.exit(0)
