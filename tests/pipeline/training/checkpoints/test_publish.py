"""Waiting for the other ranks, and which checkpoints are kept; crashes are in test_saver.py."""

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.base.errors import CheckpointError
from pipeline.cluster.ranks import Alone
from pipeline.training.checkpoints.fragment_files import write_fragments
from pipeline.training.checkpoints.publish import make_room, note_failure, wait_for_ranks
from tests.pipeline.training import toy_checkpoints as toy


def test_the_newest_and_multiples_of_keep_every_are_kept(tmp_path: Path) -> None:
    for keep, keep_every, kept in ((3, 0, [80, 90, 100]), (2, 30, [30, 60, 90, 100])):
        run = tmp_path / f"{keep}"
        saver = toy.saver(run, Alone(), keep=keep, keep_every=keep_every)
        for step in range(10, 110, 10):
            saver.save(toy.fragments(step), toy.state(step))
        assert toy.published(run) == kept
    assert toy.save(run, 110, 2, keep=1) == [None, None]
    names = sorted(path.name for path in (run / "checkpoints").iterdir())
    assert names == ["latest", "step-00000110"]


def test_rank_0_waits_for_all_and_names_ranks_that_fail(tmp_path: Path) -> None:
    never = threading.Event()
    later = threading.Timer(0.2, write_fragments, (tmp_path, 1, toy.fragments(1)))
    later.start()
    began = time.monotonic()
    wait_for_ranks(tmp_path, 2, "", never)
    assert time.monotonic() - began > 0.15
    (tmp_path / "weights-00002.safetensors").write_bytes(b"half")
    note_failure(tmp_path, 2, "cannot write: disk full")
    assert not (tmp_path / "weights-00002.safetensors").exists()
    with pytest.raises(CheckpointError, match=r"^rank 2: cannot write: disk full$"):
        wait_for_ranks(tmp_path, 3, "", never)
    with pytest.raises(CheckpointError, match=r"^mine \(and ranks 2\)$"):
        wait_for_ranks(tmp_path, 3, "mine", never)
    given_up = threading.Event()
    given_up.set()
    (tmp_path / "failed-00002").unlink()
    with pytest.raises(CheckpointError, match="does not see the files of ranks 2, 3;"):
        wait_for_ranks(tmp_path, 4, "", given_up)

    class GivenUp(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            note_failure(tmp_path, 2, "no space")
            self.set()
            return True

    with pytest.raises(CheckpointError, match="rank 2: no space"):
        wait_for_ranks(tmp_path, 3, "", GivenUp())


def test_a_checkpoint_larger_than_the_free_space_is_not_started(tmp_path: Path) -> None:
    huge = replace(toy.state(1), shapes={"weight": (1 << 50,)})
    temporary = tmp_path / ".step-00000001.tmp"
    with pytest.raises(CheckpointError, match=r"takes 13,510,798,882\.1 MB, .* has [\d.,]+ MB fr"):
        make_room(temporary, huge)
    assert not temporary.exists()
