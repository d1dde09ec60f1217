"""`roberta_tiny` learns from context: minutes on two cores, so only `pytest -m slow` runs it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pipeline.training.saved import load_run
from tests.end_to_end.learning import mask_loss, shuffled, train, unigram_loss

BELOW_UNIGRAM, BELOW_SHUFFLED = 0.5, 0.3
TIMEOUT = 300
"""Seconds of a training: three of them in 15 minutes."""


def test_shuffling_moves_words_within_rows_and_nothing_else() -> None:
    ids = torch.arange(10, 42).view(2, 16)
    ids[:, 0], ids[:, 15], ids[1, 10:] = 0, 2, 1
    predicted = torch.tensor([3, 5, 16 + 4])
    moved = shuffled(
        ids, predicted, torch.tensor([0, 1, 2, 3, 4]), torch.Generator().manual_seed(0)
    )
    fixed = torch.isin(ids, torch.tensor([0, 1, 2]))
    fixed.view(-1)[predicted] = True
    assert torch.equal(moved[fixed], ids[fixed])
    assert torch.equal(moved.sort(dim=1).values, ids.sort(dim=1).values)
    assert (moved != ids)[~fixed].float().mean() > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_roberta_tiny_learns_from_context(tmp_path: Path, prepared: Path, seed: int) -> None:
    train("roberta_tiny", prepared, tmp_path / "run", seed, TIMEOUT)
    model = load_run(tmp_path / "run")[0].model
    unigram, learned = unigram_loss(prepared), mask_loss(model, prepared)
    confused = mask_loss(model, prepared, shuffle_seed=seed)
    print(f"seed {seed}: unigram {unigram:.3f}, model {learned:.3f}, shuffled {confused:.3f}")
    assert learned < unigram - BELOW_UNIGRAM
    assert learned < confused - BELOW_SHUFFLED
