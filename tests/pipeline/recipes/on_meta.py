"""Models of recipes on the meta device: large ones cost no memory and no time."""

from math import prod

import pytest
import torch

from model.hugging_face.conversion import logical_parameters
from model.objectives import masked_language, replaced_tokens
from pipeline.config.run import Run
from pipeline.planning.build import build_model
from pipeline.planning.phase_plan import parameters_of


def sizes(run: Run) -> dict[str, int]:
    """Parameter counts by their names in transformers, shared ones once."""
    with pytest.MonkeyPatch.context() as patched, torch.device("meta"):
        for module in (masked_language, replaced_tokens):
            patched.setattr(module, "initialize", lambda *_: None)
        return {part.name: prod(part.shape) for part in logical_parameters(build_model(run, 0))}


def counted(run: Run, prefix: str) -> tuple[int, int]:
    """Parameters with this prefix in transformers, and all, as the plan counts them, too."""
    found = sizes(run)
    assert sum(found.values()) == parameters_of(run)
    return sum(n for name, n in found.items() if name.startswith(prefix)), parameters_of(run)
