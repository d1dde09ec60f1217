"""All commands as subcommands of one: `tenfold prepare ...` is `python -m pipeline.prepare ...`.

Also lists the recipes and the settings of a recipe. Imports neither torch nor numba by itself.
"""

from __future__ import annotations

import argparse
import runpy
import sys

from pipeline import __version__
from pipeline.base.command_line import RECIPE_HELP, Parser, example_text
from pipeline.base.command_table import COMMANDS, VIEWS, list_commands
from pipeline.base.errors import ConfigError, run_command
from pipeline.config.settings import find_near
from pipeline.config.settings_view import format_settings
from pipeline.recipes import format_recipes
from pipeline.released.choice import read_recipe


def main() -> None:
    """Run a command as `python -m` does, or print what a view shows."""
    if sys.argv[1:] and sys.argv[1] in COMMANDS:
        name = sys.argv.pop(1)  # the command parses the rest as its own
        runpy.run_module(f"pipeline.{name}", run_name="__main__", alter_sys=True)
    else:
        run_command(_show)


def _show() -> None:
    arguments = _parse()
    if arguments.command == "compile":
        # numba takes a second to import, which only this view needs
        from pipeline.compile_kernels import compile_kernels

        compile_kernels()
    elif arguments.command == "recipes":
        print(format_recipes(), flush=True)
    else:
        print(format_settings(read_recipe(arguments.recipe).run, arguments.path), flush=True)


def _parse() -> argparse.Namespace:
    parser = Parser(
        prog="tenfold",
        usage="tenfold COMMAND ...",
        description="Pretrain BERT-family encoders from raw text.",
        epilog=list_commands()
        + example_text(
            "tenfold prepare --corpus sample --recipe roberta_tiny",
            "tenfold train roberta_tiny --data data/shards/sample-roberta_tiny-* "
            "--output runs/tiny",
            "tenfold export runs/tiny --output runs/tiny-export",
            "tenfold settings roberta_base optimizer",
        ),
    )
    parser.add_argument("--version", action="version", version=f"tenfold {__version__}")
    views = parser.add_subparsers(dest="command", metavar="COMMAND", help=argparse.SUPPRESS)
    views.add_parser("recipes", prog="tenfold recipes", description="List the recipes by family.")
    views.add_parser(
        "compile",
        prog="tenfold compile",
        description="Compile the numerical kernels for this processor and keep them, so that no "
        "other command has to wait for it.",
    )
    settings = views.add_parser(
        "settings",
        prog="tenfold settings",
        description="List the settings of a recipe with type, value and meaning.",
        epilog=example_text(
            "tenfold settings roberta_base",
            "tenfold settings roberta_base optimizer",
            "tenfold settings bert_large data.sequence_length",
        ),
    )
    settings.add_argument("recipe", metavar="RECIPE", help=RECIPE_HELP)
    settings.add_argument(
        "path",
        nargs="?",
        default="",
        metavar="PATH",
        help="a setting or a section, e.g. optimizer (default: all)",
    )
    if not sys.argv[1:]:
        parser.print_help()
        sys.exit(0)
    # before argparse, which knows only the views
    _check_command(sys.argv[1])
    return parser.parse_args()


def _check_command(name: str) -> None:
    """Raises ConfigError with the nearest name if there is no command `name`."""
    known = [*COMMANDS, *VIEWS]
    if name not in known and not name.startswith("-"):
        near = find_near(name, known)
        advice = f"did you mean {near}?" if near else "`tenfold --help` lists them all"
        raise ConfigError(f"unknown command {name!r}; {advice}")


if __name__ == "__main__":
    main()
