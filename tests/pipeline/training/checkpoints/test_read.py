"""Any ranks read what others wrote; damage is named, and the previous checkpoint is used."""

import json
import random
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from pipeline.base.errors import CheckpointError
from pipeline.cluster.ranks import Alone
from pipeline.training.checkpoints import read as checkpoint_module
from pipeline.training.checkpoints.fragment_files import seal, unseal, write_synced
from pipeline.training.checkpoints.read import (
    choose,
    choose_from,
    open_checkpoint,
    open_from,
    open_latest,
    verify,
)
from tests.damaged_json import changed, damaged
from tests.pipeline.training import toy_checkpoints as toy


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with steps 100 and 200, saved by two ranks."""
    for step in (100, 200):
        assert toy.save(tmp_path / "run", step, 2) == [None, None]
    return tmp_path / "run"


def directory(run: Path, step: int) -> Path:
    return run / "checkpoints" / f"step-{step:08d}"


@pytest.mark.parametrize("written_by", [1, 2, 3, 5])
def test_any_ranks_read_what_any_others_wrote(written_by: int, tmp_path: Path) -> None:
    toy.save(tmp_path, 7, written_by)
    for read_by in (1, 2, 3, 5):
        for seed in (1, 2):
            cuts = toy.cut(read_by, seed)

            def read(ranks: Any, cuts: Any = cuts) -> list[bytes]:
                checkpoint, messages = open_latest(tmp_path, ranks)
                assert checkpoint is not None and messages == []
                assert checkpoint.state == toy.state(7, written_by)
                found = (checkpoint.read(*part) for part in cuts[ranks.rank])
                return [tensor.numpy().tobytes() for kinds in found for tensor in kinds]

            parts = [toy.fragments(7, ranges) for ranges in cuts]
            assert toy.on_ranks(read_by, read) == [
                [tensor.numpy().tobytes() for part in own for tensor in part[2:]] for own in parts
            ]


def test_weights_come_whole_and_shaped_and_no_others(run: Path) -> None:
    checkpoint, _ = open_from(run, Alone())
    weights = dict(checkpoint.weights())
    assert {name: tuple(weight.shape) for name, weight in weights.items()} == toy.SHAPES
    for name, weight in weights.items():
        assert weight.numpy().tobytes() == toy.values(200)[name][0].numpy().tobytes()
    with pytest.raises(CheckpointError, match="no parameter other"):
        checkpoint.read("other", 0, 1)
    with pytest.raises(CheckpointError, match=r"5 elements of query.bias, not \[3, 6\)"):
        checkpoint.read("query.bias", 3, 6)


def test_a_damaged_or_missing_file_is_named_and_the_checkpoint_before_used(run: Path) -> None:
    generator = random.Random(0)
    files = sorted(directory(run, 200).iterdir())
    assert [file.name for file in files] == [
        "index.json", "optimizer-00000.safetensors", "optimizer-00001.safetensors", "state.json",
        "weights-00000.safetensors", "weights-00001.safetensors",
    ]  # fmt: skip
    for file in files:
        content = file.read_bytes()
        bits = generator.sample(range(8 * len(content)), 30)
        flipped = [toy.flip(content, bit) for bit in bits]
        for wrong in (*flipped, content[:-1], content + b" ", b"", None):
            file.unlink() if wrong is None else file.write_bytes(wrong)
            found, messages = choose(run)
            assert found == directory(run, 100), (file, wrong)
            assert str(file) in messages[0] and str(found) in messages[-1]
        file.write_bytes(content)
    assert choose(run) == (directory(run, 200), [])


def test_a_flipped_bit_of_latest_is_found(run: Path) -> None:
    toy.save(run, 300)
    shutil.rmtree(directory(run, 200))
    content = (run / "checkpoints/latest").read_bytes()
    for bit in range(8 * len(content)):  # 300 -> 100 among them
        damaged = toy.flip(content, bit)
        (run / "checkpoints/latest").write_bytes(damaged)
        found, messages = choose(run)
        to_100 = damaged == b"step-00000100\n"
        assert found == directory(run, 100 if to_100 else 300)
        assert len(messages) == 1


def test_all_ranks_get_the_same_checkpoint(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And only the first rank reads all of it."""
    (directory(run, 200) / "state.json").unlink()
    verified: list[str] = []
    original = checkpoint_module.verify
    monkeypatch.setattr(
        checkpoint_module, "verify", lambda path: (verified.append(path.name), original(path))
    )
    opened = toy.on_ranks(3, lambda ranks: open_latest(run, ranks))
    assert {checkpoint.directory for checkpoint, _ in opened} == {directory(run, 100)}
    assert all(toy.holds(checkpoint, 100) for checkpoint, _ in opened)
    assert verified == ["step-00000200", "step-00000100"]
    messages = opened[0][1]
    assert "state.json: No such file" in messages[0] and "resuming from" in messages[1]
    assert all(said == messages for _, said in opened)


def test_if_no_checkpoint_is_usable_all_ranks_name_each(run: Path) -> None:
    (directory(run, 200) / "state.json").unlink()
    (directory(run, 100) / "index.json").write_text("{}")
    errors = toy.on_ranks(2, lambda ranks: open_latest(run, ranks))
    assert all(isinstance(error, CheckpointError) for error in errors)
    assert len({str(error) for error in errors}) == 1
    assert "step-00000200" in str(errors[0]) and "index.json" in str(errors[0])


def test_a_run_without_checkpoints(tmp_path: Path) -> None:
    assert open_latest(tmp_path, Alone()) == (None, [])
    (tmp_path / "checkpoints/.step-00000100.tmp").mkdir(parents=True)
    assert open_latest(tmp_path, Alone()) == (None, [])
    with pytest.raises(CheckpointError, match="has no checkpoint"):
        open_from(tmp_path, Alone())
    (tmp_path / "checkpoints/latest").write_text("step-00000100\n")  # the directory was removed
    with pytest.raises(CheckpointError, match="names 'step-00000100', which is not there"):
        open_latest(tmp_path, Alone())


def test_latest_decides(run: Path) -> None:
    latest = run / "checkpoints/latest"
    latest.write_text("step-00000100")  # by hand, without a newline
    found, messages = choose(run)
    assert found == directory(run, 100) and "step-00000200 is newer" in messages[0]
    (directory(run, 100) / "state.json").unlink()  # a newer one is better than none
    assert choose(run)[0] == directory(run, 200)
    latest.unlink()
    assert choose(run) == (directory(run, 200), [f"{latest} is missing"])


def test_damage_after_opening_is_found_as_it_is_read(run: Path) -> None:
    checkpoint, _ = open_from(run, Alone())
    for file in directory(run, 200).glob("optimizer-*"):
        content = file.read_bytes()
        file.write_bytes(toy.flip(content, 8 * len(content) - 8))
    with pytest.raises(CheckpointError, match=r"optimizer-0000\d.safetensors .*: exp_avg_sq"):
        toy.holds(checkpoint, 200)


def test_another_format_is_refused(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_module, "FORMAT", 99)
    with pytest.raises(CheckpointError, match="is not of format 99"):
        open_checkpoint(directory(run, 200))


def test_from_any_name_of_a_checkpoint(run: Path, tmp_path: Path) -> None:
    named = ("100", "step-100", "step-00000100", "checkpoints/step-00000100")
    for given, step in (*((name, 100) for name in named), ("", 200), ("200", 200)):
        assert choose_from(run / given) == (directory(run, step), [])
    shutil.copytree(directory(run, 100), tmp_path / "good")
    assert choose_from(tmp_path / "good") == (tmp_path / "good", [])
    for given in ("150", "checkpoints/step-00000150"):
        with pytest.raises(CheckpointError, match=r"no checkpoint .*150; saved steps: 100, 200"):
            choose_from(run / given)
    file = directory(run, 200) / "weights-00000.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    for read in (choose_from, verify):
        with pytest.raises(CheckpointError, match="weights-00000"):
            read(directory(run, 200))  # named by the user, so no other is used
    assert choose_from(run)[0] == directory(run, 100)


def seal_all(directory: Path, name: str, values: dict[str, Any]) -> None:
    """Write values to state.json or index.json, with the hashes that belong to them."""
    if name == "state.json":
        (directory / name).write_bytes(seal(values))
        return
    index = write_synced(directory / name, [json.dumps(values).encode()])
    state = unseal(directory / "state.json") | {"index": asdict(index)}
    (directory / "state.json").write_bytes(seal(state))


@pytest.mark.parametrize("name", ["state.json", "index.json"])
def test_any_damage_of_a_json_file_is_a_line_that_names_it(name: str, run: Path) -> None:
    """With the right hash too, as of a file that another program wrote."""
    path = directory(run, 200) / name
    whole = path.read_bytes()
    values = unseal(path) if name == "state.json" else json.loads(whole)
    for what, content in damaged(whole):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=f"{path} "):
            verify(path.parent)
        assert choose(run)[0] == directory(run, 100), what
    for what, wrong in changed(values):
        seal_all(path.parent, name, wrong)
        try:
            open_checkpoint(path.parent)
        except CheckpointError as error:
            assert str(path.parent) in str(error) and "\n" not in str(error), what
