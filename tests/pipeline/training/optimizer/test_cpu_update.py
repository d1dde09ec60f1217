"""The compiled arithmetic: what it changes, and that threads and pieces do not matter."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
import torch

from pipeline.training.optimizer import cpu_update
from pipeline.training.optimizer.cpu_update import CompiledUpdate
from pipeline.training.optimizer.fragments import Fragment
from pipeline.training.optimizer.lamb_variants import AdamStep

FRAGMENTS = [
    Fragment(logical=1, start=0, flat=0, offset=3, numel=5_000),
    Fragment(logical=0, start=7, flat=0, offset=5_010, numel=1),
    Fragment(logical=2, start=0, flat=1, offset=0, numel=700),
    Fragment(logical=1, start=5_000, flat=1, offset=700, numel=4_097),
]
SIZES = (6_000, 5_000)
ADAM = AdamStep(beta1=0.9, beta2=0.99, eps=1e-6, updates=3, gradient_scale=0.5)
DECAYS = (0.5, 0.1, 0.0)
RATES = (0.1, 0.2, 0.3)


def filled(seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(size, generator=generator) for size in SIZES]


class Tensors(NamedTuple):
    """Of one update: weights, gradients and moments."""

    weights: list[torch.Tensor]
    gradients: list[torch.Tensor]
    means: list[torch.Tensor]
    squares: list[torch.Tensor]

    def update(self) -> CompiledUpdate:
        return CompiledUpdate(self.weights, list(zip(self.means, self.squares)), FRAGMENTS, DECAYS)

    def flat(self) -> list[torch.Tensor]:
        return [tensor for group in self for tensor in group]


def fresh() -> Tensors:
    return Tensors(*(filled(seed) for seed in range(3)), [tensor.abs() for tensor in filled(3)])


def step() -> tuple[Tensors, torch.Tensor]:
    """The tensors and [2, pieces] squares after one LAMB step."""
    tensors = fresh()
    update = tensors.update()
    norms = update.advance(tensors.gradients, ADAM).clone()
    whole = torch.zeros(2, 3, dtype=torch.float64).index_add_(1, update.owners, norms)
    update.apply(tensors.gradients, RATES)
    return tensors, whole


def test_one_step_by_numpy() -> None:
    before = [filled(seed) for seed in range(4)]
    after, norms = step()
    sums = np.zeros((2, 3))
    for part in FRAGMENTS:
        inside = slice(part.offset, part.offset + part.numel)
        w, g, m, v = (group[part.flat][inside].double().numpy() for group in before)
        m = 0.9 * m + 0.1 * (0.5 * g)
        v = 0.99 * np.abs(v) + 0.01 * (0.5 * g) ** 2
        u = m / (1 - 0.9**3) / (np.sqrt(v / (1 - 0.99**3)) + 1e-6) + DECAYS[part.logical] * w
        expected = (w - RATES[part.logical] * u, u, m, v)
        for found, values in zip(after, expected):
            np.testing.assert_allclose(found[part.flat][inside], values, rtol=1e-4, atol=1e-6)
        sums[:, part.logical] += (w**2).sum(), (u**2).sum()
    np.testing.assert_allclose(norms, sums, rtol=1e-6)


def test_relative_gradients_by_numpy() -> None:
    """The sums of StableAdamW; the rest is LAMB's first pass."""
    tensors, lamb, adam = fresh(), fresh(), replace(ADAM, eps=0.5)
    update = tensors.update()
    found = update.advance_relative(tensors.gradients, adam)
    whole = torch.zeros(1, 3, dtype=torch.float64).index_add_(1, update.owners, found)
    lamb.update().advance(lamb.gradients, adam)
    assert all(map(torch.equal, tensors.flat(), lamb.flat()))
    sums = np.zeros((1, 3))
    for part in FRAGMENTS:
        inside = slice(part.offset, part.offset + part.numel)
        g, v = (group[part.flat][inside].double().numpy() for group in (filled(1), tensors.squares))
        sums[0, part.logical] += ((0.5 * g) ** 2 / np.maximum(v / (1 - 0.99**3), 0.5**2)).sum()
    np.testing.assert_allclose(whole, sums, rtol=1e-6)


def test_nothing_between_the_fragments_is_touched() -> None:
    inside = [torch.zeros(size, dtype=torch.bool) for size in SIZES]
    for part in FRAGMENTS:
        inside[part.flat][part.offset : part.offset + part.numel] = True
    for seed, group in enumerate(step()[0][:3]):
        for mask, tensor, original in zip(inside, group, filled(seed), strict=True):
            assert torch.equal(tensor[~mask], original[~mask])
            assert not torch.isclose(tensor[mask], original[mask], rtol=1e-9).all()


def test_at_once_is_the_same_step() -> None:
    once, lamb = fresh(), fresh()
    once.update().advance_and_apply(once.gradients, ADAM, 0.1)
    apart = lamb.update()
    apart.advance(lamb.gradients, ADAM)
    apart.apply(lamb.gradients, [0.1] * 3)
    expected = lamb._replace(gradients=filled(1))  # the gradients are as given
    assert all(map(torch.equal, once.flat(), expected.flat()))


@pytest.mark.parametrize("piece,job", [(2**18, 2**21), (100, 500), (4_099, 1)])
def test_threads_change_nothing(monkeypatch: pytest.MonkeyPatch, piece: int, job: int) -> None:
    expected, norms = step()
    monkeypatch.setattr(cpu_update, "PIECE", piece)
    monkeypatch.setattr(cpu_update, "JOB", job)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        found, their_norms = step()
    finally:
        torch.set_num_threads(threads)
    assert all(map(torch.equal, found.flat(), expected.flat()))
    torch.testing.assert_close(their_norms, norms, rtol=1e-12, atol=0)


def test_jobs_cover_every_piece_once() -> None:
    whole = cpu_update.JOB
    for numels in ([5], [whole, 1, 1], [whole // 2] * 7, [1] * 9, [3 * whole] * 2):
        jobs = cpu_update._jobs(np.array(numels))
        assert [place for first, last in jobs for place in range(first, last)] == [
            *range(len(numels))
        ]


def test_gradient_square_is_of_the_fragments_alone_and_a_rank_may_have_none() -> None:
    weights, gradients, moments = filled(0), filled(1), list(zip(filled(2), filled(3)))
    update = CompiledUpdate(weights, moments, FRAGMENTS, DECAYS)
    expected = sum(
        float(gradients[part.flat][part.offset : part.offset + part.numel].double().square().sum())
        for part in FRAGMENTS
    )
    assert float(update.gradient_square(gradients)) == pytest.approx(expected, rel=1e-12)
    gradients[1][2_000] = float("nan")
    assert not torch.isfinite(update.gradient_square(gradients))
    none = CompiledUpdate(weights, moments, [], DECAYS)
    assert float(none.gradient_square(gradients)) == 0
    assert none.advance(gradients, ADAM).shape == (2, 0)
    none.apply(gradients, RATES)
    assert torch.equal(weights[0], filled(0)[0])
