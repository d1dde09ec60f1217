"""The encoder computes each piece as if it were alone; weights follow their table and seed."""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter

from model.encoder import MOST_GRAPHS, Encoder, initialize, sinusoids
from model.objectives.masked_language import MaskedLanguageModel
from model.objectives.replaced_tokens import ReplacedTokenModel
from model.pieces import Pieces, pieces_of
from tests.model.conftest import TOY

MIXED = [12, 7, 1, 9, 3]


def drawn(kind: torch.dtype = torch.float32) -> Encoder:
    encoder = Encoder(replace(TOY, segment_types=2))
    initialize(encoder, encoder.config, seed=0)
    return encoder.to(kind)


@pytest.mark.parametrize("lengths", [[8, 8, 8], MIXED], ids=["equal", "mixed"])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_traps_32_pieces_equal_the_pieces_alone(kind: torch.dtype, lengths: list[int]) -> None:
    """Vectors, with and without a gradient, and the gradients of all parameters."""
    together, apart = drawn(kind), drawn(kind)
    torch.manual_seed(0)
    ids, segments = torch.randint(5, 300, (sum(lengths),)), torch.randint(2, (sum(lengths),))
    found = together(ids, pieces_of(lengths), segments)
    rows = zip(ids.split(lengths), segments.split(lengths), strict=True)
    expected = torch.cat([apart(row, pieces_of([len(row)]), types) for row, types in rows])
    tolerance = 1e-5 if kind == torch.float32 else 1e-12
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)
    with torch.no_grad():
        alone = together(ids, pieces_of(lengths), segments)
    torch.testing.assert_close(alone, expected, rtol=0, atol=tolerance)
    direction = torch.randn(found.shape, dtype=kind)
    (found * direction).sum().backward()
    (expected * direction).sum().backward()
    for mine, other in zip(together.parameters(), apart.parameters(), strict=True):
        assert mine.grad is not None and other.grad is not None
        largest = float(other.grad.abs().max())
        torch.testing.assert_close(mine.grad, other.grad, rtol=0, atol=tolerance * (1 + largest))


@pytest.mark.parametrize("lengths", [[12] * 4, [12, 5, 7, 12, 3]], ids=["equal", "mixed"])
@pytest.mark.parametrize("sharing", ["none", "all"])
def test_one_place_per_piece_has_the_vector_it_has_among_all(
    sharing: Literal["none", "all"], lengths: list[int]
) -> None:
    encoder = Encoder(replace(TOY, sharing=sharing)).eval()
    initialize(encoder, encoder.config, seed=0)
    ids, pieces = torch.randint(5, 300, (sum(lengths),)), pieces_of(lengths)
    places = pieces.cu_seqlens[:-1].long() + torch.tensor([0, 4, 3, 6, 2])[: len(lengths)]
    for kind, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
        encoder.to(kind)
        expected = encoder(ids, pieces)[places]
        found = encoder(ids, pieces, places_P=places)
        torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)


def drawn_matrices(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Names and matrices, without the words that pad the vocabulary."""
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            yield name, parameter[: 300 if "words" in name else None]


def test_initial_weights_follow_the_table() -> None:
    config = replace(TOY, width=128, embedding_width=128, feed_forward=512)
    model = MaskedLanguageModel(config, seed=3)
    for name, drawn in drawn_matrices(model):
        if drawn.numel() > 10_000:
            assert drawn.std().item() == pytest.approx(0.12, rel=0.03), name
            assert drawn.mean().item() == pytest.approx(0.0, abs=0.01), name
    vectors = {name: each for name, each in model.named_parameters() if each.dim() != 2}
    norms = {name for name in vectors if "norm" in name and name.endswith("weight")}
    for name, vector in vectors.items():
        assert torch.equal(vector, torch.full(vector.shape, float(name in norms))), name
    assert len(norms) == 2 * TOY.layers + 2
    words = model.encoder.embeddings.words.weight
    assert words.shape == (384, 128) and not words[300:].any() and words[:300].any(dim=1).all()


def test_truncated_normal_weights_stay_within_two_deviations() -> None:
    """As tf.truncated_normal: the deviation is 0.8796 of the nominal one; tolerance 1 % of 40,000
    draws, whose standard error is 0.3 %."""
    config = replace(TOY, width=128, embedding_width=64, feed_forward=512)
    model = MaskedLanguageModel(config, seed=3, initializer="truncated_normal")
    for name, drawn in drawn_matrices(model):
        assert drawn.abs().max() <= 0.24, name
        if drawn.numel() > 40_000:
            assert drawn.std().item() == pytest.approx(0.8796 * 0.12, rel=0.01), name
            assert drawn.abs().max() > 0.2399 * 0.99, name
            inside = float((drawn.abs() < 0.12).float().mean())
            assert inside == pytest.approx(0.6827 / 0.9545, abs=0.01), name
    narrow = model.encoder.projection.weight
    assert isinstance(narrow, Tensor)
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
            assert isinstance(drawn, Tensor)
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


def test_megatron_draws_what_is_added_smaller_with_depth() -> None:
    """As transformers' ModernBERT: 0.12 / sqrt(2 x 8 layers) for outputs of layers and the head,
    cut at two deviations; tolerance 2 % of 9,000 draws and more."""
    config = replace(TOY, width=96, embedding_width=96, feed_forward=192, layers=8)
    model = MaskedLanguageModel(config, seed=3, initializer="megatron")
    small = (".attention.output.weight", ".feed_forward.outer.weight", "head.dense.weight")
    for name, drawn in drawn_matrices(model):
        if "segments" not in name and "positions" not in name:
            deviation = 0.03 if name.endswith(small) else 0.12
            assert drawn.std().item() == pytest.approx(0.8796 * deviation, rel=0.02), name
            assert drawn.abs().max() <= 2.0001 * deviation, name


def test_a_seed_fixes_the_weights() -> None:
    torch.manual_seed(1)
    first = MaskedLanguageModel(TOY, seed=3)
    torch.manual_seed(2)
    again, other = MaskedLanguageModel(TOY, seed=3), MaskedLanguageModel(TOY, seed=4)
    for ours, same, different in zip(first.parameters(), again.parameters(), other.parameters()):
        assert torch.equal(ours, same)
        assert ours.dim() == 1 or not torch.equal(ours, different)


MODERN_LAYERS = {
    "layers": 4, "position_kind": "rotary", "norm": "pre", "gated": True, "biases": False,
    "position_offset": 0, "global_every": 3,
}  # fmt: skip
DROPPING = {"dropout": 0.1, "attention_dropout": 0.1}


@pytest.mark.parametrize(
    ("designs", "graphs"),
    [
        ([DROPPING, DROPPING | {"width": 24, "embedding_width": 24}], 4),
        ([MODERN_LAYERS | {"window": 4}], 3),
        ([MODERN_LAYERS], 2),
    ],
    ids=["two encoders, as ELECTRA has", "with and without a window", "without windows"],
)
def test_layers_compile_to_one_graph_each_way_they_are_used(
    designs: list[dict[str, Any]], graphs: int
) -> None:
    """And embeddings too, in training and evaluation; in bf16 on the meta device, which takes the
    path of a GPU. A modern first layer is like the others, though its two inputs are one."""
    torch._dynamo.reset()
    counter, ids = CompileCounter(), torch.empty(24, dtype=torch.int64, device="meta")
    encoders = [Encoder(replace(TOY, **design)).to("meta").bfloat16() for design in designs]
    for encoder in encoders:
        encoder.compile_layers(counter)
    for _ in range(2):
        for encoder, bounds in product(encoders, ([0, 12, 24, 24], [0, 5, 12, 24])):
            pieces = Pieces(torch.tensor(bounds, dtype=torch.int32, device="meta"), 12)
            encoder.train()(ids, pieces).float().sum().backward()
            with torch.no_grad():
                encoder.eval()(ids, pieces)
        assert counter.frame_count == 2 * graphs <= MOST_GRAPHS
    torch._dynamo.reset()


@pytest.mark.parametrize("design", [{}, MODERN_LAYERS, {"sharing": "all"}])
def test_keys_decide_what_is_dropped_in_any_batch(design: dict[str, Any]) -> None:
    """The pieces of a batch in another order and alone, as on other ranks."""
    encoder = Encoder(replace(TOY, dropout=0.3, **design)).train()
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(5, TOY.vocab_size, (20,), generator=generator)
    keys = torch.randint(-(2**31), 2**31, (20,), generator=generator, dtype=torch.int32)

    def hidden(*taken: slice) -> list[Tensor]:
        own, its = (torch.cat([each[part] for part in taken]) for each in (ids, keys))
        lengths = [part.stop - part.start for part in taken]
        found: Tensor = encoder(own, pieces_of(lengths), dropout_keys_T=its)
        return list(found.split(lengths))

    first, second = slice(0, 8), slice(8, 20)
    one, two = hidden(first, second)
    for found in (hidden(second, first)[::-1], hidden(first) + hidden(second)):
        torch.testing.assert_close(found, [one, two], rtol=0, atol=1e-5)
    keys = keys.flip(0)
    assert not torch.allclose(hidden(first)[0], one, atol=0.01)
