from pathlib import Path

import pytest

from pipeline.base.errors import CheckpointError
from pipeline.training.run_directory.layout import (
    claim,
    has_checkpoints,
    mark_interrupted,
    mark_ready,
    mark_stopped_at_start,
)
from tests.temporaries import temporary_of_the_dead


def test_marks_come_and_go(tmp_path: Path) -> None:
    run = tmp_path / "deep" / "run"
    with claim(run):
        assert not (run / "ready").exists()
        mark_ready(run)
        assert (run / "ready").exists()
        mark_interrupted(run, 7)
    assert sorted(path.name for path in run.iterdir()) == ["INTERRUPTED", "history.tsv"]
    assert (run / "INTERRUPTED").read_text() == "step 7\n"
    with claim(run):
        assert (run / "INTERRUPTED").exists()  # until the job is ready
        mark_ready(run)
        assert not (run / "INTERRUPTED").exists()


def test_the_history_says_how_each_start_ended(tmp_path: Path) -> None:
    with claim(tmp_path):
        mark_ready(tmp_path)
        mark_interrupted(tmp_path, 7)
    with pytest.raises(CheckpointError), claim(tmp_path):
        mark_ready(tmp_path)
        raise CheckpointError("of another run")
    with claim(tmp_path):
        pass
    mark_stopped_at_start(tmp_path)
    events = [line.split("\t")[2:] for line in (tmp_path / "history.tsv").read_text().splitlines()]
    assert [kind for kind, _ in events[::2]] == ["began", "began", "began", "interrupted"]
    assert events[1::2] == [["interrupted", ""], ["failed", "of another run"], ["ended", ""]]


def test_what_a_crash_left_is_cleaned_up(tmp_path: Path) -> None:
    """But for a file by which another process may look at the lease now."""
    (tmp_path / "ready").write_text("")
    (tmp_path / "checkpoints" / ".step-00000003.tmp").mkdir(parents=True)
    (tmp_path / ".lease.json.0123.tmp").touch()
    temporary_of_the_dead(tmp_path / "plan.json").touch()
    with claim(tmp_path):
        assert not (tmp_path / "ready").exists()
        assert not list((tmp_path / "checkpoints").iterdir())
        assert not has_checkpoints(tmp_path)
        assert [path.name for path in tmp_path.glob(".*.tmp")] == [".lease.json.0123.tmp"]


def test_a_directory_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(CheckpointError, match=r"\(thesis.tex\)"), claim(tmp_path):
        pass
    (tmp_path / "run.json").write_text("{}")
    with claim(tmp_path):
        pass
