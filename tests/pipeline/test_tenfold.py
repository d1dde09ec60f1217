"""`tenfold COMMAND` is `python -m pipeline.COMMAND`, from a wheel and from any directory."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline import __version__
from pipeline import tenfold as command
from pipeline.base.command_table import COMMANDS, VIEWS
from pipeline.config.settings_view import format_settings
from pipeline.recipes import format_recipes, recipe
from tests.pages import split
from tests.pipeline.preparing import Call, Said, printed_without

ROOT = Path(__file__).parents[2]


def launch(*words: object, **options: str | Path) -> subprocess.CompletedProcess[str]:
    """Run `python WORDS...`; options: cwd and PYTHONPATH."""
    unset = ("TENFOLD_ROOT", "COLUMNS", "PYTHONPATH")
    environment = {k: v for k, v in os.environ.items() if k not in unset}
    environment |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(options.get("path", ROOT))}
    return subprocess.run(
        [sys.executable, *map(str, words)], cwd=options.get("cwd", ROOT), env=environment,
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip


def tenfold(*words: object) -> subprocess.CompletedProcess[str]:
    return launch("-m", "pipeline.tenfold", *words)


def test_a_command_runs_as_python_runs_its_module() -> None:
    for words in (["prepare", "--help"], ["inspect", "no/x"]):
        ours = tenfold(*words)
        theirs = launch("-m", f"pipeline.{words[0]}", *words[1:])
        assert (ours.returncode, ours.stdout) == (theirs.returncode, theirs.stdout)
        assert ours.stderr == theirs.stderr
    assert ours.returncode == 2 and ours.stderr.startswith("error: ")


def test_views_print(call: Call) -> None:
    base = recipe("bert_base")
    for words, printed in (
        (["--version"], f"tenfold {__version__}"),
        (["recipes"], format_recipes()),
        (["settings", "bert_base"], format_settings(base)),
        (["settings", "bert_base", "optimizer"], format_settings(base, "optimizer")),
    ):
        assert call(command.main, *words) == printed + "\n"


def test_help_lists_everything_and_its_examples_are_commands(call: Call) -> None:
    text = call(command.main, "--help")
    assert text == call(command.main)
    for name in COMMANDS | VIEWS:
        assert f"\n  {name} " in text
    examples = [split(line) for line in text.partition("examples:\n")[2].splitlines()]
    assert all(words[0] == "tenfold" for words in examples)
    assert {words[1] for words in examples} <= set(COMMANDS | VIEWS)
    assert max(map(len, text.splitlines())) <= 100


def test_a_mistake_is_one_line(said: Said) -> None:
    assert tenfold("prepar").stdout == ""
    for words, line in (
        (["prepar"], "unknown command 'prepar'; did you mean prepare?"),
        (["nothing-like-it"], "unknown command 'nothing-like-it'; `tenfold --help`"),
        (["settings", "roberta_bas"], "unknown recipe 'roberta_bas'; did you mean roberta_base?"),
        (["settings"], "the following arguments are required: RECIPE; see tenfold settings --help"),
        (["--nope", "recipes"], "unrecognized arguments: --nope; see tenfold --help"),
    ):
        code, error = said(command.main, *words)
        assert code == 2 and error.startswith(f"error: {line}") and error.count("\n") == 1


def test_views_start_without_torch_and_numba() -> None:
    missing = ("torch", "numba", "pyarrow", "numpy")
    for words in (["recipes"], ["settings", "bert_base"], ["--version"]):
        assert printed_without(missing, "tenfold", *words)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which a wheel built from the checkout is installed, without dependencies."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    unwanted = shutil.ignore_patterns("__pycache__")
    for name in ("pipeline", "model", "ds_configs"):
        shutil.copytree(ROOT / name, source / name, ignore=unwanted)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = ("-m", "pip", "--quiet", "--disable-pip-version-check")
    offline = ("--no-index", "--no-deps")
    for words in (
        ("wheel", *offline, "--no-build-isolation", source, "--wheel-dir", folder),
        ("install", *offline, "--target", folder / "site"),
    ):
        wheels = folder.glob("*.whl") if words[0] == "install" else ()
        result = launch(*pip, *words, *wheels, path="", cwd=folder)
        assert result.returncode == 0, result.stderr
    return folder / "site"


def test_a_wheel_holds_every_file_of_the_product(installed: Path) -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard",
         "pipeline", "model", "ds_configs"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    pages = {name for name in tracked if name.endswith(".md") and Path(name).name != "CREDITS.md"}
    present = {name for name in tracked if (ROOT / name).exists()} - pages
    found = {
        path.relative_to(installed).as_posix()
        for folder in ("pipeline", "model", "ds_configs")
        for path in (installed / folder).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert found == present
    assert len(found) > 200


def test_a_wheel_starts_in_any_directory_and_finds_its_files(
    installed: Path, tmp_path: Path
) -> None:
    (tmp_path / "model.py").write_text("")
    (tmp_path / "pipeline.py").write_text("")  # both hide nothing from a script
    for words in (["--version"], ["prepare", "--help"]):
        result = launch(installed / "bin" / "tenfold", *words, cwd=tmp_path, path=installed)
        assert result.returncode == 0 and result.stdout, result.stderr
    code = (
        "import sys; del sys.path[0]\n"
        "from pipeline.planning.deepspeed_config import FOLDER, read_deepspeed_file\n"
        "for file in FOLDER.glob('*.json'): read_deepspeed_file(file.stem); print(file)"
    )
    result = launch("-c", code, cwd=tmp_path, path=installed)
    assert result.returncode == 0, result.stderr
    found = [Path(line) for line in result.stdout.splitlines()]
    ours = {path.name for path in (ROOT / "ds_configs").glob("*.json")}
    assert {path.name for path in found} == ours
    assert all(path.is_relative_to(installed) for path in found)
