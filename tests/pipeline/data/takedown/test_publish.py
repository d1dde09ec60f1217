"""Takedowns in a chain equal one; a killed one is not taken for whole."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import Any

import pytest

from pipeline import inspect, takedown
from pipeline.base.files import one_at_a_time
from pipeline.data.shards.document_index import DOCUMENTS
from pipeline.data.shards.manifest import read_manifest
from pipeline.data.takedown import publish
from pipeline.data.takedown.shard import TakedownWorker
from tests.pipeline.data.letters import check, id_of, prepare_letters
from tests.pipeline.preparing import Call, contents


def test_takedowns_in_a_chain_equal_one(call: Call, tiny_tokenizer: Path, tmp_path: Path) -> None:
    old = prepare_letters(call, tiny_tokenizer, tmp_path, ["data.duplicates=2"])
    steps = {"one": "bk", "two": "bde"}  # b is gone already
    data = old
    for name, taken in steps.items():
        ids = [id_of(old, letter) for letter in taken]
        arguments = ["--documents", *ids, "--output", tmp_path / name, "--workers", 1]
        out = call(takedown.main, "--data", data, *arguments)
        data = tmp_path / name
    assert "took down 2 documents" in out and "; 1 were gone already" in out
    check(old, data, "bkde")
    manifest = read_manifest(data)
    assert manifest.ancestors == (
        read_manifest(old).fingerprint,
        read_manifest(tmp_path / "one").fingerprint,
    )
    assert manifest.takedowns[1]["documents"] == {"letters": 2}
    call(inspect.main, data, "--verify")
    everything = [id_of(old, letter) for letter in "bkde"]
    arguments = ["--documents", *everything, "--output", tmp_path / "at-once", "--workers", 1]
    call(takedown.main, "--data", old, *arguments)
    same = {name: hash for name, hash in contents(data).items() if name != "manifest.json"}
    assert same == {n: h for n, h in contents(tmp_path / "at-once").items() if n != "manifest.json"}


def test_parts_give_the_bytes_of_one_takedown(
    call: Call, tiny_tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is killed after a shard, or before it publishes, and run again."""
    old = prepare_letters(call, tiny_tokenizer, tmp_path, ["data.duplicates=2"])
    names = ["--data", old, "--documents", *(id_of(old, letter) for letter in "bkde")]

    def take(name: str, *options: object, code: int = 0) -> str:
        words = [*names, "--output", tmp_path / name, "--workers", 1, *options]
        return call(takedown.main, *words, code=code)

    whole = take("whole")
    tasks = len(read_manifest(old).shards)
    assert tasks == 2
    new = tmp_path / "new"
    with monkeypatch.context() as patch:
        patch.setattr(TakedownWorker, "do", stop)
        take("new", "--part", "2/2", code=130)
    assert (new / ".work" / DOCUMENTS).exists()
    with (new / ".work" / "lock").open("r+b") as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        with one_at_a_time(new / ".work" / ".shard-000000.lock"):
            said = take("new", "--part", "2/2")
    assert said == (
        "part 2/2 is finished; other parts are running, and the last to finish publishes the "
        "shards\n"
    )
    assert [path.name for path in (new / ".work").glob("*.json") if "shard" in path.name] == [
        "shard-000001.json"
    ]
    written = (new / ".work" / DOCUMENTS).stat().st_mtime_ns
    with monkeypatch.context() as patch:
        patch.setattr(publish, "_new_manifest", stop)
        take("new", "--part", "1/2", code=130)
    assert (new / DOCUMENTS).stat().st_mtime_ns == written, "written once"
    assert take("new", "--part", "1/2") == whole.replace(str(tmp_path / "whole"), str(new))
    assert contents(new) == contents(tmp_path / "whole")
    assert not list(new.rglob(".*"))
    assert "took down 4 documents" in take("new", "--part", "2/2"), "complete already"


def stop(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_killed_takedown_is_nothing_and_goes_on(
    call: Call, tiny_tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = prepare_letters(call, tiny_tokenizer, tmp_path, ["data.duplicates=1"])
    output = ["--output", tmp_path / "new", "--workers", 1]
    arguments = ["--data", old, "--documents", id_of(old, "c"), *output]
    done: list[str] = []
    do = TakedownWorker.do

    def interrupted(self: TakedownWorker, index: Any, task: Any) -> None:
        if done:
            raise KeyboardInterrupt
        done.append(task.name)
        do(self, index, task)

    with monkeypatch.context() as patch:
        patch.setattr(TakedownWorker, "do", interrupted)
        call(takedown.main, *arguments, code=130)
    assert "has no manifest.json" in call(inspect.main, tmp_path / "new", code=2)
    other = ["--data", old, "--documents", id_of(old, "d"), *output]
    error = call(takedown.main, *other, code=2)
    assert "unfinished work of another --data or --documents; remove" in error
    with (tmp_path / "new/.work/lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        error = call(takedown.main, *arguments, code=2)
    assert error == f"error: another process is writing {tmp_path / 'new'}; wait for it\n"
    call(takedown.main, *arguments)
    check(old, tmp_path / "new", "c")
    assert not list((tmp_path / "new").rglob(".*")), "nothing is left of the work"
    before = contents(tmp_path / "new")
    call(takedown.main, *arguments)
    assert contents(tmp_path / "new") == before
    error = call(takedown.main, *other, code=2)
    assert "holds other shards" in error and error.count("\n") == 1
