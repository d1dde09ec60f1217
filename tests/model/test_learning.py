"""ELECTRA learns a toy text made for it, with plain AdamW, in seconds.

Gradients of all objectives equal plain implementations, see objectives/; recipes of all families
learn in end_to_end/test_learns.py.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import nn

from model.objectives.masked_language import Inputs
from model.objectives.replaced_tokens import ReplacedTokenModel, area_under_curve
from model.pieces import pieces_of
from tests.model.conftest import TOY

CLS, SEP, MASK, FIRST, WORDS = 0, 2, 4, 5, 8
LR, STEPS = 4e-3, 300
ROWS, LENGTH = 32, 18
CONFIG = replace(TOY, vocab_size=FIRST + WORDS, width=32, feed_forward=64, initializer_range=0.15)


def batches(seed: int) -> Iterator[Inputs]:
    """Rows that count through the words, each from a random start; [MASK] hides 15 % of them."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        start = torch.randint(WORDS, (ROWS, 1), generator=generator)
        ids = FIRST + (start + torch.arange(LENGTH)) % WORDS
        ids[:, 0], ids[:, -1] = CLS, SEP
        predicted = torch.rand(ROWS, LENGTH, generator=generator) < 0.15
        predicted[:, [0, -1]] = False
        positions = predicted.flatten().nonzero()[:, 0]
        yield Inputs(
            input_ids_T=ids.masked_fill(predicted, MASK).flatten(),
            pieces=pieces_of([LENGTH] * ROWS),
            positions_K=positions,
            labels_K=ids.flatten()[positions],
            weights_K=torch.ones(len(positions)),
            mask_id=MASK,
            draws_K=torch.randint(2**62, (len(positions),), generator=generator),
        )


def train(model: ReplacedTokenModel) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR)
    words, tokens = model.parts
    for step, inputs in zip(range(STEPS), batches(0)):
        sums = model(inputs)
        loss = words.weight * sums["mlm_loss"] / len(inputs.labels_K)
        loss = loss + tokens.weight * sums["rtd_loss"] / (ROWS * LENGTH)
        optimizer.param_groups[0]["lr"] = LR * min(1, (step + 1) / 30) * (1 - step / STEPS)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def test_replaced_words_are_detected() -> None:
    """Guessing gives an AUC of 0.5. Both networks must learn: else replacements are obvious."""
    model = ReplacedTokenModel(CONFIG, replace(CONFIG, layers=1), weight=50.0, seed=0)
    train(model)
    with torch.no_grad():
        found = [model.eval()(inputs) for _, inputs in zip(range(10), batches(1))]
    sums = {name: torch.stack([each[name].double() for each in found]).sum(0) for name in found[0]}
    assert sums["mlm_correct"] / sums["mask_count"] > 0.5
    assert area_under_curve(*sums["rtd_histogram"]) > 0.8
