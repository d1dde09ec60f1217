"""Weights & Biases gets each step once and holds up no run; test_wandb.py runs the real one."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.base.errors import ConfigError
from pipeline.recipes import recipe
from pipeline.training.run_directory import boards
from pipeline.training.run_directory.boards import check_boards
from pipeline.training.run_directory.metrics_log import Metrics, read_metrics


class Wandb:
    """Stands in for the module and for its run."""

    Settings = SimpleNamespace

    def __init__(self) -> None:
        self.begun: list[dict[str, Any]] = []
        self.lines: list[tuple[int, list[str]]] = []
        self.finished = 0
        self.fails_in = ""
        self.stalls = threading.Event()
        self.stalls.set()

    def init(self, **given: Any) -> Wandb:
        self._do("init")
        self.begun.append(given)
        return self

    def log(self, values: dict[str, float], step: int) -> None:
        self._do("log")
        self.lines.append((step, list(values)))

    def finish(self) -> None:
        self._do("finish")
        self.finished += 1

    def _do(self, what: str) -> None:
        self.stalls.wait(20)
        if what == self.fails_in:
            raise RuntimeError("no\nnetwork")


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> Wandb:
    found = Wandb()
    monkeypatch.setitem(sys.modules, "wandb", found)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    return found


def life(run: Path, restored: int, last: int, said: list[str] | None = None) -> Metrics:
    """A run from one step to another, with validation at every fifth."""
    metrics = Metrics(run, restored, (said if said is not None else []).append, ("wandb",))
    metrics.show_settings(recipe("roberta_tiny"))
    write_steps(metrics, restored + 1, last)
    return metrics


def write_steps(metrics: Metrics, first: int, last: int) -> None:
    for step in range(first, last + 1):
        metrics.write({"step": step, "time": "now", "loss": 1 / step, "slowest_host": "a"})
        if step % 5 == 0:
            metrics.write({"step": step, "validation_loss": 2.0})


def expected(first: int, last: int) -> list[tuple[int, list[str]]]:
    return [
        (step, [f"{kind}/loss"])
        for step in range(first, last + 1)
        for kind in ("train", "validation")[: 2 - bool(step % 5)]
    ]


def test_a_resumed_run_has_the_same_id_and_no_step_twice(tmp_path: Path, wandb: Wandb) -> None:
    life(tmp_path, 0, 14).close()
    life(tmp_path, 10, 20).close()
    assert wandb.lines == expected(1, 20) and wandb.finished == 2
    first, second = wandb.begun
    assert first["id"] == second["id"] == (tmp_path / "wandb" / "id").read_text()
    assert first["config"]["optimizer"]["kind"] == "lamb" and second["config"] is None
    assert (first["resume"], second["resume"]) == (None, "allow")
    assert first["project"] == "tenfold" and first["dir"] == str(tmp_path)
    assert first["settings"].silent and first["settings"].console == "off"
    assert not (tmp_path / "tensorboard").exists()
    assert [line["step"] for line in read_metrics(tmp_path)] == [*range(1, 21)]


def test_a_validation_that_was_owed_is_shown(tmp_path: Path, wandb: Wandb) -> None:
    """The run was killed between the last step's line and its validation."""
    metrics = life(tmp_path, 0, 4)
    metrics.write({"step": 5, "loss": 0.2})
    metrics.close()
    metrics = life(tmp_path, 5, 5)
    metrics.write({"step": 5, "validation_loss": 2.0})
    metrics.close()
    assert wandb.lines == expected(1, 5)


def test_a_rollback_shows_no_step_twice(tmp_path: Path, wandb: Wandb) -> None:
    metrics = life(tmp_path, 0, 13)
    metrics.go_back(7)
    write_steps(metrics, 8, 16)
    metrics.close()
    assert wandb.lines == expected(1, 16) and len(wandb.begun) == wandb.finished == 1


def test_wandb_may_join_a_run_later(tmp_path: Path, wandb: Wandb) -> None:
    """The file of its id may be damaged."""
    metrics = Metrics(tmp_path, 0, print, ())
    write_steps(metrics, 1, 14)
    metrics.close()
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / "id").write_bytes(b"../\xff")
    life(tmp_path, 10, 16).close()
    assert wandb.lines == expected(11, 16)
    assert wandb.begun[0]["config"] and wandb.begun[0]["resume"] is None
    assert (tmp_path / "wandb" / "id").read_text() == wandb.begun[0]["id"]


@pytest.mark.parametrize("place", ["init", "log", "finish"])
def test_what_wandb_raises_ends_nothing(place: str, tmp_path: Path, wandb: Wandb) -> None:
    wandb.fails_in = place
    said: list[str] = []
    life(tmp_path, 0, 8, said).close()
    (warning,) = said
    assert warning.startswith(f"warning: wandb stopped logging {tmp_path} (RuntimeError: no); ")
    assert len(read_metrics(tmp_path)) == 8
    assert (tmp_path / "wandb" / "id").exists() == (place != "init")  # settings: next time
    wandb.fails_in = ""
    life(tmp_path, 8, 9).close()
    assert (wandb.begun[-1]["config"] is None) == (place != "init")


def test_a_wandb_that_stalls_is_left_behind(
    tmp_path: Path, wandb: Wandb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boards, "CLOSE_SECONDS", 0.05)
    monkeypatch.setattr(boards, "MOST_WAITING", 20)
    for name in ("few", "many"):
        (tmp_path / name).mkdir()
    wandb.stalls.clear()
    said: list[str] = []
    life(tmp_path / "few", 0, 8, said).close()
    assert len(said) == 1 and "has not finished within 0 s" in said[0]
    life(tmp_path / "many", 0, 80, said).close()
    assert len(said) == 2 and "it accepted none of 20 lines" in said[1]
    assert len(read_metrics(tmp_path / "many")) == 80
    wandb.stalls.set()


def test_wandb_must_be_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_boards(["tensorboard"])
    (tmp_path / "wandb").mkdir()  # as wandb itself makes it where it is started
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    if not any((Path(place) / "wandb" / "__init__.py").exists() for place in sys.path):
        with pytest.raises(ConfigError, match=r"wandb.*pip install '\.\[wandb\]'"):
            check_boards(["tensorboard", "wandb"])
    (tmp_path / "wandb" / "__init__.py").write_text("")
    check_boards(["wandb"])
