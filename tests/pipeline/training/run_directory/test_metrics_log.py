import json
import math
import re
import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from pipeline.base.errors import CheckpointError
from pipeline.recipes import recipe
from pipeline.training.run_directory.history import now_utc
from pipeline.training.run_directory.metrics_log import (
    CURVE,
    METRICS,
    Metrics,
    Pace,
    loss_plot,
    read_metrics,
)
from tests.pipeline.preparing import small_disk


def written(run: Path, *lines: dict[str, object], restored: int = 0) -> Metrics:
    """The log of a run that writes these lines."""
    metrics = Metrics(run, restored)
    for line in lines:
        metrics.write(line)
    return metrics


def test_a_step_is_one_line_also_when_validation_comes_later(tmp_path: Path) -> None:
    written(
        tmp_path, {"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.5, "grad_norm": math.inf},
        {"step": 2, "validation_loss": 1.75}, {"step": 3, "loss": math.nan},
    ).close()  # fmt: skip
    assert (tmp_path / METRICS).read_text() == (
        '{"step": 1, "loss": 2.0}\n'
        '{"step": 2, "loss": 1.5, "grad_norm": null, "validation_loss": 1.75}\n'
        '{"step": 3, "loss": null}\n'
    )


def test_lines_after_the_restored_step_are_cut_off(tmp_path: Path) -> None:
    written(tmp_path, *({"step": step, "loss": 1.0 / step} for step in (1, 2, 3))).close()
    with (tmp_path / METRICS).open("a") as file:
        file.write('{"step": 4, "lo')
    assert [line["step"] for line in read_metrics(tmp_path)] == [1, 2, 3]
    again = Metrics(tmp_path, 2)
    assert again.last == {"step": 2, "loss": 0.5}
    again.write({"step": 2, "validation_loss": 4.0})
    again.write({"step": 3, "loss": 9.0})
    again.close()
    assert read_metrics(tmp_path) == [
        {"step": 1, "loss": 1.0}, {"step": 2, "loss": 0.5, "validation_loss": 4.0},
        {"step": 3, "loss": 9.0},
    ]  # fmt: skip


def test_the_first_line_is_known_after_a_resume_and_gone_in_a_new_run(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path, -1)
    assert metrics.first == {}
    for line in ({"step": 0, "validation_loss": 4.0}, {"step": 0, "general_loss": 5.0}):
        metrics.write(line)
    metrics.write({"step": 1, "loss": 3.0})
    first = {"step": 0, "validation_loss": 4.0, "general_loss": 5.0}
    assert metrics.first == first
    metrics.go_back(0)
    assert metrics.first == metrics.last == first
    metrics.close()
    new = Metrics(tmp_path, -1)
    assert new.first == new.last == {} and read_metrics(tmp_path) == []
    new.close()


def full(path: Path, left: int) -> AbstractContextManager[None]:
    """No file grows beyond `path` plus `left` bytes, as on a full disk."""
    return small_disk(path.stat().st_size + left)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("left", [0, 10, 40])
def test_lines_the_disk_refuses_wait_and_are_reported_once(tmp_path: Path, left: int) -> None:
    said: list[str] = []
    metrics = Metrics(tmp_path, 0, said.append)
    metrics.write({"step": 1, "loss": 2.0})
    with full(tmp_path / METRICS, left):
        for step, validation_loss in ((1, 1.75), (2, 1.25)):
            metrics.write({"step": step, "validation_loss": validation_loss, "text": 40 * "x"})
            metrics.write({"step": step + 1, "loss": 1.0})
        with pytest.raises(CheckpointError, match=r"cannot write into .*File too large"):
            metrics.sync()  # no checkpoint without the earlier lines
    assert [line for line in said if METRICS in line.split(":")[1]] == [
        f"warning: cannot write {tmp_path / METRICS} (File too large): its lines wait; training "
        "continues"
    ]
    metrics.write({"step": 4, "loss": 0.5})
    metrics.sync()
    metrics.close()
    assert read_metrics(tmp_path) == [
        {"step": 1, "loss": 2.0, "validation_loss": 1.75, "text": 40 * "x"},
        {"step": 2, "loss": 1.0, "validation_loss": 1.25, "text": 40 * "x"},
        {"step": 3, "loss": 1.0}, {"step": 4, "loss": 0.5},
    ]  # fmt: skip


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_picture_that_cannot_be_drawn_is_reported(tmp_path: Path) -> None:
    said: list[str] = []
    metrics = Metrics(tmp_path, 0, said.append)
    metrics.write({"step": 1, "loss": 2.0})
    with full(tmp_path / METRICS, 10):
        metrics.draw()
    assert len(said) == 1 and "the old picture remains; training continues" in said[0]
    metrics.close()


def test_the_curve_is_drawn_once_from_any_lines(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path, 0)
    metrics.draw()
    metrics.write({"step": 1, "loss": 2.0})
    metrics.write({"step": 2, "loss": math.nan, "validation_loss": 2.0, "validation_mask_loss": 2})
    metrics.draw()
    assert (tmp_path / CURVE).read_bytes().startswith(b"\x89PNG")
    (tmp_path / CURVE).unlink()
    metrics.draw()
    assert not (tmp_path / CURVE).exists()
    metrics.write({"step": 2, "general_loss": 2.0})
    metrics.draw()
    assert (tmp_path / CURVE).exists()
    metrics.close()
    assert len(list((tmp_path / "tensorboard").iterdir())) == 1


def test_the_curve_is_that_of_the_first_objective_and_says_where_phases_begin() -> None:
    """Nats per predicted token: the other parts have other scales."""
    line = {"step": 1, "loss": 9.0, "mlm_loss": 7.0, "pair_loss": 2.0, "validation_mlm_loss": 8.0}
    found = loss_plot([line], "run").series
    assert found[:2] == [("mlm loss", [(1, 7.0)]), ("validation mlm loss", [(1, 8.0)])]
    assert found[2:] == [("validation loss at [MASK]", [])]
    lines: list[dict[str, float]] = [
        {"step": step, "loss": 2.0, "phase": phase, "sequence_length": length}
        for step, phase, length in ((1, 1, 128), (2, 1, 128), (3, 2, 128), (4, 2, 512))
    ]
    lines.insert(1, {"step": 1, "validation_loss": 3.0})
    assert loss_plot(lines, "run").marks == [(2, "phase 2"), (3, "length 512")]


def test_the_board_has_groups_and_the_settings(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path, 0)
    metrics.show_settings(recipe("roberta_tiny"))
    line = {"loss": 2.0, "grad_norm": 1.0, "tokens_per_second": 9.0, "epoch": 1}
    metrics.write({"step": 1, "time": now_utc(), **line, "validation_loss/books": 3.0})
    metrics.write({"step": 1, "general_loss": 3.0})
    metrics.close()
    board = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert set(board.Tags()["scalars"]) == {
        "train/loss", "optimizer/grad_norm", "speed/tokens_per_second", "run/epoch",
        "validation/loss/books", "general/loss",
    }  # fmt: skip
    (settings,) = board.Tensors("settings/text_summary")
    assert b'"peak_lr"' in settings.tensor_proto.string_val[0]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", read_metrics(tmp_path)[0]["time"])


def test_many_corpora_have_a_file_per_validation(tmp_path: Path) -> None:
    told: list[str] = []
    metrics = Metrics(tmp_path, 0, told.append)
    metrics.write({"step": 100, "loss": 2.0})
    table = {f"l{n}": {"predictions": n, "mlm_loss": 5.0, "mask_loss": math.nan} for n in range(99)}
    metrics.write_corpora(100, table, {"en": {"predictions": 9, "mlm_loss": math.inf}})
    content = json.loads((tmp_path / "held_out/step-00000100.json").read_text())
    assert content["step"] == 100 and len(content["corpora"]) == 99
    assert content["corpora"]["l7"] == {"predictions": 7, "mlm_loss": 5.0, "mask_loss": None}
    assert content["languages"] == {"en": {"predictions": 9, "mlm_loss": None}}
    assert len((tmp_path / "metrics.jsonl").read_text()) < 100
    (tmp_path / "held_out/step-00000100.json").unlink()
    (tmp_path / "held_out").rmdir()
    (tmp_path / "held_out").write_bytes(b"")  # in the way
    metrics.write_corpora(200, table, {})
    assert len(told) == 1 and "it lacks the losses of each corpus" in told[0]
    metrics.close()


def test_pace_separates_waiting_from_working_and_skips_pauses() -> None:
    pace = Pace(1000)
    for _ in range(2):
        with pace.waiting():
            time.sleep(0.02)
        pace.steps += 1
    with pace.paused():
        time.sleep(0.2)
    report = pace.report(tokens=1100)
    assert 0.02 <= report["data_seconds"] <= report["step_seconds"] < 0.1
    assert report["tokens_per_second"] == pytest.approx(50 / report["step_seconds"])
    assert list(pace.timed(iter([1, 2]))) == [1, 2]
    assert pace.report(tokens=1100)["data_seconds"] < 0.01


def test_damage_at_the_end_is_cut_and_elsewhere_is_named(tmp_path: Path) -> None:
    """A crash may leave blocks of zeros in the lines after the last checkpoint."""
    path = tmp_path / METRICS
    good = b'{"step": 1}\n{"step": 2}\n'
    for end in (b"\0\0\n", b"[]\n", b'{"step": "x"}\n', b"\0\n\0\n", b'{"step": 3'):
        path.write_bytes(good + end)
        assert [line["step"] for line in read_metrics(tmp_path)] == [1, 2]
    path.write_bytes(b'{"step": 1}\n\0\0\n{"step": 2}\n')
    with pytest.raises(CheckpointError, match=r"metrics.jsonl is damaged in line 2: "):
        read_metrics(tmp_path)
