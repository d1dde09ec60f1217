import ast
import sys

from pipeline.base.command_table import COMMANDS
from tests.launching import process


def test_every_command_is_listed() -> None:
    found = set()
    for path in (process.ROOT / "pipeline").glob("*.py"):
        last = ast.parse(path.read_text()).body[-1]
        if 'if __name__ == "__main__"' in path.read_text():
            assert isinstance(last, ast.If), f"{path.name} defines something after it has run"
            found.add(path.stem)
    assert found - {"tenfold", "time_runs"} == set(COMMANDS)  # time_runs is a part of ablate


def test_every_command_parses_before_it_imports_a_framework() -> None:
    """Neither --help nor a mistake waits for torch, DeepSpeed or transformers."""
    code = """
import contextlib, io, runpy, sys, tempfile

from pipeline.base.command_table import COMMANDS

sys.modules |= dict.fromkeys(["torch", "deepspeed", "transformers"])  # None: cannot be imported
for command in COMMANDS:
    for word, code in (("--help", 0), ("--no-such-option", 2)):
        sys.argv = [command, word]
        shown, file = io.StringIO(), tempfile.TemporaryFile("w+")  # faulthandler needs a file
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(file):
            try:
                runpy.run_module(f"pipeline.{command}", run_name="__main__")
            except SystemExit as stop:
                assert (stop.code or 0) == code, (command, word)
        file.seek(0)
        said = file.read()
        assert bool(shown.getvalue()) == (code == 0), (command, word)
        assert said.count("\\n") == (code == 2), (command, word, said)
"""
    done = process.run([sys.executable, "-c", code], cold=True)
    assert done.returncode == 0, done.stderr
