"""A toy model whose biases and norms are not 0 and 1, and a batch with short rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from model.config import EncoderConfig
from model.objectives.masked_language import MaskedLanguageModel

MASK_ID = 4
TOY = EncoderConfig(
    vocab_size=300,
    layers=2,
    width=48,
    embedding_width=48,
    heads=4,
    feed_forward=96,
    sharing="none",
    groups=1,
    activation="gelu",
    dropout=0.0,
    layer_norm_eps=1e-5,
    positions=40,
    position_offset=2,
    segment_types=1,
    initializer_range=0.12,
)
LENGTHS = {"short rows": [40, 17, 2], "full rows": [40, 40, 40]}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Toy sizes do not benefit from more threads."""
    torch.set_num_threads(1)


def toy_model(dropout: float = 0.0, seed: int = 1) -> MaskedLanguageModel:
    """Vectors are drawn too, so that none is hidden by being 0 or 1; padding words stay 0."""
    model = MaskedLanguageModel(replace(TOY, dropout=dropout), seed=seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
        model.head.bias[TOY.vocab_size :] = 0
    return model


def toy_batch(lengths: list[int]) -> dict[str, Any]:
    """Fields of Inputs: 5 used slots, two of which show [MASK], and 3 unused slots."""
    generator = torch.Generator().manual_seed(7)
    length = TOY.positions
    ids = torch.randint(5, TOY.vocab_size, (len(lengths), length), generator=generator)
    positions = torch.tensor([1, 9, length + 1, length + 15, 2 * length])
    labels = torch.randint(5, TOY.vocab_size, (5,), generator=generator)
    ids.view(-1)[positions[:2]] = MASK_ID
    ids[torch.arange(length) >= torch.tensor(lengths)[:, None]] = TOY.position_offset - 1
    unused = torch.zeros(3, dtype=torch.int64)
    return {
        "input_ids_BS": ids,
        "lengths_B": torch.tensor(lengths),
        "positions_K": torch.cat([positions, unused]),
        "labels_K": torch.cat([labels, unused]),
        "weights_K": torch.tensor([1.0] * 5 + [0.0] * 3),
    }
