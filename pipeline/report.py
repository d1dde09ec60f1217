"""Report what runs did, on one page: `tenfold report RUN... --output page.html`.

Reads the files that runs wrote, which may be training meanwhile. Needs no torch.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pipeline.base.command_line import Parser, example_text
from pipeline.base.errors import ConfigError, run_command
from pipeline.base.files import write_whole
from pipeline.data.inspection.path_kinds import kind_of
from pipeline.reporting.ablation_section import read_ablation_report
from pipeline.reporting.renderings import as_page, as_text
from pipeline.reporting.run_summary import read_run
from pipeline.reporting.score_files import read_scores
from pipeline.reporting.sections import Report, make_report, report_command
from pipeline.training.run_directory.run_status import is_run

MOST_RUNS = 8
"""More curves in one frame cannot be told apart."""


def main() -> None:
    arguments = _parse()
    # a mistyped folder ends the command now, not after the runs are read
    if arguments.output and not arguments.output.parent.is_dir():
        raise ConfigError(f"--output {arguments.output}: no such directory; create it first")
    report = _report(arguments)
    if arguments.output:
        page = as_page(report).encode(errors="replace")  # names of files may not be UTF-8
        write_whole(arguments.output, page)
        print("\n".join(report.verdicts))
        print(f"{arguments.output}: {len(page) / 1e3:,.0f} kB; open it in a browser")
    else:
        print(as_text(report))


def _report(arguments: argparse.Namespace) -> Report:
    """The report of runs, or of an ablation."""
    if arguments.ablation:
        if arguments.runs or arguments.scores:
            raise ConfigError("--ablation is a report of its own; drop RUN and --scores")
        return read_ablation_report(arguments.ablation)
    if not arguments.runs:
        raise ConfigError("nothing to report; give run directories, or --ablation DIR")
    for path in arguments.runs:
        if not is_run(path):
            kind = kind_of(path).partition(";")[0] or "something else"
            raise ConfigError(
                f"{path} is not a run but {kind}; give the --output of pipeline.train"
            )
    if len(arguments.runs) > MOST_RUNS:
        raise ConfigError(f"{len(arguments.runs)} runs; a report shows at most {MOST_RUNS}")
    scores = [score for path in arguments.scores for score in read_scores(path)]
    runs = [read_run(path) for path in arguments.runs]
    again = report_command(arguments.runs, arguments.scores, arguments.output)
    return make_report(runs, scores, again)


def _parse() -> argparse.Namespace:
    parser = Parser(
        prog="python -m pipeline.report",
        description="Report what runs did: verdict, settings that differ from the recipe, curves, "
        "time and restarts, data and licences, scores. One HTML page without scripts that opens "
        "offline, or text. Several runs are shown in the same frames, with a table of their "
        "differences. Reads files only, so it works on a login node and needs no torch.",
        epilog=example_text(
            "python -m pipeline.report data/runs/roberta_large --output page.html",
            "python -m pipeline.report data/runs/* --scores sst2/scores.json --text",
            "python -m pipeline.report --ablation ablations/masking --output page.html",
        ),
    )
    parser.add_argument("runs", type=Path, nargs="*", metavar="RUN", help="run directories")
    parser.add_argument(
        "--scores",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="scores.json of pipeline.finetune, or what pipeline.evaluate --json printed",
    )
    parser.add_argument(
        "--ablation",
        type=Path,
        metavar="DIR",
        help="the --output of pipeline.ablate, instead of runs",
    )
    wanted = parser.add_mutually_exclusive_group(required=True)
    wanted.add_argument("--output", type=Path, metavar="PAGE", help="the HTML page to write")
    wanted.add_argument("--text", action="store_true", help="print the report as text instead")
    return parser.parse_args()


if __name__ == "__main__":
    run_command(main)
    sys.exit(0)
