"""Dropout: the right share and scale, by a hash that is equal everywhere, and by drawn bits."""

import numpy as np
import pytest
import torch
from torch import Tensor

from model.dropout import Dropout, drop, kept_scale, keys_of_places, random_int16, threshold

KEYS = torch.tensor([0, 1, -1, -(2**31), 2**31 - 1, 12_345_678], dtype=torch.int32)


def mixed(bits: np.ndarray) -> np.ndarray:
    """MurmurHash3's finalizer as published, on unsigned numbers."""
    bits = (bits ^ (bits >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    bits = (bits ^ (bits >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return bits ^ (bits >> np.uint32(16))


def unmixed(hashes: np.ndarray) -> np.ndarray:
    """The bits of which these are the hashes."""
    bits = hashes ^ (hashes >> np.uint32(16))
    bits = bits * np.uint32(pow(0xC2B2AE35, -1, 2**32))
    bits = bits ^ (bits >> np.uint32(13)) ^ (bits >> np.uint32(26))
    bits = bits * np.uint32(pow(0x85EBCA6B, -1, 2**32))
    return bits ^ (bits >> np.uint32(16))


def draw(tokens: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-(2**31), 2**31, (tokens,), generator=generator, dtype=torch.int32)


def is_kept(keys: Tensor, width: int, probability: float) -> Tensor:
    return Dropout(probability)(torch.ones(len(keys), width), keys) > 0


@pytest.mark.parametrize("width", [1, 7, 70_000], ids=["one", "odd", "wider than a block"])
@pytest.mark.parametrize("probability", [0.1, 0.5])
def test_kept_numbers_are_those_of_the_published_hash(width: int, probability: float) -> None:
    columns = np.arange(width, dtype=np.uint32)
    hashes = mixed(KEYS.numpy().view(np.uint32)[:, None] ^ columns).view(np.int32).astype(np.int64)
    wanted = hashes >= round(probability * 2**32) - 2**31
    assert np.array_equal(is_kept(KEYS, width, probability).numpy(), wanted)


@pytest.mark.parametrize("probability", [0.1, 0.5, 2**-24])
def test_the_rate_is_exact(probability: float) -> None:
    """The keys whose hashes are on both sides of the threshold: the hash is a bijection, so the
    share below is the threshold, at most 2^-33 from the probability."""
    dropped = round(probability * 2**32)
    sides = np.array([dropped - 1, dropped, 0, 2**32 - 1], np.uint32) ^ np.uint32(2**31)
    keys = torch.from_numpy(unmixed(sides).view(np.int32))
    assert np.array_equal(mixed(unmixed(sides)), sides)
    value = torch.ones(4, 1, dtype=torch.float64)
    assert Dropout(probability)(value, keys).flatten().tolist() == pytest.approx(
        [0, 2**32 / (2**32 - dropped), 0, 2**32 / (2**32 - dropped)], rel=2**-24, abs=0
    )


def test_places_hash_the_keys_with_their_numbers() -> None:
    numbers = np.arange(1, 4, dtype=np.uint32)[:, None] * np.uint32(2654435761)
    wanted = mixed(KEYS.numpy().view(np.uint32) ^ numbers).view(np.int32)
    assert np.array_equal(keys_of_places(KEYS, 3).numpy(), wanted)


def test_a_block_of_tokens_changes_nothing() -> None:
    keys = draw(1000)
    whole = is_kept(keys, 500, 0.1)
    parts = torch.cat([is_kept(part, 500, 0.1) for part in keys.split(7)])
    assert torch.equal(whole, parts)


@pytest.mark.parametrize("probability", [0.1, 0.3])
def test_shares_are_independent(probability: float) -> None:
    """Of components, of neighbours in both directions, and of places: within 4.5 deviations."""
    tokens, width, places = 4000, 256, 4
    kept = torch.stack(
        [is_kept(keys, width, probability) for keys in keys_of_places(draw(tokens), places)]
    )
    off = kept.double() - (1 - probability)
    variance = probability * (1 - probability)
    mean = off.mean().item()
    assert abs(mean) < 4.5 * (variance / off.numel()) ** 0.5
    # A chi-square of the components, whose mean is their number and variance twice that.
    chi = (off.sum(1) ** 2 / (tokens * variance)).sum().item()
    count = places * width
    assert abs(chi - count) < 4.5 * (2 * count) ** 0.5
    pairs = (
        (off[:, :, 1:], off[:, :, :-1]),
        (off[:, :, 2:], off[:, :, :-2]),
        (off[:, 1:], off[:, :-1]),
        (off[1:], off[:-1]),
        (off[3], off[0]),
    )
    for one, other in pairs:
        assert abs((one * other).mean().item()) < 4.5 * variance / one.numel() ** 0.5


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_the_gradient_and_the_mean_are_scaled(kind: torch.dtype) -> None:
    value = torch.ones(2000, 512, dtype=kind, requires_grad=True)
    dropped = Dropout(0.1)(value, draw(2000))
    assert dropped.dtype == kind
    # The deviation of the mean of a million numbers is 0.0003; of 1 / 0.9 in bfloat16 it is 0.002.
    assert dropped[dropped > 0].unique().tolist() == [torch.tensor(1 / 0.9).to(kind).item()]
    dropped.backward(torch.full_like(dropped, 2.0))
    assert value.grad is not None
    assert torch.equal(value.grad, torch.where(dropped > 0, torch.tensor(2 / 0.9).to(kind), 0))


def test_without_keys_torch_draws_and_evaluation_has_no_dropout() -> None:
    value, dropout = torch.randn(50, 7, 3), Dropout(0.3)
    torch.manual_seed(5)
    first = dropout(value)
    torch.manual_seed(5)
    assert torch.equal(dropout(value), first) and not torch.equal(dropout(value), first)
    assert dropout.eval()(value) is value
    assert Dropout(0.3, applies=False)(value) is value


@pytest.mark.parametrize("probability", [0.1, 0.5])
def test_drawn_bits_drop_their_share_and_keep_the_mean(probability: float) -> None:
    torch.manual_seed(0)
    ones = torch.ones(1000, 1000, requires_grad=True)
    dropped = drop(ones, probability)
    share = (dropped == 0).float().mean().item()
    # a million draws: the standard deviation of the share is at most 0.0005
    assert share == pytest.approx(probability, abs=0.002)
    assert dropped.max().item() == pytest.approx(1 / (1 - probability), rel=2e-5)
    dropped.sum().backward()
    assert ones.grad is not None and torch.equal(ones.grad, dropped)


def test_scale_is_that_of_the_rounded_probability() -> None:
    kept = 65_536 - (threshold(0.1) + 32_768)
    assert kept * kept_scale(0.1) == pytest.approx(65_536, rel=1e-12)


def test_draws_are_uniform_over_all_16_bits() -> None:
    torch.manual_seed(0)
    draws = random_int16((4, 250_000))
    assert (draws.min().item(), draws.max().item()) == (-32_768, 32_767)
    for place in range(4):  # each of the four numbers of a 64-bit draw
        assert draws.flatten()[place::4].float().mean().item() == pytest.approx(-0.5, abs=150)
    assert random_int16((3, 5)).shape == (3, 5)
