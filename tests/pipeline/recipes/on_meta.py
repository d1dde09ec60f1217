"""Models of recipes on the meta device: large ones cost no memory and no time."""

from __future__ import annotations

from math import prod

import pytest
import torch

from model.hugging_face.conversion import logical_parameters
from model.objectives import masked_language, replaced_tokens
from pipeline.config.run import Run
from pipeline.planning.build import build_model


def sizes(run: Run) -> dict[str, int]:
    """Parameter counts by their names in transformers, shared ones once."""
    with pytest.MonkeyPatch.context() as patched, torch.device("meta"):
        for module in (masked_language, replaced_tokens):
            patched.setattr(module, "initialize", lambda *_: None)
        return {part.name: prod(part.shape) for part in logical_parameters(build_model(run, 0))}
