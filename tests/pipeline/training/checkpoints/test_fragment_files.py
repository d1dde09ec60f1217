"""Fragments in safetensors files: readable by others, complete, every flipped bit found."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from pipeline.base.errors import CheckpointError
from pipeline.training.checkpoints.fragment_files import (
    KEPT_FILES,
    OpenFiles,
    check_file,
    divide,
    in_order,
    read_index,
    read_merged,
    read_range,
    seal,
    unseal,
    write_fragments,
    write_merged,
)
from pipeline.training.optimizer.optimizer import FragmentState
from tests.pipeline.training import toy_checkpoints as toy


def fragment(name: str, start: int, values: list[float]) -> FragmentState:
    weight = torch.tensor(values)
    return FragmentState(name, start, weight, weight * 10, weight * 100)


def read_part(directory: Path, *arguments: Any) -> torch.Tensor:
    """`read_range` of files that nothing has read before."""
    with OpenFiles(directory) as files:
        return read_range(files, *arguments)


def test_the_safetensors_library_reads_them(tmp_path: Path) -> None:
    write_fragments(tmp_path, 3, [fragment("b", 2, [1.0, 2.0]), fragment("a", 0, [3.0])])
    weights = load_file(tmp_path / "weights-00003.safetensors")
    assert {key: value.tolist() for key, value in weights.items()} == {
        "a@0": [3.0],
        "b@2": [1.0, 2.0],
    }
    moments = load_file(tmp_path / "optimizer-00003.safetensors")
    assert {key: value.tolist() for key, value in moments.items()} == {
        "a@0.exp_avg": [30.0],
        "a@0.exp_avg_sq": [300.0],
        "b@2.exp_avg": [10.0, 20.0],
        "b@2.exp_avg_sq": [100.0, 200.0],
    }
    index = json.loads((tmp_path / "index-00003.json").read_text())
    assert [file["file"] for file in index["files"]] == [
        "weights-00003.safetensors",
        "optimizer-00003.safetensors",
    ]
    assert [t["start"] for t in index["tensors"] if t["name"] == "b"] == [2, 2, 2]


def test_a_rank_without_fragments_has_valid_files(tmp_path: Path) -> None:
    write_fragments(tmp_path, 0, [fragment("a", 5, [])])
    assert load_file(tmp_path / "weights-00000.safetensors") == {}
    assert read_index(tmp_path, 0).tensors == ()


@pytest.mark.parametrize("world_size", [1, 2, 3, 5, 60])
def test_divide_gives_each_element_to_one_rank(world_size: int) -> None:
    shares = [list(divide(toy.fragments(1), rank, world_size)) for rank in range(world_size)]
    sizes = [sum(part.weight.numel() for part in share) for share in shares]
    assert sum(sizes) == 52 and max(sizes) - min(sizes) <= 1
    for name, tensors in toy.values(1).items():
        parts = sorted((p for share in shares for p in share if p.name == name), key=lambda p: p[1])
        for kind, tensor in enumerate(tensors):
            joined = torch.cat([part[2 + kind] for part in parts])
            assert joined.numpy().tobytes() == tensor.numpy().tobytes()


def test_each_element_must_be_there_once(tmp_path: Path) -> None:
    write_fragments(tmp_path, 0, [fragment("a", 0, [1.0, 2.0]), fragment("a", 2, [3.0])])
    tensors = read_index(tmp_path, 0).tensors
    assert [t.start for t in in_order(reversed(tensors), {"a": (3, 1)})["a", "exp_avg"]] == [0, 2]
    with pytest.raises(CheckpointError, match="weight of a from element 0 on was written twice"):
        in_order(tensors + tensors, {"a": (3,)})
    with pytest.raises(CheckpointError, match="weight of a from element 0 on was written by no"):
        in_order([t for t in tensors if t.start], {"a": (3,)})
    with pytest.raises(CheckpointError, match=r"weight of a has 3 elements, its shape is \(4,\)"):
        in_order(tensors, {"a": (4,)})
    with pytest.raises(CheckpointError, match="weight of b has 0 elements"):
        in_order(tensors, {"a": (3,), "b": (1,)})
    with pytest.raises(CheckpointError, match="a is not a logical parameter"):
        in_order(tensors, {"b": (3,)})


def test_every_flipped_bit_of_a_sealed_file_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    content = seal({"a": [1, 0.1], "b": "x"})
    path.write_bytes(content)
    assert unseal(path) == {"a": [1, 0.1], "b": "x"}
    for bit in range(len(content) * 8):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r"a\.json is damaged"):
            unseal(path)


@pytest.mark.parametrize("start, stop", [(0, 4), (1, 3), (2, 4), (1, 6)])
def test_a_flipped_bit_is_found_as_it_is_read(start: int, stop: int, tmp_path: Path) -> None:
    """Also if it is in a part of the fragment that was not requested, and among equal values."""
    write_fragments(tmp_path, 0, [fragment("a", 0, [0.0] * 4), fragment("a", 4, [0.0] * 4)])
    index = read_index(tmp_path, 0)
    parts = in_order(index.tensors, {"a": (8,)})["a", "weight"]
    trusted: set[tuple[str, int]] = set()
    assert read_part(tmp_path, parts, 5, 8, trusted).tolist() == [0.0] * 3
    path = tmp_path / parts[0].file
    content = bytearray(path.read_bytes())
    content[parts[0].byte + 4] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"weights-00000.safetensors is damaged: weight of a"):
        read_part(tmp_path, parts, start, stop, trusted)
    with pytest.raises(CheckpointError, match=r"weights-00000.safetensors is damaged"):
        check_file(tmp_path, index.files[0], content=True)


def test_a_fragment_is_checked_once(tmp_path: Path) -> None:
    write_fragments(tmp_path, 0, [fragment("a", 0, [1.0, 2.0, 3.0])])
    parts = in_order(read_index(tmp_path, 0).tensors, {"a": (3,)})["a", "exp_avg"]
    trusted: set[tuple[str, int]] = set()
    assert read_part(tmp_path, parts, 0, 1, trusted).tolist() == [10.0]
    assert trusted == {(parts[0].file, parts[0].byte)}
    assert read_part(tmp_path, parts, 1, 3, trusted).tolist() == [20.0, 30.0]
    assert read_part(tmp_path, parts, 2, 2, trusted).tolist() == []


def test_a_cut_file_is_found_as_it_is_read(tmp_path: Path) -> None:
    write_fragments(tmp_path, 0, [fragment("a", 0, [1.0, 2.0, 3.0])])
    parts = in_order(read_index(tmp_path, 0).tensors, {"a": (3,)})["a", "weight"]
    path = tmp_path / parts[0].file
    path.write_bytes(path.read_bytes()[:-4])
    for start, stop in [(0, 3), (1, 3)]:
        with pytest.raises(CheckpointError, match="is damaged"):
            read_part(tmp_path, parts, start, stop, set())
    path.unlink()
    with pytest.raises(CheckpointError, match=r"cannot read .*No such file"):
        read_part(tmp_path, parts, 0, 3, set())


@pytest.mark.parametrize("file", ["../weights", "/weights", "a/weights", "..", ".", "", "a\n"])
def test_no_path_leaves_a_checkpoint(file: str, tmp_path: Path) -> None:
    write_fragments(tmp_path, 0, toy.fragments(1))
    for entry in ("files", "tensors"):
        content = unseal(tmp_path / "index-00000.json")
        content[entry][0]["file"] = file
        (tmp_path / "index-00001.json").write_bytes(seal(content))
        with pytest.raises(CheckpointError, match=r"00001\.json is damaged: .* is not the name"):
            read_index(tmp_path, 1)


def test_the_indices_of_all_ranks_become_one(tmp_path: Path) -> None:
    for rank in range(3):
        write_fragments(tmp_path, rank, divide(toy.fragments(1), rank, 3))
    indexes = [read_index(tmp_path, rank) for rank in range(3)]
    stored = write_merged(tmp_path, indexes)
    merged = read_merged(tmp_path, stored)
    assert merged.files == tuple(file for index in indexes for file in index.files)
    assert merged.tensors == tuple(tensor for index in indexes for tensor in index.tensors)
    path = tmp_path / "index.json"
    content = path.read_bytes()
    for wrong in (content[:-1], content + b"\n", content.replace(b"weight", b"Weight", 1)):
        path.write_bytes(wrong)
        with pytest.raises(CheckpointError, match=r"index\.json is damaged"):
            read_merged(tmp_path, stored)
    path.unlink()
    with pytest.raises(CheckpointError, match=r"cannot read .*index\.json: No such file"):
        read_merged(tmp_path, stored)


def test_few_files_stay_open(tmp_path: Path) -> None:
    names = [f"file-{number}" for number in range(KEPT_FILES + 1)]
    for name in names:
        (tmp_path / name).write_text(name)
    with OpenFiles(tmp_path) as files:
        first, second = files.get(names[0]), files.get(names[1])
        assert files.get(names[0]) is first
        for name in names[2:]:
            assert files.get(name).read().decode() == name
        assert second.closed and not first.closed
        assert not files.get(names[1]).closed
    assert first.closed


@pytest.mark.parametrize("byte", [-1, 2**63, 10**30])
def test_a_place_that_no_file_has(byte: int, tmp_path: Path) -> None:
    write_fragments(tmp_path, 0, [fragment("a", 0, [1.0, 2.0])])
    tensor = replace(read_index(tmp_path, 0).tensors[0], byte=byte)
    with pytest.raises(CheckpointError, match=rf"safetensors is damaged: .* at byte {byte}$"):
        read_part(tmp_path, [tensor], 0, 2, set())
