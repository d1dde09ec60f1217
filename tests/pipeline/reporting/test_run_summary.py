"""A run is read from its files; what is missing or damaged is said."""

import json
from pathlib import Path

import pytest

from pipeline.data.shards.manifest import read_manifest
from pipeline.reporting.renderings import as_text
from pipeline.reporting.run_summary import changes, flat, read_run
from pipeline.reporting.sections import make_report
from tests.pipeline.reporting.small_runs import write_run


def test_all_of_a_run(tmp_path: Path, prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(tmp_path / "run", data=prepared)
    found = read_run(run)
    assert (found.name, found.recipe, found.problems) == ("run", "roberta_tiny", [])
    assert found.starts == [50]
    assert found.data == [(str(prepared), read_manifest(prepared))]
    assert found.settings["optimizer.kind"] == "lamb"
    assert [path for path, *_ in changes(found.settings, found.recipe)] == ["steps"]
    assert changes(found.settings, "mine") == []
    monkeypatch.setattr("pipeline.reporting.run_summary.MOST_BYTES", 1)
    assert read_run(run).starts == [], "from a history that is too large to read"
    nested = {"a": 1, "b": {"c": [1], "d": {"e": 2}}}
    assert flat(nested) == {"a": 1, "b.c": [1], "b.d.e": 2}


def test_what_is_gone_or_damaged_is_said(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    found = read_run(path)
    assert found.data == [(str(path / "gone"), None)]
    assert "no such directory" in found.problems[0]
    (path / "run.json").write_text("[")
    (path / "plan.json").write_text("[]")
    with (path / "metrics.jsonl").open("a") as file:
        file.write("{\n")
    problems = "\n".join(read_run(path).problems)
    for said in ("run.json", "plan.json", "1 lines"):
        assert f"{said} cannot be read" in problems
    (tmp_path / "history.tsv").write_text("")
    found = read_run(tmp_path)
    assert (found.curves.lines, found.settings, found.starts) == (0, {}, [])


def test_entries_of_other_types_are_said_and_left_out(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    record = json.loads((path / "run.json").read_bytes())
    record |= {"versions": 3, "initial_weights": [1], "plans": [{"sequences": "many"}, 4]}
    (path / "run.json").write_text(json.dumps(record))
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 101, "tokens_per_second": "fast", "step_seconds": "x"}\n')
    found = read_run(path)
    for name in ("versions is 3", "initial_weights is [1]", "plans is [{"):
        assert any(name in problem for problem in found.problems)
    assert as_text(make_report([found], [], "again"))
    record |= {"versions": {"a": None}, "initial_weights": {}, "plans": [{"sequences": "many"}]}
    (path / "run.json").write_text(json.dumps(record))
    assert "sequences many" in as_text(make_report([read_run(path)], [], "again"))
