"""Sections say what the files say."""

import json
from pathlib import Path

from pipeline.reporting.curves import Curve
from pipeline.reporting.run_summary import RunSummary, read_run
from pipeline.reporting.score_files import Score
from pipeline.reporting.sections import Section, made_by, make_report, report_command, verdict
from tests.pipeline.reporting.small_runs import write_run


def section(runs: list[RunSummary], title: str) -> Section:
    sections = make_report(runs, [Score("m", "sst2", 0.8, 0.7, 0.9, "note")], "again").sections
    (found,) = [part for part in sections if part.title == title]
    return found


def test_the_verdict(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run"))
    said = "run: stopped, step 100 of 100; held-out loss at [MASK] 3.1000; 1 restart; "
    assert verdict(run).startswith(said)
    run.curves.last["validation_mask_rate"] = 0.15
    assert "; held-out loss at [MASK] (15 % masked) 3.1000; " in verdict(run)
    run.curves.curves["validation_loss"].add(100, 4.0)
    run.curves.last["skipped_updates"] = 3
    assert "it was lower, 3.0000, at step 20; 3 steps without an update" in verdict(run)


BROKEN = [
    {"step": 101, "loss": None, "mlm_loss": None, "mask_loss": None, "grad_norm": None},
    {"step": 102, "loss": None, "validation_loss": None, "validation_mask_loss": None},
]


def test_a_run_that_broke_is_not_shown_by_its_last_finite_loss(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    with (path / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in BROKEN)
    run = read_run(path)
    assert "; held-out loss at [MASK] nan since step 102; " in verdict(run)
    names = [name for plot in section([run], "Curves").plots for name, _ in plot.series]
    assert {"training, nan since step 101", "held-out, nan since step 102"} <= {*names}
    values = section([run, run], "Side by side").tables[0].rows
    assert ("last training loss", *["nan since step 101"] * 2) in values
    sound = write_run(tmp_path / "sound")
    with (sound / "metrics.jsonl").open("a") as file:  # a step without [MASK] has no such loss
        file.write('{"step": 101, "loss": 2.0, "mlm_loss": 2.0, "mask_loss": null}\n')
    names = [n for plot in section([read_run(sound)], "Curves").plots for n, _ in plot.series]
    assert "training, at [MASK]" in names


def test_one_run(tmp_path: Path, prepared: Path) -> None:
    runs = [read_run(write_run(tmp_path / "run", data=prepared))]
    changed = section(runs, "Identity").tables[1]
    assert list(changed.rows) == [("steps", "2400", "100")]
    plots = section(runs, "Curves").plots
    assert "Parts of the loss" not in [plot.title for plot in plots]  # there is one
    by_corpus = next(plot for plot in plots if "by corpus" in plot.title)
    assert [name for name, _ in by_corpus.series] == ["books", "news"]
    assert all(plot.lives == [50] for plot in plots)
    time = section(runs, "Time")
    assert ("in steps", "79 s (80.0%)") in list(time.tables[0].rows)
    assert ("most often slowest", "node<2>, in 100 of 100 lines") in list(time.tables[0].rows)
    assert [*time.tables[1].rows] == [("2026-01-01T00:00:50Z", "job 7", "a node <b>died</b>")]
    data = section(runs, "Data")
    assert data.tables[0].rows[0][0] == "articles" and "stored masks per row" in data.lines[2]
    assert section(runs, "Scores").tables[0].rows[0][3] == "0.7000 to 0.9000"
    again = section(runs, "To reproduce").commands
    assert again[0].startswith(f"python -m pipeline.train {tmp_path}/run/run.json --data ")
    assert again[1] == "again"


def test_a_run_from_given_weights_shows_both_ends(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run"))
    called = [row[0] for row in section([run], "Identity").tables[0].rows]
    assert "before and after" not in called
    for name, losses in (("validation", (4.0, 3.0)), ("general", (2.5, 2.75))):
        for step, loss in zip((0, 100), losses):
            run.curves.curves.setdefault(f"{name}_mlm_loss", Curve()).add(step, loss)
            run.curves.last[f"{name}_mlm_loss"] = loss
    said = (
        "held-out loss 4.0000 -> 3.0000 on your text, 2.5000 -> 2.7500 on the general sample "
        "(forgetting: +0.2500)"
    )
    assert ("before and after", said) in section([run], "Identity").tables[0].rows
    both = section([run, run], "Side by side").tables
    assert not any("2.7500" in value for table in both for row in table.rows for value in row)


def test_predicted_beside_measured_and_problems_last(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    measured = {"step_seconds": {"predicted": 1.5, "measured": 2.0}, "other": 3}
    (path / "plan.json").write_text(json.dumps(measured))
    (table,) = section([read_run(path)], "Plan").tables
    assert list(table.rows) == [("step seconds", "1.5000", "2.0000", "0.75")]
    report = make_report([read_run(path)], [], "again")
    assert report.sections[-1].title == "Not readable"


def test_several_runs_are_laid_over_one_another(tmp_path: Path) -> None:
    runs = [read_run(write_run(tmp_path / name, seed=seed)) for seed, name in enumerate("ab")]
    values, settings = section(runs, "Side by side").tables
    assert list(settings.rows) == [("seed", "0", "1")]
    assert values.rows[0] == ("held-out loss at [MASK]", "3.1000", "3.1000")
    plots = section(runs, "Curves").plots
    assert {tuple(name for name, _ in plot.series) for plot in plots} == {("a", "b")}
    assert "Loss: held-out" in [plot.title for plot in plots]


def test_losses_that_do_not_compare_stand_apart(tmp_path: Path) -> None:
    runs = [read_run(write_run(tmp_path / name)) for name in "abc"]
    runs[1].record["tokenizer_sha256"] = "ef"
    found = section(runs, "Side by side")
    assert [tuple(table.head) for table in found.tables] == [
        ("last losses", "a", "c"), ("last losses", "b"), ("last values", "a", "b", "c"),
    ]  # fmt: skip
    assert found.lines[1].startswith("b stands apart from a: another vocabulary")
    assert next(iter(found.tables[2].rows))[0] == "tokens"
    plots = section(runs, "Curves").plots
    frames = {plot.title: [name for name, _ in plot.series] for plot in plots}
    assert frames["Loss: held-out (a, c)"] == ["a", "c"]
    assert frames["Loss: held-out (b)"] == ["b"]
    assert frames["Gradient norm"] == ["a", "b", "c"]


def test_the_command_can_be_pasted() -> None:
    said = report_command([Path("a b")], [Path("s")], Path("c.html"))
    assert said == "python -m pipeline.report 'a b' --scores s --output c.html"
    assert report_command([Path("a")], [], None).endswith(" a --text")
    assert "Tenfold" in made_by()
