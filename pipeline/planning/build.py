"""The model of each kind of objective, and what is compiled of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from model.config import EncoderConfig
from model.hugging_face.conversion import Model
from model.objectives.masked_language import MaskedLanguageModel
from model.objectives.replaced_tokens import PARTS, Kind, ReplacedTokenModel
from model.objectives.span_boundary import SpanBoundaryHead
from model.objectives.word_heads import MaskedLanguageHead, compiled_word_losses
from pipeline.config.run import Run
from pipeline.config.training_settings import GENERATOR_KINDS
from pipeline.loading.compatibility import runs_of
from pipeline.planning.phase_plan import encoder_config, generator_config


def _build_masked_language(run: Run, config: EncoderConfig, seed: int) -> MaskedLanguageModel:
    return MaskedLanguageModel(config, seed=seed, initializer=run.encoder.initializer)


def _build_with_pairs(run: Run, config: EncoderConfig, seed: int) -> MaskedLanguageModel:
    return MaskedLanguageModel(
        config,
        seed=seed,
        initializer=run.encoder.initializer,
        pair_weight=run.objective.pair_weight,
    )


def _build_with_boundaries(run: Run, config: EncoderConfig, seed: int) -> MaskedLanguageModel:
    return MaskedLanguageModel(
        config,
        seed=seed,
        initializer=run.encoder.initializer,
        boundary_weight=run.objective.boundary_weight,
    )


def _build_replaced_tokens(run: Run, config: EncoderConfig, seed: int) -> ReplacedTokenModel:
    objective, kind = run.objective, cast(Kind, run.objective.kind)
    # The weight is that of the encoder's part; the generator's loss has weight 1.
    detects = PARTS[kind][0] == "rtd"
    return ReplacedTokenModel(
        config,
        None if objective.generator.tied else generator_config(run),
        weight=objective.detection_weight if detects else objective.words_weight,
        seed=seed,
        initializer=run.encoder.initializer,
        kind=kind,
        own_embeddings=objective.generator.embeddings == "own",
    )


OBJECTIVES: dict[str, Callable[[Run, EncoderConfig, int], Model]] = {
    "mlm": _build_masked_language,
    "mlm_pair": _build_with_pairs,
    "mlm_sbo": _build_with_boundaries,
    **dict.fromkeys(GENERATOR_KINDS, _build_replaced_tokens),
}
"""Builders by `objective.kind`: from a run, the configuration of its encoder, and a seed."""


def first_model(run: Run) -> Model:
    """The model of a run as its first phase trains it, which is what --init must fit: later phases
    may change the wavelengths of rotary positions."""
    _, _, first = runs_of(run)[0]
    return build_model(first, run.seed)


def build_model(run: Run, seed: int) -> Model:
    """The encoder of a run with the heads of its objective; seed: for its initial weights."""
    return OBJECTIVES[run.objective.kind](run, encoder_config(run), seed)


def compile_layers(
    model: Model, stage: int, backend: str | Callable[..., Any] = "inductor"
) -> None:
    """Compile embeddings, layers and the losses of words, or nothing at ZeRO stage 3.

    There a hook on every module gathers its weights, which would break a layer into 25 graphs and
    recompile each of them until torch gives up.
    """
    if stage < 3:
        for encoder in model.encoders():
            encoder.compile_layers(backend)
        for module in model.modules():
            if isinstance(module, (MaskedLanguageHead, SpanBoundaryHead)):
                module.word_losses = compiled_word_losses(backend)
