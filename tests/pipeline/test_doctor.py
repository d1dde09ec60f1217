"""`tenfold doctor`: exit code, report and JSON, alone and as several ranks."""

import json
import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from pipeline import doctor as command
from pipeline.costs.site_rates import read_site
from tests.launching import process
from tests.pipeline.conftest import launch, succeed, torchrun_forked
from tests.pipeline.costs.planned import planned
from tests.pipeline.preparing import Call


def doctor(ranks: int, *arguments: object, **environment: str) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of each rank, started as torchrun does."""
    shared = {
        "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
        "TORCHELASTIC_RUN_ID": uuid4().hex, "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    started = []
    for rank in range(ranks):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank)} if ranks > 1 else {}
        variables = os.environ | (shared if ranks > 1 else {}) | own | environment
        words = [sys.executable, "-m", "pipeline.doctor", *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        started.append(process.start(words, env=variables, **pipes))
    answers = [each.communicate(timeout=120) for each in started]
    return [(each.returncode, *answer) for each, answer in zip(started, answers)]


def by_name(output: str) -> dict[str, dict[str, str]]:
    """The checks of a report as JSON."""
    return {check["name"]: check for check in json.loads(output)["checks"]}


def test_two_ranks_print_one_report(prepared: Path, tmp_path: Path) -> None:
    arguments = ("--recipe", "roberta_tiny", "--data", prepared, "--output", tmp_path / "run")
    (code, output, errors), other = doctor(2, *arguments, "--json")
    assert (code, errors) == (0, "") and other == (0, "", "")
    report = json.loads(output)
    assert report["status"] in ("ok", "warn") and report["seconds"] < 60
    assert [row["rank"] for row in report["ranks"]] == [0, 1]
    found = by_name(output)
    for name in ("versions", "clocks", "USR1", "shards fit the recipe"):
        assert found[name]["status"] == "ok", name
    assert found["GPU"]["status"] == "skipped"
    assert not (tmp_path / "run").exists()


def test_a_change_of_nothing_is_refused(call: Call) -> None:
    error = call(command.main, "--set", "steps=5", code=2)
    assert error.startswith("error: --set changes a recipe; give --recipe too")


def test_torchrun_and_what_the_full_form_measures_is_kept_for_plans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENFOLD_ROOT", str(tmp_path))
    result = succeed(*torchrun_forked("-m", "pipeline.doctor", "--full", "--json"))
    report = json.loads(result.stdout)  # one report
    assert [(row["rank"], row["local_rank"]) for row in report["ranks"]] == [(0, 0), (1, 1)]
    found = by_name(result.stdout)
    assert " TFLOP/s" in found["products"]["value"]  # a busy machine has a slower rank
    assert found["all-reduce"]["value"].endswith("GB/s for 16 MB")
    assert found["pairs of nodes"]["value"].startswith("slowest ")
    if found["products"]["status"] == "ok" and found["pairs of nodes"]["status"] == "ok":
        assert found["site's rates"]["value"] == f"cpu 1x2 in {tmp_path / 'site.json'}"
        site = read_site(tmp_path / "site.json")
        (rate,) = site.links("cpu", 1, 2)
        assert f"bus bandwidth {rate.bus_bandwidth / 1e9:.3g} GB/s" in found["all-reduce"]["value"]
        job = planned("roberta_base", "precision=fp32", per_node=2, site=site)
        parts = {part.name: part for part in job.step(*job.phases(job.hardware), job.hardware)}
        assert parts["exposed communication"].basis == "measured here"
    else:  # a busy machine: one rank had less of it
        assert found["site's rates"]["value"] == "not kept: rates differ among these ranks"


def test_torchrun_tells_of_exit_code_2(tmp_path: Path) -> None:
    arguments = ("--data", tmp_path / "nowhere", "--brief")
    result = launch(*torchrun_forked("-m", "pipeline.doctor", *arguments))
    assert result.returncode == 1  # torchrun's own
    assert "exitcode  : 2" in result.stderr, result.stderr
    assert result.stdout.count("doctor: would stop") == 1
