"""A model with the ids of the tiny vocabulary, for tests of what it says of sentences."""

from pipeline.config.settings import override
from pipeline.planning.build import Model, build_model
from pipeline.recipes import recipe


def small_model(family: str = "roberta", scale: float = 0.3) -> Model:
    """scale: of its weights; small ones make all words alike."""
    settings = ["data.vocab_size=2048", f"encoder.initializer_range={scale}"]
    return build_model(override(recipe(f"{family}_tiny"), settings), seed=0).eval()
