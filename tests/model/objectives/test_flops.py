"""FLOPs and parameters, against published counts and against torch's own counter."""

from dataclasses import replace
from math import prod
from typing import Any, Literal

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from model.hugging_face.conversion import logical_parameters
from model.objectives.flops import (
    attention_flops,
    detection_flops,
    detection_parameters,
    parameter_count,
    step_flops,
)
from model.objectives.masked_language import Inputs, MaskedLanguageModel
from model.objectives.replaced_tokens import PARTS, ReplacedTokenModel
from pipeline.planning.phase_plan import encoder_config
from pipeline.recipes.roberta import roberta_base, roberta_large
from tests.model.conftest import MASK_ID, TOY, toy_batch, toy_model
from tests.model.test_rotary import MODERN


def counted_flops(model: MaskedLanguageModel, **given: Any) -> int:
    """torch's count for three sequences of 40 tokens, 8 of which are predicted."""
    inputs = Inputs(**toy_batch([40, 40, 40]), mask_id=MASK_ID, **given)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        model(inputs)
    return counter.get_total_flops()


def test_a_sequence_of_roberta() -> None:
    """0.308 and 1.029 TFLOP with 15 % predicted, by hand: layers x (24 D^2 + 4 S D) + head."""
    base, large = (
        step_flops(encoder_config(run), sequences=1, sequence_length=512, predictions=77)
        for run in (roberta_base(), roberta_large())
    )
    token, word = 12 * (24 * 768**2 + 4 * 512 * 768), 2 * (768**2 + 50_265 * 768)
    assert base == 3 * (512 * token + 77 * word)
    assert (base, large) == pytest.approx((0.308e12, 1.029e12), rel=5e-3)


@pytest.mark.parametrize("length", [1, 4, 5, 40])
def test_a_window_costs_the_pairs_within_it(length: int) -> None:
    """Against a mask; layers 0 and 3 of four see all."""
    distance = (torch.arange(length)[:, None] - torch.arange(length)).abs()
    pairs = 2 * int((distance <= 3).sum()) + 2 * length**2
    assert attention_flops(MODERN, length) == 4 * MODERN.width * pairs


@pytest.mark.parametrize("sharing", ["none", "all", "attention", "feed_forward"])
def test_a_factorised_model_of_shared_layers_with_pairs(sharing: Literal["none", "all"]) -> None:
    """Stored parameters and computed FLOPs equal torch's own count of both, except padding words,
    which torch counts and model FLOPs do not include."""
    groups = 1 if sharing == "none" else 2
    config = replace(TOY, embedding_width=16, position_offset=0, layers=4)
    config = replace(config, sharing=sharing, groups=groups)
    model = MaskedLanguageModel(config, seed=0, pair_weight=1.0)
    stored = sum(prod(piece.shape) for piece in logical_parameters(model))
    assert parameter_count(config, pair_head=True) == stored
    pairs = {"row_starts_R": torch.arange(3) * 40, "pair_labels_R": torch.zeros(3).long()}
    size = {"sequences": 3, "sequence_length": 40, "predictions": 8}
    ours = step_flops(config, **size, pair_head=True) // 3
    assert counted_flops(model, **pairs) == ours + 2 * 8 * (384 - 300) * 16
    ours = step_flops(TOY, **size) // 3
    assert counted_flops(toy_model()) == ours + 2 * 8 * (384 - 300) * TOY.width


@pytest.mark.parametrize("embedding_width", [32, 48])
def test_other_heads_are_counted(embedding_width: int) -> None:
    """Parameters equal those of the modules."""
    config = replace(TOY, position_offset=0, segment_types=2, embedding_width=embedding_width)
    generator = replace(config, width=24, heads=2, feed_forward=96, layers=1)
    alone = replace(generator, embedding_width=24)
    words = config.padded_vocab_size - config.vocab_size
    padding = words * (embedding_width + 1)

    def held(model: nn.Module) -> int:
        return sum(values.numel() for values in model.parameters()) - padding

    spans = MaskedLanguageModel(config, seed=0, boundary_weight=1.0)
    assert parameter_count(config, boundary_head=True) == held(spans) - words
    for kind in PARTS:
        bias = words if "mlm" in kind else 0
        for own in (generator, None):
            model = ReplacedTokenModel(config, own, weight=50.0, seed=0, kind=kind)
            counted = detection_parameters(config, own or config, tied=own is None, kind=kind)
            assert counted == held(model) - bias
        apart = {"kind": kind, "own_embeddings": True}
        model = ReplacedTokenModel(config, alone, weight=1.0, seed=0, **apart)
        counted = detection_parameters(config, alone, tied=False, **apart)
        assert counted == held(model) - bias - words * 24


def test_flops_of_other_heads_are_those_of_their_products() -> None:
    config = replace(TOY, embedding_width=32)
    generator = replace(config, width=24, heads=2, feed_forward=96, layers=1)
    size = {"sequences": 3, "sequence_length": 40}
    alone = step_flops(config, **size, predictions=7)
    spans = step_flops(config, **size, predictions=7, boundary_head=True)
    assert spans - alone == 3 * 7 * 2 * ((2 * 48 + 200) * 48 + 48 * 32 + 300 * 32)
    parts = step_flops(generator, **size, predictions=7) + step_flops(config, **size, predictions=0)
    word = (48 + 300) * 32
    for kind, products in {
        "rtd": 3 * 40 * 2 * (48 * 48 + 48),
        "rtd_masked": 7 * 2 * (48 * 48 + 48),
        "replace_mlm": 7 * 2 * word,
        "all_tokens_mlm": 3 * 40 * 2 * (word + 48),
    }.items():
        both = detection_flops(config, generator, **size, predictions=7, kind=kind)
        assert both - parts == 3 * products, kind
