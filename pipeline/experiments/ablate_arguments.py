"""The command line of pipeline.ablate -> an ablation; it imports no torch."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.base.command_line import Parser, add_input_arguments, check_least, example_text
from pipeline.base.errors import ConfigError
from pipeline.downstream.finetune_tasks import TASKS, find_file
from pipeline.experiments.ablation import Ablation, AblationJob, make_arms
from pipeline.experiments.arms import (
    SCALES,
    TABLES,
    arms_from_arguments,
    arms_from_file,
    table,
)
from pipeline.experiments.fine_tuning import protocol_name
from pipeline.experiments.tables.table import Table


class _ArmOption(argparse.Action):
    """--arm NAME opens an arm."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option: Any = None
    ) -> None:
        namespace.arm.append((values, []))


class _SetOption(argparse.Action):
    """--set changes the arm before it, or all arms if there is none before it."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option: Any = None
    ) -> None:
        changes = namespace.arm[-1][1] if namespace.arm else namespace.common
        changes.append(values)


def parse_ablate(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line of pipeline.ablate."""
    parser = Parser(
        prog="python -m pipeline.ablate",
        description="Compare choices fairly: trains every arm with the same seeds, held-out "
        "documents and masks, then prints each difference to the baseline with its 95 % interval, "
        "its p-value corrected for the number of rows, and the smallest difference that could have "
        "been seen. Run the same command again to resume, or with more --seeds to add some.",
        epilog=example_text(
            "python -m pipeline.ablate roberta/masking --corpus sample --scale smoke --seeds 3 \\\n"
            "    --output ablations/masking",
            "python -m pipeline.ablate --recipe roberta_tiny --arm usual --arm low \\\n"
            "    --set optimizer.peak_lr=5e-4 --corpus sample --seeds 5 --output ablations/rate",
            "python -m pipeline.ablate --arms arms.py --corpus sample --output ablations/mine",
        ),
    )
    parser.add_argument(
        "table",
        nargs="?",
        metavar="TABLE",
        help=f"a table of a paper: {', '.join(TABLES)}",
    )
    _add_arms(parser)
    add_input_arguments(parser)
    parser.add_argument(
        "--tokenizer", type=Path, metavar="DIR", help="as pipeline.prepare takes it"
    )
    parser.add_argument(
        "--scale",
        choices=SCALES,
        help="size of a table's models: smoke shows that it works, mini can tell arms apart, base "
        "is published (default: smoke)",
    )
    parser.add_argument(
        "--seeds",
        type=int,
        default=5,
        metavar="N",
        help="runs of each arm; the baseline has N more, which show the noise (default: 5)",
    )
    parser.add_argument(
        "--train-steps",
        type=int,
        default=0,
        metavar="N",
        help="optimizer steps of every run; warm-up and decay keep their shares (default: the "
        "recipe's)",
    )
    parser.add_argument(
        "--tune",
        action="store_true",
        help="choose each arm's peak learning rate among half, once and twice the recipe's, by "
        "held-out loss with a seed that is not in the table",
    )
    _add_scores(parser)
    parser.add_argument(
        "--output",
        type=Path,
        required=True,
        metavar="DIR",
        help="directory of the results, new or to resume",
    )
    _add_shares(parser)
    arguments = parser.parse_args(words)
    check_least(
        ("--seeds", arguments.seeds, 1),
        ("--train-steps", arguments.train_steps, 0),
    )
    # None, not 1, is the default: the option is refused where it has no effect
    if arguments.finetune_seeds is None:
        arguments.finetune_seeds = 1
    elif not arguments.finetune:
        raise ConfigError("--finetune-seeds belongs to --finetune, which is not given; give both")
    check_least(("--finetune-seeds", arguments.finetune_seeds, 1))
    return arguments


def _add_arms(parser: Parser) -> None:
    """Arms that are not a paper's."""
    parser.add_argument(
        "--arms", type=Path, metavar="FILE", help="a Python file with arms of your own"
    )
    parser.add_argument("--recipe", metavar="NAME", help="the recipe that each --arm changes")
    parser.add_argument(
        "--arm",
        action=_ArmOption,
        default=[],
        metavar="NAME",
        help="an arm of --recipe, changed by each --set after it; the first is the baseline",
    )
    parser.add_argument(
        "--set",
        action=_SetOption,
        default=argparse.SUPPRESS,  # _SetOption writes to an arm or to `common`
        metavar="PATH=VALUE",
        help="change a setting of the --arm before it; before any --arm: of all arms",
    )
    parser.set_defaults(common=[])


def _add_scores(parser: Parser) -> None:
    """Options for scores next to those of held-out sequences."""
    parser.add_argument(
        "--grammar",
        type=Path,
        metavar="PATH",
        help="also score minimal pairs, as pipeline.evaluate --grammar",
    )
    parser.add_argument(
        "--finetune",
        action="append",
        default=[],
        metavar="TASK=DIR",
        help="also fine-tune each finished run on a task with its files as published, as "
        "pipeline.finetune --task TASK --data DIR, all arms by the baseline's protocol; repeat "
        "it for more tasks, also later",
    )
    parser.add_argument(
        "--finetune-seeds",
        type=int,
        metavar="N",
        help="fine-tunings per run and task, whose mean is the score (default: 1)",
    )


def _add_shares(parser: Parser) -> None:
    """Options of a process that does only a part."""
    share = parser.add_mutually_exclusive_group()
    share.add_argument(
        "--dry-run", action="store_true", help="print what would run and the hours it needs"
    )
    share.add_argument("--only", metavar="ARM:SEED", help="do one run, e.g. as a job of its own")
    share.add_argument(
        "--task",
        type=int,
        metavar="INDEX",
        help="do one run by its number, from 0, as an element of a Slurm array; --dry-run prints "
        "how many there are. The last to finish writes the table",
    )
    share.add_argument(
        "--collect", action="store_true", help="train nothing; write the table of finished runs"
    )


def read_ablation(arguments: argparse.Namespace) -> Ablation:
    """The ablation that a command line asks for. Raises ConfigError for contradictory options."""
    if arguments.grammar and not arguments.grammar.exists():
        raise ConfigError(f"--grammar {arguments.grammar} does not exist; name a folder of pairs")
    chosen = _choose_table(arguments)
    arms = make_arms(chosen, arguments.common, arguments.train_steps)
    tasks = _choose_tasks(arguments.finetune)
    kept = [arm.name for arm in arms if not arm.run.checkpoint.exportable]
    if tasks and kept:
        raise ConfigError(
            f"--finetune: {', '.join(kept)} have checkpoint.exportable=false, for models that "
            "transformers has no class for, and are never fine-tuned; drop --finetune"
        )
    return Ablation(
        table=chosen,
        arms=arms,
        seeds=arguments.seeds,
        tune=arguments.tune,
        grammar=arguments.grammar,
        inputs=tuple(_inputs(arguments)),
        output=arguments.output,
        tasks=tasks,
        finetune_seeds=arguments.finetune_seeds,
        protocol=protocol_name(arms[0]) if tasks else "",
    )


def _choose_tasks(given: Sequence[str]) -> tuple[tuple[str, Path], ...]:
    """The tasks of --finetune. Looks for their files now, not after hours of training."""
    found: dict[str, Path] = {}
    for word in given:
        name, equals, folder = word.partition("=")
        if not (equals and folder) or name not in TASKS:
            raise ConfigError(
                f"--finetune {word} is not TASK=DIR with a published task; known: "
                f"{', '.join(TASKS)}"
            )
        if name in found:
            raise ConfigError(f"--finetune names {name} twice; drop one")
        found[name] = Path(folder)
        for names in (TASKS[name].train, TASKS[name].dev):
            if names:
                find_file(found[name], names, TASKS[name])
    return tuple(found.items())


def _choose_table(arguments: argparse.Namespace) -> Table:
    given = [
        name
        for name, value in (("TABLE", arguments.table), ("--arms", arguments.arms),
                            ("--recipe", arguments.recipe))
        if value
    ]  # fmt: skip
    if len(given) != 1:
        raise ConfigError(
            "give one of TABLE, --arms FILE, or --recipe NAME with --arm; got "
            f"{' and '.join(given) or 'none'}"
        )
    if arguments.arm and not arguments.recipe:
        raise ConfigError(f"--arm belongs to --recipe, not to {given[0]}; drop it")
    if arguments.table:
        # not a default of argparse: --scale without TABLE is refused below
        return table(arguments.table, arguments.scale or "smoke")
    if arguments.scale:
        raise ConfigError(f"--scale belongs to TABLE, not to {given[0]}; drop it")
    if arguments.arms:
        return arms_from_file(arguments.arms)
    return arms_from_arguments(arguments.recipe, arguments.arm)


def _inputs(arguments: argparse.Namespace) -> list[str]:
    """The same options for pipeline.prepare."""
    commit = f"@{arguments.revision}" if arguments.revision else ""
    found = ["--corpus", f"{arguments.corpus}{commit}"]
    if arguments.input:
        found += ["--input", *arguments.input]
    for name in ("text_field", "plain_text", "map", "tokenizer"):
        if value := getattr(arguments, name):
            found += [f"--{name.replace('_', '-')}", str(value)]
    return found


def chosen_jobs(arguments: argparse.Namespace, ablation: Ablation) -> list[AblationJob]:
    """The runs of this process. Raises ConfigError for one that does not exist."""
    jobs = ablation.jobs()
    if arguments.task is not None:
        if not 0 <= arguments.task < len(jobs):
            raise ConfigError(
                f"--task {arguments.task}: there are {len(jobs)} runs, 0 to {len(jobs) - 1}"
            )
        return [jobs[arguments.task]]
    if arguments.only is not None:
        found = [job for job in jobs if job.name == arguments.only]
        if not found:
            raise ConfigError(
                f"--only {arguments.only} is not a run; they are {', '.join(j.name for j in jobs)}"
            )
        return found
    return jobs
