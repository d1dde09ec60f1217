import pytest

from model.hugging_face.conversion import logical_parameters
from pipeline.config.settings import override
from pipeline.costs.shapes.parameters import logical_count, parameter_sizes
from pipeline.planning.build import build_model
from pipeline.recipes import RECIPES, recipe


@pytest.mark.parametrize("name", [name for name in RECIPES if name.endswith("_tiny")])
def test_sizes_are_those_of_the_real_model(name: str) -> None:
    run = recipe(name)
    model = build_model(run, seed=0)
    assert parameter_sizes(run) == tuple(p.numel() for p in model.parameters())
    assert logical_count(run) == len(list(logical_parameters(model)))


def test_a_large_model_takes_no_storage() -> None:
    """A million layers' worth of weights, which no machine could hold."""
    wide = override(recipe("roberta_large"), ["encoder.width=1048576", "encoder.heads=16384"])
    assert sum(parameter_sizes(wide)) > 1e14
