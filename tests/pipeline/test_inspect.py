"""inspect looks at a path and shows what it is."""

import shutil
import signal
import sys
from pathlib import Path

import pytest

from pipeline import inspect
from tests.pipeline import preparing
from tests.pipeline.preparing import FORKED, MPIEXEC, Call, children, finish, started


def test_a_path_is_shown_as_what_it_is(prepared: Path, tmp_path: Path, call: Call) -> None:
    """Shards, a tokenizer, documents and a run."""
    (tmp_path / "text.txt").write_text("The river is long.\n")
    run = Path(__file__).parents[1] / "golden" / "runs" / "bert"
    for path, said in {
        prepared: "  recipe ",
        prepared / "tokenizer": " ids; on the sample corpus:\n",
        tmp_path / "text.txt": "next: python -m pipeline.prepare --corpus ",
        run: f"{run}: a run",
    }.items():
        assert said in call(inspect.main, path)


@pytest.mark.parametrize("damaged", [False, True])
def test_workers_and_ranks_verify_with_the_output_of_one_process(
    damaged: bool, prepared: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "copy"
    shutil.copytree(prepared, directory)
    if damaged:
        for name in ("rows/train-00004.arrow", "mask-3/train-00001.arrow"):
            with (directory / name).open("r+b") as file:
                file.seek(1000)
                file.write(b"wrong")
    command = ("-m", "pipeline.inspect", directory, "--verify")
    one = finish(sys.executable, *command, "--workers", 1)
    assert one.returncode == (2 if damaged else 0), one.stderr
    if damaged:
        head, *lines = said(one.stderr)
        assert head == f"error: {directory}: 2 files are wrong:"
        assert [line.split()[0] for line in lines] == [
            f"{directory}/mask-3/train-00001.arrow", f"{directory}/rows/train-00004.arrow"
        ]  # fmt: skip
    for start in ((sys.executable,), (MPIEXEC, "-n", 3, *FORKED)):
        several = finish(*start, *command, *(["--workers", 2] if len(start) == 1 else []))
        assert (several.returncode, several.stdout, said(several.stderr)) == (
            one.returncode, one.stdout, said(one.stderr)
        )  # fmt: skip


def said(errors: str) -> list[str]:
    """Lines of an error output, without progress and MPICH's message about an abort."""
    return [line for line in errors.splitlines() if not line.startswith(("verifying: ", "Abort("))]


def test_interrupted_workers_end(prepared: Path) -> None:
    command = ("-m", "pipeline.inspect", prepared, "--verify", "--workers", 2)
    with started(sys.executable, *command) as process:
        # one of them tracks resources
        preparing.wait_until(lambda: len(children(process.pid)) >= 3, process)
        workers = children(process.pid)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
        preparing.wait_for_end(*workers, seconds=10)
    assert process.returncode == 130
    assert said(errors) == ["interrupted; run the same command again to resume"]


def test_options_for_documents_are_refused(prepared: Path, call: Call) -> None:
    for option in (("--html", "p.html"), ("--corpus", "x"), ("--decisions",)):
        error = call(inspect.main, prepared, *option, code=2)
        assert error.startswith("error: --html, --corpus, --decisions, --map and --filter are ")
        assert error.endswith(f"; {prepared} has none\n")
