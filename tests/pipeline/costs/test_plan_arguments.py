from typing import get_args

from pipeline.costs.estimate import Basis
from pipeline.costs.plan_arguments import parse_plan
from tests.pipeline.preparing import Said


def test_a_plan_needs_data_and_a_device(said: Said) -> None:
    for words, why in (
        ("roberta_tiny --cpu", "--data --tokens is required"),
        ("roberta_tiny --tokens 1e6", "--gpu --cpu is required"),
        ("roberta_tiny --tokens 1e6 --cpu --gpu h100", "not allowed"),
        ("roberta_tiny --tokens 1e6 --gpu v100", "'v100'"),
    ):
        code, line = said(parse_plan, *words.split())
        assert code == 2 and why in line


def test_help_names_every_basis_of_a_figure(said: Said) -> None:
    _, text = said(parse_plan, "--help")
    assert all(basis in " ".join(text.split()) for basis in get_args(Basis))
