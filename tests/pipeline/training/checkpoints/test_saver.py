"""A save is published whole or not at all: crashes, full disks, several ranks, old checkpoints."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.base.errors import CheckpointError
from pipeline.cluster.ranks import Alone, RankGroup
from pipeline.training.checkpoints import publish as publish_module
from pipeline.training.checkpoints import saver as saver_module
from pipeline.training.checkpoints.publish import remove_leftovers
from pipeline.training.checkpoints.read import Checkpoint, open_latest, verify
from tests.pipeline.preparing import contents
from tests.pipeline.training import toy_checkpoints as toy
from tests.pipeline.training.points import Points


def assert_latest(run: Path, step: int) -> None:
    checkpoint, messages = open_latest(run, Alone())
    assert checkpoint is not None and checkpoint.state.step == step
    assert messages == [] and toy.holds(checkpoint, step)


def test_newer_ones_are_not_removed(tmp_path: Path) -> None:
    """A user who returned to an older one may want them; saving a step again replaces its own."""
    for step in (1, 2, 3):
        toy.save(tmp_path, step)
    toy.save(tmp_path, 2, keep=1, values_of=20)
    assert toy.published(tmp_path) == [2, 3]
    checkpoint, messages = open_latest(tmp_path, Alone())
    assert checkpoint is not None and checkpoint.state.step == 2 and toy.holds(checkpoint, 20)
    assert len(messages) == 1 and "step-00000003 is newer" in messages[0]


def test_an_old_one_that_stays_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy.save(tmp_path, 1)

    def refuse(path: Path) -> None:
        raise PermissionError(1, "Operation not permitted", str(path))

    monkeypatch.setattr(publish_module.shutil, "rmtree", refuse)
    warnings: list[str] = []
    saver = toy.saver(tmp_path, Alone(), keep=1)
    saver.tell = warnings.append
    saver.save(toy.fragments(2), toy.state(2))
    (warning,) = warnings
    assert "cannot remove" in warning and "step-00000001" in warning
    monkeypatch.undo()
    assert_latest(tmp_path, 2)
    remove_leftovers(tmp_path)
    assert len(list((tmp_path / "checkpoints").iterdir())) == 2


def test_every_element_must_come_from_one_rank(tmp_path: Path) -> None:
    """Stage 0 without `divide` would write everything twice."""
    for world_size, parts, said in ((2, toy.fragments(1), "was written twice"), (1, [], "0 elem")):

        def save(ranks: RankGroup, parts: Any = parts, of: int = world_size) -> None:
            toy.saver(tmp_path, ranks).save(parts, toy.state(1, of))

        assert all(said in str(error) for error in toy.on_ranks(world_size, save))
    assert toy.published(tmp_path) == []


def fail_on(monkeypatch: pytest.MonkeyPatch, rank: int) -> None:
    """The disk of one rank is full when half of its fragments are written."""
    original = saver_module.write_fragments

    def write(directory: Path, writer: int, fragments: Any) -> None:
        if writer == rank:
            (directory / f"weights-{rank:05d}.safetensors").write_bytes(bytes(100))
            raise OSError(28, "No space left on device")
        original(directory, writer, fragments)

    monkeypatch.setattr(saver_module, "write_fragments", write)


def full(*_: Any) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("fails", [0, 1, 2, "rename", "fsync", "write_whole", "write_synced"])
def test_a_failure_of_one_rank_stops_all(
    fails: int | str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the disk of a rank, or of a step of rank 0 that publishes."""
    toy.save(tmp_path, 1, 3)
    before = contents(tmp_path)
    with monkeypatch.context() as patch:
        if isinstance(fails, int):
            fail_on(patch, fails)
        else:
            owner = {"rename": Path, "fsync": os}.get(fails, publish_module)
            patch.setattr(owner, fails, full)
        errors = toy.save(tmp_path, 2, 3, keep=1)
    assert all(isinstance(error, CheckpointError) for error in errors)
    (message,) = {str(error) for error in errors}
    assert "step 2 was not saved" in message and "No space left" in message
    assert fails not in (1, 2) or f"rank {fails}" in message
    after = contents(tmp_path)
    assert after.items() >= before.items()
    assert after == before or fails == "write_whole"  # it would have named the new one the latest
    assert not list((tmp_path / "checkpoints").glob(".*"))
    checkpoint, _ = open_latest(tmp_path, Alone())
    assert held(checkpoint) == (1, 1)
    assert toy.save(tmp_path, 2, 3) == [None] * 3
    assert_latest(tmp_path, 2)


def test_a_failure_in_the_background_is_reported_once_and_the_next_one_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy.save(tmp_path, 1, 2)
    warnings: list[tuple[int, str]] = []

    def play(ranks: RankGroup) -> list[str]:
        saver = toy.saver(tmp_path, ranks)
        saver.tell = lambda text: warnings.append((ranks.rank, text))
        saver.begin(toy.fragments(2, cuts[ranks.rank]), toy.state(2, 2))
        outcomes = [saver.finish()]
        if ranks.rank == 0:
            monkeypatch.undo()
        ranks.gather("")
        saver.begin(toy.fragments(3, cuts[ranks.rank]), toy.state(3, 2))
        outcomes.append(saver.finish())
        assert saver.saved_step == 3
        return outcomes

    cuts = toy.cut(2)
    fail_on(monkeypatch, 1)
    for outcomes in toy.on_ranks(2, play):
        assert outcomes == ["rank 1: [Errno 28] No space left on device", ""]
    ((rank, text),) = warnings
    assert rank == 0
    assert text.startswith("warning: step 2 was not saved: rank 1: [Errno 28] No space left on")
    assert toy.published(tmp_path) == [1, 3]
    assert_latest(tmp_path, 3)


def test_a_rank_that_cannot_write_its_note_is_reported_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saver_module, "note_failure", lambda *_: None)
    fail_on(monkeypatch, 1)
    for error in toy.save(tmp_path, 1, 3):
        assert "step 1 was not saved: rank 1: [Errno 28] No space" in str(error)
    assert not list((tmp_path / "checkpoints").iterdir())


def test_unseen_files_are_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 1 writes to its own disk."""
    monkeypatch.setattr(saver_module, "VISIBLE_SECONDS", 0.3)
    (tmp_path / "1/checkpoints/.step-00000001.tmp").mkdir(parents=True)

    def play(ranks: RankGroup) -> None:
        saver = toy.saver(tmp_path / str(ranks.rank), ranks)
        saver.save(toy.fragments(1, toy.cut(2)[ranks.rank]), toy.state(1, 2))

    for error in toy.on_ranks(2, play):
        assert "rank 0 does not see the files of ranks 1; name an --output" in str(error)


def test_before_publishing_is_called_before_the_checkpoint_is_visible(tmp_path: Path) -> None:
    """Metrics up to a checkpoint's step are on disk before the checkpoint is visible."""
    seen: list[bool] = []
    saver = toy.saver(tmp_path, Alone())
    files = tmp_path / "checkpoints"
    saver.before_publishing = lambda: seen.append((files / ".step-00000001.tmp").exists())
    saver.begin(toy.fragments(1), toy.state(1))
    saver.close()
    assert seen == [True] and toy.published(tmp_path) == [1]
    saver = toy.saver(tmp_path, Alone())
    saver.before_publishing = lambda: 1 / 0  # a bug in the background ends the run
    saver.begin(toy.fragments(2), toy.state(2))
    with pytest.raises(ZeroDivisionError):
        saver.finish()


def test_closing_waits_for_no_dead_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saver_module, "CLOSE_SECONDS", 0.3)

    def play(ranks: RankGroup) -> None:
        saver = toy.saver(tmp_path, ranks)
        if ranks.rank:
            monkeypatch.setattr(saver, "_work", lambda *_: None)  # died
        saver.begin(toy.fragments(1, toy.cut(2)[ranks.rank]), toy.state(1, 2))
        saver.close()

    assert toy.on_ranks(2, play) == [None, None]
    assert toy.published(tmp_path) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("cannot mount a small disk here; the tests above simulate a full one")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk(small_disk: Path) -> None:
    run = small_disk / "run"
    toy.save(run, 1, 2)
    before = contents(run)
    for spare in range(16):  # pages; each time the disk is full at another point of the save
        filler = small_disk / "filler"
        filler.unlink(missing_ok=True)
        disk = os.statvfs(small_disk)
        filler.write_bytes(bytes((disk.f_bavail - spare) * disk.f_bsize))
        errors = toy.save(run, 2, 2, keep=1)
        if errors == [None, None]:
            break
        assert all(isinstance(error, CheckpointError) for error in errors)
        assert all(re.search("No space left|MB free", str(error)) for error in errors), errors
        assert (run / "checkpoints/latest").read_text() == "step-00000001\n"
        assert contents(run).items() >= before.items()
    else:
        pytest.fail("never enough space")
    assert spare > 5
    assert_latest(run, 2)


def test_a_read_only_disk(small_disk: Path) -> None:
    run = small_disk / "run"
    toy.save(run, 1, 2)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    errors = toy.save(run, 2, 2)
    assert all("Read-only file system" in str(error) for error in errors)
    assert_latest(run, 1)


def test_all_is_synced_before_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut may lose only what was not announced yet."""
    synced: list[str] = []
    original = {name: getattr(os, name) for name in ("fsync", "rename", "replace")}

    def fsync(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        original["fsync"](descriptor)

    def rename(source: Path, target: Path) -> None:
        if rank := re.fullmatch(r"index-0000(\d).json", target.name):
            names = {f"{kind}-0000{rank[1]}.safetensors" for kind in ("weights", "optimizer")}
            assert set(synced) >= names | {source.name}
        else:
            assert set(synced) >= {
                ".index-00000.json.tmp", ".index-00001.json.tmp", "index.json", "state.json",
            }  # fmt: skip
            assert synced[-1] == source.name == ".step-00000001.tmp"
        original["rename"](source, target)

    def replace(source: Path, target: Path) -> None:
        assert synced[-2:] == ["checkpoints", source.name] and target.name == "latest"
        original["replace"](source, target)

    for name, function in {"fsync": fsync, "rename": rename, "replace": replace}.items():
        monkeypatch.setattr(os, name, function)
    assert toy.save(tmp_path, 1, 2) == [None, None]
    assert synced[-1] == "checkpoints"


def in_child(die_at: int, action: Callable[[], object]) -> int:
    """The exit code of a forked process that runs `action`: 137 if it died at that point."""
    child = os.fork()
    if child == 0:
        try:
            Points(die_at).install()
            action()
            os._exit(0)
        finally:
            os._exit(1)  # never continue as a second pytest
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def held(checkpoint: Checkpoint | None) -> tuple[int, int] | None:
    """A checkpoint's step, and the step whose values it holds."""
    return checkpoint and (
        checkpoint.state.step, next(of for of in (1, 2, 3, 20) if toy.holds(checkpoint, of))
    )  # fmt: skip


@pytest.mark.parametrize("stride", [pytest.param(1, marks=pytest.mark.slow), 3])
@pytest.mark.parametrize("saved", ["first", "third", "again"])
def test_killed_at_every_point(
    saved: str, stride: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two ranks die while they save step 1, step 3 (which removes 1), or step 2 again."""
    monkeypatch.setattr(os, "fsync", lambda _: None)  # processes die here, disks do not
    monkeypatch.setattr(publish_module, "POLL_SECONDS", 0.001)
    step, values = {"first": (1, 1), "third": (3, 3), "again": (2, 20)}[saved]
    base = tmp_path / "base"
    base.mkdir()
    for older in (1, 2) if saved != "first" else ():
        toy.save(base, older, 2)
    allowed = {(step, values), None if saved == "first" else (2, 2)}

    def save_into(run: Path) -> list[Any]:
        return toy.save_in_background(run, step, 2, keep=2, values_of=values)

    shutil.copytree(base, tmp_path / "undisturbed")
    assert save_into(tmp_path / "undisturbed") == ["", ""]
    expected = contents(tmp_path / "undisturbed")
    run, seen, points = tmp_path / "run", set(), 0
    shutil.copytree(base, run)
    while (code := in_child(points, lambda: save_into(run))) == 137:
        latest = run / "checkpoints/latest"
        if latest.exists():
            assert latest.read_text() in {"step-00000002\n", f"step-{step:08d}\n"}
        for directory in (run / "checkpoints").glob("step-*"):
            verify(directory)
        remove_leftovers(run)
        assert not list((run / "checkpoints").glob(".*"))
        checkpoint, _ = open_latest(run, Alone())
        assert held(checkpoint) in allowed, points
        seen.add(held(checkpoint))
        assert save_into(run) == ["", ""]
        assert contents(run) == expected
        shutil.rmtree(run)
        shutil.copytree(base, run)
        points += stride
    assert code == 0 and points > 50
    assert contents(run) == expected  # no process died in the last save
    assert seen == allowed
