"""The encoder: full rows need no mask, and initial weights follow their table and seed."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from model.encoder import MOST_GRAPHS, Encoder, initialize, sinusoids
from model.objectives.masked_language import MaskedLanguageModel
from model.objectives.replaced_tokens import ReplacedTokenModel
from tests.model.conftest import TOY


def test_full_rows_equal_no_lengths() -> None:
    encoder = Encoder(TOY)
    initialize(encoder, TOY, seed=0)
    ids = torch.randint(5, 300, (2, 12))
    full = encoder(ids, torch.tensor([12, 12]))
    assert torch.equal(full, encoder(ids, None))
    assert not torch.equal(full[1], encoder(ids, torch.tensor([12, 7]))[1])


def test_traps_32_a_short_row_equals_the_row_alone() -> None:
    encoder = Encoder(TOY)
    initialize(encoder, TOY, seed=0)
    ids = torch.randint(5, 300, (2, 12))
    both = encoder(ids, torch.tensor([12, 7]))
    torch.testing.assert_close(both[1:, :7], encoder(ids[1:, :7], None), rtol=0, atol=1e-5)


@pytest.mark.parametrize("sharing", ["none", "all"])
def test_one_place_per_row_has_the_vector_it_has_among_all(
    sharing: Literal["none", "all"],
) -> None:
    encoder = Encoder(replace(TOY, sharing=sharing)).eval()
    initialize(encoder, encoder.config, seed=0)
    ids, places = torch.randint(5, 300, (4, 12)), torch.tensor([0, 11, 3, 6])
    for lengths in (None, torch.tensor([12, 12, 7, 9])):
        expected = encoder(ids, lengths)[torch.arange(4), places]
        found = encoder(ids, lengths, places_B=places)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_segments_reach_the_embeddings() -> None:
    encoder = Encoder(replace(TOY, segment_types=2))
    initialize(encoder, encoder.config, seed=0)
    ids = torch.randint(5, 300, (1, 12))
    assert torch.equal(encoder(ids, None, torch.zeros_like(ids)), encoder(ids, None))
    assert not torch.equal(encoder(ids, None, torch.ones_like(ids)), encoder(ids, None))


def test_initial_weights_follow_the_table() -> None:
    config = replace(TOY, width=128, embedding_width=128, feed_forward=512)
    model = MaskedLanguageModel(config, seed=3)
    norms = 0
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            drawn = parameter[: 300 if "words" in name else None]
            if drawn.numel() > 10_000:
                assert drawn.std().item() == pytest.approx(0.12, rel=0.03), name
                assert drawn.mean().item() == pytest.approx(0.0, abs=0.01), name
        elif "norm" in name and name.endswith("weight"):
            assert torch.equal(parameter, torch.ones(128)), name
            norms += 1
        else:
            assert not parameter.any(), name
    assert norms == 2 * TOY.layers + 2
    words = model.encoder.embeddings.words.weight
    assert words.shape == (384, 128) and not words[300:].any() and words[:300].any(dim=1).all()


def test_truncated_normal_weights_stay_within_two_deviations() -> None:
    """As tf.truncated_normal: the deviation is 0.8796 of the nominal one; tolerance 1 % of 40,000
    draws, whose standard error is 0.3 %."""
    config = replace(TOY, width=128, embedding_width=64, feed_forward=512)
    model = MaskedLanguageModel(config, seed=3, initializer="truncated_normal")
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            drawn = parameter[: 300 if "words" in name else None]
            assert drawn.abs().max() <= 0.24, name
            if drawn.numel() > 40_000:
                assert drawn.std().item() == pytest.approx(0.8796 * 0.12, rel=0.01), name
                assert drawn.abs().max() > 0.2399 * 0.99, name
                inside = float((drawn.abs() < 0.12).float().mean())
                assert inside == pytest.approx(0.6827 / 0.9545, abs=0.01), name
    narrow = model.encoder.projection.weight
    assert isinstance(narrow, torch.Tensor)
    assert narrow.std().item() == pytest.approx(0.8796 * 0.12, rel=0.03)


def test_two_layers_of_electra_have_glorots_law() -> None:
    """Uniform within sqrt(6 / (in + out)): deviation 0.0722 for 128 -> 256 and 0.0510 for 768 -> 1,
    within four standard errors; all others are truncated normal."""
    small = replace(TOY, width=256, embedding_width=128)
    wide = replace(TOY, width=768, embedding_width=768, layers=1)
    for config, deviation in ((small, 0.0722), (wide, 0.0510)):
        generator = replace(config, layers=1)
        model = ReplacedTokenModel(
            config, generator, weight=1.0, seed=3, initializer="truncated_normal_glorot"
        )
        assert model.generator is not None
        found = [model.detection.output.weight]
        if config is small:
            found = [model.encoder.projection.weight, model.generator.projection.weight]
        for drawn in found:
            assert isinstance(drawn, torch.Tensor)
            error = 4 * 0.4472 / drawn.numel() ** 0.5  # of a uniform law's deviation, relative
            assert drawn.std().item() == pytest.approx(deviation, rel=error)
            assert drawn.abs().max() <= deviation * 3**0.5 * 1.001
        dense = model.detection.dense.weight
        assert dense.std().item() == pytest.approx(0.8796 * 0.12, rel=0.02)
        assert dense.abs().max() <= 0.24
    normal = ReplacedTokenModel(wide, None, weight=1.0, seed=3)
    assert normal.detection.output.weight.std().item() == pytest.approx(0.12, rel=0.11)


def test_positions_may_start_as_sinusoids() -> None:
    """sin and cos of position x frequency: the product of two rows depends on their distance alone;
    all else is normal."""
    config = replace(TOY, width=64, embedding_width=64, heads=2)
    model = MaskedLanguageModel(config, seed=3, initializer="normal_sinusoidal")
    table = model.encoder.embeddings.positions.weight.detach()
    assert table[3, 0] == pytest.approx(0.12 * 2**0.5 * math.sin(3), rel=1e-5)  # frequency 1
    assert table[3, 63] == pytest.approx(0.12 * 2**0.5 * math.cos(3 / len(table)), rel=1e-5)
    assert table.square().mean().sqrt() == pytest.approx(0.12, rel=1e-5)
    products = table @ table.T
    for distance in (0, 1, 5):
        band = products.diagonal(distance)
        torch.testing.assert_close(band, band[:1].expand_as(band), rtol=1e-4, atol=1e-5)
    assert products[0, 1] > products[0, 5]
    drawn = model.encoder.embeddings.words.weight[:300]
    assert drawn.std().item() == pytest.approx(0.12, rel=0.02)
    assert sinusoids(5, 7).shape == (5, 7)


def test_a_seed_fixes_the_weights() -> None:
    torch.manual_seed(1)
    first = MaskedLanguageModel(TOY, seed=3)
    torch.manual_seed(2)
    again, other = MaskedLanguageModel(TOY, seed=3), MaskedLanguageModel(TOY, seed=4)
    for ours, same, different in zip(first.parameters(), again.parameters(), other.parameters()):
        assert torch.equal(ours, same)
        assert ours.dim() == 1 or not torch.equal(ours, different)


def test_layers_compile_to_one_graph_each_way_they_are_used() -> None:
    """In bf16, where a CPU takes the path of a GPU; two encoders, as ELECTRA has."""
    torch._dynamo.reset()
    counter, ids = CompileCounter(), torch.randint(5, 300, (2, 12))
    encoders = []
    for width in (48, 24):
        config = replace(TOY, width=width, embedding_width=width, dropout=0.1)
        encoder = Encoder(config)
        initialize(encoder, config, seed=0)
        encoder.bfloat16().compile_layers(counter)
        encoders.append(encoder)
    pieces = torch.tensor([0, 12, 17, 24], dtype=torch.int32)
    for expected in (12, 12):
        for encoder in encoders:
            for lengths, cu_seqlens in (
                (None, None), (torch.tensor([12, 7]), None), (None, pieces)
            ):  # fmt: skip
                encoder.train()(ids, lengths, None, cu_seqlens).float().sum().backward()
                with torch.no_grad():
                    encoder.eval()(ids, lengths, None, cu_seqlens)
        assert counter.frame_count == expected < MOST_GRAPHS
    torch._dynamo.reset()
