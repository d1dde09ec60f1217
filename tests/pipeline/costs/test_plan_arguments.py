from __future__ import annotations

import sys
from typing import get_args

import pytest

from pipeline.base.errors import ConfigError
from pipeline.costs.estimate import Basis
from pipeline.costs.plan_arguments import parse_plan


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("roberta_tiny --cpu", "one of the arguments --data --tokens is required"),
        ("roberta_tiny --tokens 1e6", "one of the arguments --gpu --cpu is required"),
        ("roberta_tiny --tokens 1e6 --cpu --gpu h100", "not allowed with argument"),
        ("roberta_tiny --tokens 1e6 --gpu v100", "invalid choice: 'v100'"),
    ],
)
def test_a_plan_needs_data_and_a_device(
    monkeypatch: pytest.MonkeyPatch, words: str, why: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["plan", *words.split()])
    with pytest.raises(ConfigError, match=why):
        parse_plan()


def test_help_names_every_basis_of_a_figure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["plan", "--help"])
    with pytest.raises(SystemExit):
        parse_plan()
    said = " ".join(capsys.readouterr().out.split())
    assert "whether it is computed, published, estimated or measured here, and" in said
    assert set(get_args(Basis)) == {"computed", "published", "estimated", "measured here"}
