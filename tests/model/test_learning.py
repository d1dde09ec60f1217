"""Each objective learns a toy text made for it, with plain AdamW, in seconds."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from model.objectives.masked_language import Inputs, MaskedLanguageModel, Sums
from model.objectives.replaced_tokens import Kind, ReplacedTokenModel, area_under_curve
from model.pieces import pieces_of
from tests.model.conftest import TOY

CLS, SEP, MASK, FIRST, WORDS = 0, 2, 4, 5, 8
LR = 4e-3
ROWS, LENGTH = 32, 18
CONFIG = replace(TOY, vocab_size=FIRST + WORDS, width=32, feed_forward=64, initializer_range=0.15)


def cycles(generator: torch.Generator) -> Tensor:
    """Rows [B, S] that count through the words, each from a random start."""
    start = torch.randint(WORDS, (ROWS, 1), generator=generator)
    ids = FIRST + (start + torch.arange(LENGTH)) % WORDS
    ids[:, 0], ids[:, -1] = CLS, SEP
    return ids


def masked(ids: Tensor, predicted: Tensor, generator: torch.Generator) -> Inputs:
    """Every predicted position shows [MASK]."""
    positions = predicted.flatten().nonzero()[:, 0]
    shown = ids.masked_fill(predicted, MASK)
    return Inputs(
        input_ids_T=shown.flatten(),
        pieces=pieces_of([LENGTH] * ROWS),
        positions_K=positions,
        labels_K=ids.flatten()[positions],
        weights_K=torch.ones(len(positions)),
        mask_id=MASK,
        draws_K=torch.randint(2**62, (len(positions),), generator=generator),
        edge_ids=(CLS, SEP),
    )


def spans(seed: int) -> Iterator[Inputs]:
    """A span of 3 to 7 words in each row, determined by the words at its ends and its length."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        first = torch.randint(2, 10, (ROWS, 1), generator=generator)
        last = first + torch.randint(3, 8, (ROWS, 1), generator=generator)
        places = torch.arange(LENGTH)
        predicted = (places >= first) & (places < last)
        yield masked(cycles(generator), predicted, generator)


def tokens(seed: int) -> Iterator[Inputs]:
    """15 % of the words are predicted."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        predicted = torch.rand(ROWS, LENGTH, generator=generator) < 0.15
        predicted[:, [0, -1]] = False
        yield masked(cycles(generator), predicted, generator)


def train(model: nn.Module, batches: Iterator[Inputs], steps: int) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR)
    for step in range(steps):
        inputs = next(batches)
        sums = model(inputs)
        counts = {"tokens": ROWS * LENGTH}
        losses = [
            part.weight * sums[f"{part.name}_loss"] / counts.get(part.per, len(inputs.labels_K))
            for part in model.parts
        ]
        optimizer.param_groups[0]["lr"] = LR * min(1, (step + 1) / 30) * (1 - step / steps)
        optimizer.zero_grad()
        torch.stack(losses).sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


@torch.no_grad()
def scored(model: nn.Module, batches: Iterator[Inputs]) -> Sums:
    found = [model.eval()(next(batches)) for _ in range(10)]
    return {name: torch.stack([sums[name].double() for sums in found]).sum(0) for name in found[0]}


def test_words_are_predicted_from_the_ends_of_their_span() -> None:
    model = MaskedLanguageModel(CONFIG, seed=0, boundary_weight=1.0)
    train(model, spans(0), 200)
    batches = spans(1)
    targets = sum(len(next(batches).labels_K) for _ in range(10))
    assert scored(model, spans(1))["sbo_correct"] / targets > 0.9


def test_replaced_words_are_detected() -> None:
    """Guessing gives an AUC of 0.5. Both networks must learn: else replacements are obvious."""
    model = ReplacedTokenModel(CONFIG, replace(CONFIG, layers=1), weight=50.0, seed=0)
    train(model, tokens(0), 300)
    sums = scored(model, tokens(1))
    assert sums["mlm_correct"] / sums["mask_count"] > 0.5
    assert area_under_curve(*sums["rtd_histogram"]) > 0.8


@pytest.mark.parametrize(
    ("kind", "weight"),
    [
        ("rtd_masked", 50.0), ("replace_mlm", 1.0),
        pytest.param("all_tokens_mlm", 20.0, marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_what_electra_is_compared_with_learns(kind: Kind, weight: float) -> None:
    """The held-out loss falls below half of an untrained model's, or for detection below that of
    the share of replaced tokens; replaced words are restored."""
    generator = replace(CONFIG, layers=1)
    model = ReplacedTokenModel(CONFIG, generator, weight=weight, seed=0, kind=kind)
    part = model.parts[1]
    before = scored(model, tokens(1))
    train(model.train(), tokens(0), 250)
    after = scored(model, tokens(1))
    count = after["mask_count"] if part.per == "predictions" else 10 * ROWS * LENGTH
    if part.name == "rtd":
        share = after["rtd_replaced"] / count
        guess = -(share * share.log() + (1 - share) * (1 - share).log())
        assert after["rtd_loss"] / count < 0.95 * guess
        assert area_under_curve(*after["rtd_histogram"]) > 0.65
    else:
        assert after["words_loss"] < 0.5 * before["words_loss"]
        assert after["words_restored"] / after["words_replaced"] > 0.3
