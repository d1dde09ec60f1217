"""Which objective a run has, by the name of its kind."""

from __future__ import annotations

from collections.abc import Callable

from model.config import EncoderConfig
from model.objectives import MaskedLanguageModel
from pipeline.run import Run
from pipeline.training.plan import encoder_config

Model = MaskedLanguageModel
"""Any of them."""


def _masked_language(run: Run, config: EncoderConfig, seed: int) -> MaskedLanguageModel:
    return MaskedLanguageModel(config, seed=seed)


def _masked_language_and_pairs(run: Run, config: EncoderConfig, seed: int) -> MaskedLanguageModel:
    return MaskedLanguageModel(config, seed=seed, pair_weight=run.objective.pair_weight)


OBJECTIVES: dict[str, Callable[[Run, EncoderConfig, int], Model]] = {
    "mlm": _masked_language,
    "mlm_pair": _masked_language_and_pairs,
}
"""By `objective.kind`: from a run, what the model room calls its encoder, and a seed."""


def build_model(run: Run, seed: int) -> Model:
    """The encoder of a run with the heads of its objective; seed: of its weights."""
    return OBJECTIVES[run.objective.kind](run, encoder_config(run), seed)
