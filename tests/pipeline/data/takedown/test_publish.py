"""Takedowns in a chain equal one; a killed one is not taken for whole."""

import fcntl
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from pipeline.base.files import one_at_a_time
from pipeline.data.shards.document_index import DOCUMENTS
from pipeline.data.shards.manifest import read_manifest
from pipeline.data.takedown import publish
from pipeline.data.takedown.shard import TakedownWorker
from tests.pipeline.data.letters import check, id_of, prepare_letters
from tests.pipeline.preparing import Call, contents


@pytest.fixture
def old(call: Call, tiny_tokenizer: Path, tmp_path: Path) -> Path:
    return prepare_letters(call, tiny_tokenizer, tmp_path, ["data.duplicates=2"])


def ids_of(old: Path, letters: str) -> list[str]:
    return [id_of(old, letter) for letter in letters]


STOP = Mock(side_effect=KeyboardInterrupt)


def test_takedowns_in_a_chain_equal_one(old: Path, take: Call, show: Call, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    take(old, *ids_of(old, "bk"), output="one")
    out = take(one, *ids_of(old, "bde"), output="two")  # b is gone already
    assert "took down 2 documents" in out and "; 1 were gone already" in out
    check(old, two, "bkde")
    manifest = read_manifest(two)
    assert manifest.ancestors == (read_manifest(old).fingerprint, read_manifest(one).fingerprint)
    assert manifest.takedowns[1]["documents"] == {"letters": 2}
    show(two, "--verify")
    take(old, *ids_of(old, "bkde"), output="at-once")
    chained, same = contents(two), contents(tmp_path / "at-once")
    assert chained.pop("manifest.json") != same.pop("manifest.json")
    assert chained == same


def test_parts_give_the_bytes_of_one_takedown(
    old: Path, take: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is killed after a shard, or before it publishes, and run again."""
    new, work = tmp_path / "new", tmp_path / "new" / ".work"

    def part(number: int, code: int = 0) -> str:
        return take(old, *ids_of(old, "bkde"), "--part", f"{number}/2", code=code)

    whole = take(old, *ids_of(old, "bkde"), output="whole")
    assert len(read_manifest(old).shards) == 2
    with monkeypatch.context() as patch:
        patch.setattr(TakedownWorker, "do", STOP)
        part(2, code=130)
    assert (work / DOCUMENTS).exists()
    with (work / "lock").open("r+b") as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        with one_at_a_time(work / ".shard-000000.lock"):
            said = part(2)
    assert said.startswith("part 2/2 is finished; other parts are running")
    assert [path.name for path in work.glob("*shard*.json")] == ["shard-000001.json"]
    written = (work / DOCUMENTS).stat().st_mtime_ns
    with monkeypatch.context() as patch:
        patch.setattr(publish, "_new_manifest", STOP)
        part(1, code=130)
    assert (new / DOCUMENTS).stat().st_mtime_ns == written, "written once"
    assert part(1) == whole.replace(str(tmp_path / "whole"), str(new))
    assert contents(new) == contents(tmp_path / "whole") and not list(new.rglob(".*"))
    assert "took down 4 documents" in part(2), "complete already"


def test_a_killed_takedown_is_nothing_and_goes_on(
    old: Path, take: Call, show: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, done = tmp_path / "new", []
    do = TakedownWorker.do

    def interrupted(self: TakedownWorker, index: Any, task: Any) -> None:
        if done:
            raise KeyboardInterrupt
        done.append(task.name)
        do(self, index, task)

    with monkeypatch.context() as patch:
        patch.setattr(TakedownWorker, "do", interrupted)
        take(old, id_of(old, "c"), code=130)
    assert "has no manifest.json" in show(new, code=2)
    error = take(old, id_of(old, "d"), code=2)
    assert "unfinished work of another --data or --documents; remove" in error
    with (new / ".work/lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert f"another process is writing {new}" in take(old, id_of(old, "c"), code=2)
    take(old, id_of(old, "c"))
    check(old, new, "c")
    assert not list(new.rglob(".*")), "nothing is left of the work"
    before = contents(new)
    take(old, id_of(old, "c"))
    assert contents(new) == before
    error = take(old, id_of(old, "d"), code=2)
    assert "holds other shards" in error and error.count("\n") == 1
