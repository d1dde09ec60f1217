"""The first kernel without a fault on any rank is taken; a resumed run keeps its own."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from model import attention
from model.attention_check import Case
from model.layers import attend_by
from model.pieces import pieces_of
from pipeline.base.errors import ConfigError
from pipeline.base.null_device import NULL
from pipeline.cluster.ranks import ONE_PROCESS
from pipeline.planning.build import build_model
from pipeline.recipes import recipe
from pipeline.training import start
from pipeline.training.attention_choice import attention_cases, choose_attention, recorded_attention
from pipeline.training.run_directory.run_json import RunRecord, read_record
from tests.pipeline.conftest import NO_DROPOUT, Arguments, job
from tests.pipeline.test_train import alone

CASE = Case(
    device=torch.device("cpu"), dtype=torch.float32, heads=2, head_size=8, longest=12, tokens=40,
    dropout=0.1,
)  # fmt: skip


def fails(*given: Any) -> Tensor:
    raise RuntimeError("no kernel image")


def test_a_kernel_with_a_fault_is_passed_over_with_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert choose_attention([CASE], "", "cpu", ONE_PROCESS) == "row_attention"
    assert not capsys.readouterr().err
    other = json.dumps(["row_attention has an error", ""])  # of rank 1; all take the same
    ranks: Any = SimpleNamespace(rank=0, gather=lambda text: [text, other])
    assert choose_attention([CASE], "", "cpu", ranks) == "padded_attention"
    assert "attention: rank 1: row_attention has an error; padded" in capsys.readouterr().err
    monkeypatch.setattr(attention, "row_attention", fails)
    assert choose_attention([CASE], "", "cpu", ONE_PROCESS) == "padded_attention"
    assert capsys.readouterr().err.startswith(
        "warning: attention: row_attention failed: no kernel image; padded_attention is used"
    )
    monkeypatch.setattr(attention, "padded_attention", fails)
    with pytest.raises(ConfigError, match=r"on cpu: row_attention failed: .*; padded_attention fa"):
        choose_attention([CASE], "", "cpu", ONE_PROCESS)


def test_the_recorded_kernel_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless it is no candidate; nothing is computed on the null device."""
    assert choose_attention([CASE], "padded_attention", "cpu", ONE_PROCESS) == "padded_attention"
    assert choose_attention([CASE], "sdpa", "cpu", ONE_PROCESS) == "row_attention"
    monkeypatch.setattr(attention, "row_attention", fails)
    assert choose_attention([CASE], "", NULL, ONE_PROCESS) == "row_attention"


def test_another_device_chooses_again(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    earlier = read_record(trained / "1x16")
    assert recorded_attention(earlier, "cpu", True) == "row_attention"
    assert not capsys.readouterr().out
    assert not recorded_attention(earlier, "NVIDIA H200", True)
    said = "attention: the run used row_attention on cpu; choosing again on NVIDIA H200\n"
    assert capsys.readouterr().out == said
    on_gpu = replace(earlier, attention="flash_attention", device="NVIDIA A100")
    assert recorded_attention(on_gpu, "NVIDIA H200", False) == "flash_attention"


def test_a_resumed_run_attends_by_what_run_json_says(
    trained: Path, arguments: Arguments, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained / "1x16", run)
    content = json.loads((run / "run.json").read_text())
    asked = job(monkeypatch, arguments(run, **NO_DROPOUT))

    def taken() -> RunRecord:
        record, data = start.open_run(asked, alone())
        cases = attention_cases(asked.run, data.phases, torch.device("cpu"))
        assert [(case.longest, case.tokens, case.dropout) for case in cases] == [(32, 512, 0.0)]
        kernel = choose_attention(cases, record.attention, record.device, ONE_PROCESS)
        return replace(record, attention=kernel)

    assert content["attention"] == taken().attention == "row_attention"
    (run / "run.json").write_text(json.dumps(content | {"attention": "padded_attention"}))
    assert taken().attention == "padded_attention"


def test_every_encoder_attends_by_the_chosen_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """In training; without a gradient a CPU follows the table."""
    used: list[int] = []
    computes = attention.padded_attention

    def noted(*given: Any) -> Tensor:
        used.append(1)
        return computes(*given)

    monkeypatch.setattr(attention, "padded_attention", noted)
    model = build_model(recipe("electra_tiny"), 0)
    attend_by(model, "padded_attention")
    for encoder in model.encoders():
        given = torch.arange(5, 17), pieces_of([12])
        encoder(*given)
        assert len(used) == len(encoder.order)
        with torch.no_grad():
            encoder(*given)
        assert len(used) == len(encoder.order)
        used.clear()
