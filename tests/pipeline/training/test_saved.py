"""Folders and checkpoints as models; the commands that use them are in test_export.py."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from pipeline.errors import CheckpointError
from pipeline.training.saved import load_folder, load_run, write_folder


def test_a_folder_and_a_checkpoint_hold_the_same_model(
    trained: Path, prepared: Path, tmp_path: Path
) -> None:
    saved, messages = load_run(trained / "2x3-zero0")
    assert (saved.step, saved.directory, messages) == (20, trained / "2x3-zero0", [])
    assert not saved.model.training
    folder = tmp_path / "model"
    write_folder(saved.model, prepared / "tokenizer", folder)
    again = load_folder(folder)
    for name, parameter in saved.model.named_parameters():
        assert torch.equal(parameter, dict(again.named_parameters())[name]), name
    weights = load_file(folder / "model.safetensors")
    assert "lm_head.decoder.weight" not in weights  # tied: one copy
    del weights["lm_head.bias"]
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"missing \['lm_head.bias'\]"):
        load_folder(folder)
    (folder / "model.safetensors").write_bytes(b"not one")
    with pytest.raises(CheckpointError, match="holds no RoBERTa that can be loaded"):
        load_folder(folder)


def test_a_folder_that_cannot_be_written(trained: Path, prepared: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    saved, _ = load_run(trained / "1x16")
    with pytest.raises(CheckpointError, match="cannot write"):
        write_folder(saved.model, prepared / "tokenizer", tmp_path / "file" / "model")
