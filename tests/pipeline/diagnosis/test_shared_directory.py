"""The tests of a shared directory pass on a disk, and find what is wrong elsewhere."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.diagnosis import shared_directory
from pipeline.diagnosis.checks import FAIL, OK, WARN, Check, merge
from pipeline.diagnosis.exchange import Exchange
from pipeline.diagnosis.own_rank import LaunchPlace
from pipeline.diagnosis.shared_directory import check_output_directory, checkpoint_bytes
from pipeline.recipes import recipe
from tests.pipeline.diagnosis.conftest import Together

TESTS = {
    "shared directory", "mmap after replace", "exclusive creation", "locks", "renames",
    "synced files", "room for the run", "inodes",
}  # fmt: skip


def by_name(found: list[list[Check]]) -> dict[str, Check]:
    return {check.name: check for check in merge(found)}


def alone(folder: Path, **amounts: float) -> dict[str, Check]:
    return by_name([check_output_directory(Exchange(LaunchPlace()), folder, **amounts)])


def test_a_disk_is_fine_and_nothing_is_left(together: Together, tmp_path: Path) -> None:
    run = tmp_path / "a" / "run"
    found = by_name(together(lambda ranks: check_output_directory(ranks, run), ranks=3))
    assert found.keys() == TESTS == alone(tmp_path).keys()
    wrong = {name: check for name, check in found.items() if check.status not in (OK, "skipped")}
    assert not wrong.keys() - {"room for the run", "synced files", "inodes"}, wrong
    assert not list(tmp_path.iterdir())


def test_a_directory_that_another_node_does_not_see(
    together: Together, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_directory, "_PATIENCE_SECONDS", 0.2)
    mine = [tmp_path / "a", tmp_path / "b"]
    for place in mine:
        place.mkdir()

    def look(ranks: Exchange) -> list[Check]:
        if ranks.placement.rank == 1:  # this node has another file system at the same path
            broadcast = ranks.broadcast
            ranks.broadcast = lambda value: _moved(broadcast(value), *mine)  # type: ignore[method-assign]
        return check_output_directory(ranks, mine[0])

    found = by_name(together(look))
    assert found["shared directory"].status == FAIL and found["shared directory"].ranks == ()
    assert "locks" not in found


def _moved(value: Any, place: Path, other: Path) -> Any:
    return value.replace(str(place), str(other)) if isinstance(value, str) else value


@pytest.mark.usefixtures("no_locks")
def test_no_locks(tmp_path: Path) -> None:
    found = alone(tmp_path)["locks"]
    assert found.status == WARN and "no locks" in found.value


def test_room_is_compared_with_a_checkpoint(tmp_path: Path) -> None:
    found = alone(tmp_path, needed=1e18)["room for the run"]
    assert (found.status, found.threshold) == (FAIL, "at least 1e+09 GB")
    found = alone(tmp_path, needed=1e6, planned=2e18)["room for the run"]
    assert (found.status, found.threshold) == (WARN, "at least 2e+09 GB")


def test_a_read_only_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    (check,) = alone(tmp_path).values()
    assert check.status == FAIL and "cannot be written" in check.value
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_has_twelve_bytes_per_weight() -> None:
    """124.6 million weights of RoBERTa base, all but biases and norms, which are 0.2 %."""
    assert 0.99 < checkpoint_bytes(recipe("roberta_base")) / (12 * 124.6e6) <= 1
    assert checkpoint_bytes(recipe("albert_base")) < 12 * 12e6
