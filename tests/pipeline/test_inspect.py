"""inspect looks at a path and shows what it is."""

import shutil
from pathlib import Path

import pytest

from pipeline import inspect
from tests.pipeline.data.small_shards import flip
from tests.pipeline.preparing import FORKED, MPIEXEC, Call, finish


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


@pytest.mark.usefixtures("quick_workers")
@pytest.mark.parametrize("damaged", [False, True])
def test_workers_and_ranks_verify_with_the_output_of_one_process(
    damaged: bool, prepared: Path, tmp_path: Path, call: Call
) -> None:
    directory = Path(shutil.copytree(prepared, tmp_path / "copy")) if damaged else prepared
    wrong = ("mask-3/train-00001.arrow", "rows/train-00004.arrow") if damaged else ()
    for name in wrong:
        flip(directory / name)
    command, code = (directory, "--verify"), 2 if damaged else 0
    one, two = (
        lines(call(inspect.main, *command, "--workers", count, code=code)) for count in (1, 2)
    )
    ranks = finish(MPIEXEC, "-n", 3, *FORKED, "-m", "pipeline.inspect", *command)
    assert ranks.returncode == code
    assert one == two == lines(ranks.stderr if damaged else ranks.stdout)
    if damaged:
        assert one[0] == f"error: {directory}: 2 files are wrong:"
        assert [line.split()[0] for line in one[1:]] == [f"{directory}/{name}" for name in wrong]


def lines(output: str) -> list[str]:
    """Without progress and MPICH's message about an abort."""
    return [line for line in output.splitlines() if not line.startswith(("verifying: ", "Abort("))]


def test_options_for_documents_are_refused(prepared: Path, call: Call) -> None:
    for option in (("--corpus", "x"), ("--decisions",)):
        error = call(inspect.main, prepared, *option, code=2)
        assert error.startswith("error: --corpus, --decisions, --map and --filter are ")
        assert error.endswith(f"; {prepared} has none\n")
