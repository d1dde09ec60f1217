"""Fragments in safetensors files: readable by others, complete, every flipped bit found."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from pipeline.base.errors import CheckpointError
from pipeline.training.checkpoints import fragment_files as files
from pipeline.training.optimizer.optimizer import FragmentState
from tests.pipeline.training import toy_checkpoints as toy


def fragment(name: str, start: int, values: list[float]) -> FragmentState:
    weight = torch.tensor(values)
    return FragmentState(name, start, weight, weight * 10, weight * 100)


def parts_of(directory: Path, size: int, kind: str) -> list[files.StoredTensor]:
    """Of the parameter `a` in the files of rank 0."""
    return files.in_order(files.read_index(directory, 0).tensors, {"a": (size,)})["a", kind]


def read_part(directory: Path, *arguments: Any) -> torch.Tensor:
    """`read_range` of files that nothing has read before."""
    with files.OpenFiles(directory) as opened:
        return files.read_range(opened, *arguments)


def load(directory: Path, name: str) -> dict[str, torch.Tensor]:
    return load_file(directory / f"{name}.safetensors")


def test_the_safetensors_library_reads_any_number_of_them(tmp_path: Path) -> None:
    files.write_fragments(tmp_path, 3, [fragment("b", 2, [1.0, 2.0]), fragment("a", 0, [3.0])])
    assert {name: value.tolist() for name, value in load(tmp_path, "weights-00003").items()} == {
        "a@0": [3.0], "b@2": [1.0, 2.0],
    }  # fmt: skip
    assert {name: value.tolist() for name, value in load(tmp_path, "optimizer-00003").items()} == {
        "a@0.exp_avg": [30.0], "a@0.exp_avg_sq": [300.0],
        "b@2.exp_avg": [10.0, 20.0], "b@2.exp_avg_sq": [100.0, 200.0],
    }  # fmt: skip
    index = json.loads((tmp_path / "index-00003.json").read_text())
    assert [file["file"] for file in index["files"]] == [
        f"{kind}-00003.safetensors" for kind in ("weights", "optimizer")
    ]
    assert [t["start"] for t in index["tensors"] if t["name"] == "b"] == [2, 2, 2]
    files.write_fragments(tmp_path, 0, [fragment("a", 5, [])])
    assert load(tmp_path, "weights-00000") == {} and files.read_index(tmp_path, 0).tensors == ()


@pytest.mark.parametrize("world_size", [1, 2, 3, 5, 60])
def test_divide_gives_each_element_to_one_rank(world_size: int) -> None:
    shares = [list(files.divide(toy.fragments(1), rank, world_size)) for rank in range(world_size)]
    sizes = [sum(part.weight.numel() for part in share) for share in shares]
    assert sum(sizes) == 52 and max(sizes) - min(sizes) <= 1
    for name, tensors in toy.values(1).items():
        parts = sorted((p for share in shares for p in share if p.name == name), key=lambda p: p[1])
        for kind, tensor in enumerate(tensors):
            joined = torch.cat([part[2 + kind] for part in parts])
            assert joined.numpy().tobytes() == tensor.numpy().tobytes()


def test_each_element_must_be_there_once(tmp_path: Path) -> None:
    files.write_fragments(tmp_path, 0, [fragment("a", 0, [1.0, 2.0]), fragment("a", 2, [3.0])])
    tensors = files.read_index(tmp_path, 0).tensors
    ordered = files.in_order(reversed(tensors), {"a": (3, 1)})
    assert [tensor.start for tensor in ordered["a", "exp_avg"]] == [0, 2]
    shapes: dict[str, tuple[int, ...]]
    for stored, shapes, match in (
        (tensors + tensors, {"a": (3,)}, "a from element 0 on was written twice"),
        ([t for t in tensors if t.start], {"a": (3,)}, "a from element 0 on was written by no"),
        (tensors, {"a": (4,)}, r"a has 3 elements, its shape is \(4,\)"),
        (tensors, {"a": (3,), "b": (1,)}, "b has 0 elements"),
        (tensors, {"b": (3,)}, "a is not a logical parameter"),
    ):
        with pytest.raises(CheckpointError, match=match):
            files.in_order(stored, shapes)


def test_every_flipped_bit_of_a_sealed_file_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    content = files.seal({"a": [1, 0.1], "b": "x"})
    path.write_bytes(content)
    assert files.unseal(path) == {"a": [1, 0.1], "b": "x"}
    for bit in range(len(content) * 8):
        path.write_bytes(toy.flip(content, bit))
        with pytest.raises(CheckpointError, match=r"a\.json is damaged"):
            files.unseal(path)


def test_a_flipped_bit_is_found_as_it_is_read(tmp_path: Path) -> None:
    """Also if it is in a part of the fragment that was not requested, and among equal values."""
    files.write_fragments(tmp_path, 0, [fragment("a", 0, [0.0] * 4), fragment("a", 4, [0.0] * 4)])
    index, parts = files.read_index(tmp_path, 0), parts_of(tmp_path, 8, "weight")
    trusted: set[tuple[str, int]] = set()
    assert read_part(tmp_path, parts, 5, 8, trusted).tolist() == [0.0] * 3
    path = tmp_path / parts[0].file
    path.write_bytes(toy.flip(path.read_bytes(), 8 * (parts[0].byte + 4)))
    for start, stop in ((0, 4), (1, 3), (2, 4), (1, 6)):
        with pytest.raises(CheckpointError, match=r"weights-00000.safetensors .*: weight of a"):
            read_part(tmp_path, parts, start, stop, trusted)
    with pytest.raises(CheckpointError, match=r"weights-00000.safetensors is damaged"):
        files.check_file(tmp_path, index.files[0], content=True)


def test_a_fragment_is_checked_once(tmp_path: Path) -> None:
    files.write_fragments(tmp_path, 0, [fragment("a", 0, [1.0, 2.0, 3.0])])
    parts = parts_of(tmp_path, 3, "exp_avg")
    trusted: set[tuple[str, int]] = set()
    assert read_part(tmp_path, parts, 0, 1, trusted).tolist() == [10.0]
    assert trusted == {(parts[0].file, parts[0].byte)}
    assert read_part(tmp_path, parts, 1, 3, trusted).tolist() == [20.0, 30.0]
    assert read_part(tmp_path, parts, 2, 2, trusted).tolist() == []


def test_a_cut_file_and_a_place_outside_it_are_found_as_they_are_read(tmp_path: Path) -> None:
    files.write_fragments(tmp_path, 0, [fragment("a", 0, [1.0, 2.0, 3.0])])
    parts = parts_of(tmp_path, 3, "weight")
    for byte in (-1, 2**63, 10**30):
        with pytest.raises(CheckpointError, match=rf"safetensors is damaged: .* at byte {byte}$"):
            read_part(tmp_path, [replace(parts[0], byte=byte)], 0, 2, set())
    path = tmp_path / parts[0].file
    path.write_bytes(path.read_bytes()[:-4])
    for start, stop in [(0, 3), (1, 3)]:
        with pytest.raises(CheckpointError, match="is damaged"):
            read_part(tmp_path, parts, start, stop, set())
    path.unlink()
    with pytest.raises(CheckpointError, match=r"cannot read .*No such file"):
        read_part(tmp_path, parts, 0, 3, set())


def test_no_path_leaves_a_checkpoint(tmp_path: Path) -> None:
    files.write_fragments(tmp_path, 0, toy.fragments(1))
    for file in ("../weights", "/weights", "a/weights", "..", ".", "", "a\n"):
        for entry in ("files", "tensors"):
            content = files.unseal(tmp_path / "index-00000.json")
            content[entry][0]["file"] = file
            (tmp_path / "index-00001.json").write_bytes(files.seal(content))
            with pytest.raises(CheckpointError, match=r"00001\.json is .* is not the name"):
                files.read_index(tmp_path, 1)


def test_the_indices_of_all_ranks_become_one(tmp_path: Path) -> None:
    for rank in range(3):
        files.write_fragments(tmp_path, rank, files.divide(toy.fragments(1), rank, 3))
    indexes = [files.read_index(tmp_path, rank) for rank in range(3)]
    stored = files.write_merged(tmp_path, indexes)
    merged = files.read_merged(tmp_path, stored)
    assert merged.files == tuple(file for index in indexes for file in index.files)
    assert merged.tensors == tuple(tensor for index in indexes for tensor in index.tensors)
    path = tmp_path / "index.json"
    content = path.read_bytes()
    for wrong in (content[:-1], content + b"\n", content.replace(b"weight", b"Weight", 1)):
        path.write_bytes(wrong)
        with pytest.raises(CheckpointError, match=r"index\.json is damaged"):
            files.read_merged(tmp_path, stored)
    path.unlink()
    with pytest.raises(CheckpointError, match=r"cannot read .*index\.json: No such file"):
        files.read_merged(tmp_path, stored)


def test_few_files_stay_open(tmp_path: Path) -> None:
    names = [f"file-{number}" for number in range(files.KEPT_FILES + 1)]
    for name in names:
        (tmp_path / name).write_text(name)
    with files.OpenFiles(tmp_path) as opened:
        first, second = opened.get(names[0]), opened.get(names[1])
        assert opened.get(names[0]) is first
        for name in names[2:]:
            assert opened.get(name).read().decode() == name
        assert second.closed and not first.closed
        assert not opened.get(names[1]).closed
    assert first.closed
