from typing import get_args, get_type_hints

import torch

from model.objectives.word_heads import word_losses
from pipeline.config.settings import override
from pipeline.config.training_settings import ObjectiveSettings
from pipeline.planning.build import OBJECTIVES, build_model, compile_layers, first_model
from pipeline.planning.phase_plan import encoder_config
from pipeline.recipes import recipe


def test_a_run_has_the_parts_of_its_kind_with_their_weights_and_counts() -> None:
    for name, parts in (
        ("roberta_tiny", [("mlm", 1.0, "predictions")]),
        ("spanbert_tiny", [("mlm", 1.0, "predictions"), ("sbo", 1.0, "boundaries")]),
        ("electra_tiny", [("mlm", 1.0, "predictions"), ("rtd", 50.0, "tokens")]),
    ):
        assert set(OBJECTIVES) == set(get_args(get_type_hints(ObjectiveSettings)["kind"]))
        model = build_model(recipe(name), seed=0)
        assert [(part.name, part.weight, part.per) for part in model.parts] == parts
        assert model.config == encoder_config(recipe(name))


def test_the_first_model_has_the_wavelengths_of_the_first_phase() -> None:
    """Those of the folder of --init, which a later phase may make longer."""
    plain = recipe("modernbert_tiny")
    run = override(plain, [
        "encoder.rotary_base=160000", 'phases=[{"steps":9,"sequence_length":32,"sequences":8}]',
        'phases.0.settings=["encoder.rotary_base=5000"]',
    ])  # fmt: skip
    assert first_model(run).config.rotary_base == 5000
    assert build_model(run, seed=0).config.rotary_base == 160_000
    weights = first_model(plain).parameters(), build_model(plain, plain.seed).parameters()
    assert all(map(torch.equal, *weights))


def test_traps_22_settings_weigh_a_part_once() -> None:
    run = override(recipe("electra_tiny"), ["objective.detection_weight=7"])
    assert build_model(run, seed=0).parts[1].weight == 7


def test_stage_3_compiles_nothing() -> None:
    model = build_model(recipe("electra_tiny"), seed=0)
    modules = [encoder.embeddings for encoder in model.encoders()]
    modules += [layer for encoder in model.encoders() for layer in encoder.layers]
    compile_layers(model, 3, "eager")
    assert not any(module._compiled_call_impl for module in modules)
    assert model.head.word_losses is word_losses
    compile_layers(model, 2, "eager")
    assert all(module._compiled_call_impl for module in modules)
    assert model.head.word_losses is not word_losses
