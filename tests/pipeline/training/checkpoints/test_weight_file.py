"""Weights in safetensors files that we write ourselves."""

import errno
import os
import stat
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save

from pipeline.base.errors import DataError
from pipeline.training.checkpoints.weight_file import write_weights
from tests.pipeline.preparing import small_disk


def weights() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.randn(shape, generator=generator)
        for name, shape in (("b.weight", (3, 5)), ("a", (7,)), ("ü/\"name\"", ()), ("none", (0, 2)))
    }  # fmt: skip


def test_the_bytes_are_those_of_safetensors(tmp_path: Path) -> None:
    given = weights()
    write_weights(given | {"b.weight": given["b.weight"].t().contiguous().t()}, tmp_path / "w")
    assert (tmp_path / "w").read_bytes() == save(given, {"format": "pt"})
    for name, weight in load_file(tmp_path / "w").items():
        assert torch.equal(weight, given[name])
    (tmp_path / "plain").touch()
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert len(modes) == 1, "readable as any other file"


def test_weights_are_synced_then_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        seen.append((Path(f"/proc/self/fd/{descriptor}").readlink(), (tmp_path / "w").exists()))
        fsync(descriptor)

    monkeypatch.setattr("os.fsync", noted)
    write_weights(weights(), tmp_path / "w")
    assert [existed for _, existed in seen] == [False, True]
    assert seen[0][0].name.startswith(".w.") and seen[1][0] == tmp_path


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "w"
    write_weights(weights(), path)
    before = path.read_bytes()
    large = {"a": torch.zeros(500_000)}
    with pytest.raises(DataError) as caught, small_disk(1_000_000):
        write_weights(large, path)
    said = f"cannot write {path}, which takes 2.0 MB: {os.strerror(errno.EFBIG)}; raise the limit"
    assert str(caught.value).startswith(said)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(DataError, match=r"2\.0 MB: No space left on device; free some space and"):
        write_weights(large, path)
    assert path.read_bytes() == before and [*tmp_path.iterdir()] == [path]
